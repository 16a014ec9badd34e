//! The first admin: no user exists before the first start, and no default credential ever.

use signalbox_boxed::boxed;
use std::{io, path::PathBuf};

use rand::{TryRngCore, rngs::OsRng};
use signalbox_clock::Clock;
use signalbox_config::Secret;
use signalbox_domain::{
    identity::{EMAIL_CLAIM, NewUser, Role, User, UserCommand},
    kernel::{Actor, Metadata, Rejection},
};
use signalbox_event_store::is_any_claimed;
use signalbox_messaging::Bus;
use sqlx::PgPool;
use uuid::Uuid;

use crate::auth::{HashError, Passwords, WeakPassword, check_new_password};

/// The first admin to create.
#[derive(Debug)]
pub struct FirstAdmin {
    /// E-mail address; `admin@signalbox.local` if absent.
    pub email: Option<String>,
    /// Password; a random one, written to `password_file`, if absent.
    pub password: Option<Secret>,
    /// Where a random password is written, readable by this user alone.
    pub password_file: PathBuf,
}

/// Why there is no first admin.
#[derive(Debug, thiserror::Error)]
pub enum FirstAdminError {
    /// The database failed.
    #[error("the users cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// The command was refused.
    #[error("the first admin cannot be created: {0}")]
    Rejected(#[from] Rejection),
    /// The password cannot be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// The password is too weak.
    #[error("SIGNALBOX_ADMIN_PASSWORD {0}")]
    Password(#[source] WeakPassword),
    /// The password cannot be kept.
    #[error("the admin's password cannot be written to {path}: {source}")]
    File {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The first admin, who has been created.
#[derive(Debug)]
pub struct NewAdmin {
    /// E-mail address.
    pub login: String,
    /// The password, if it was made here. One that was given is not to be shown.
    pub made_password: Option<Secret>,
}

/// Creates the first admin when there is no user.
///
/// # Errors
/// [`FirstAdminError`].
#[boxed]
pub async fn ensure_admin(
    pool: &PgPool,
    bus: &Bus,
    clock: &Clock,
    admin: FirstAdmin,
) -> Result<Option<NewAdmin>, FirstAdminError> {
    // The log says so, where the read models have not caught up yet, as after an import.
    if is_any_claimed(pool, EMAIL_CLAIM).await? {
        return Ok(None);
    }
    let email = admin.email.unwrap_or_else(|| "admin@signalbox.local".to_owned());
    let is_made = admin.password.is_none();
    let password = match admin.password {
        Some(password) => password,
        None => random_password(&admin.password_file)?,
    };
    check_new_password(password.expose()).map_err(FirstAdminError::Password)?;
    let new = NewUser {
        number: 0,
        email: email.clone(),
        username: "admin".to_owned(),
        role: Role::Admin,
        password_hash: Passwords::new(1).hash(password.expose().to_owned()).await?,
    };
    match bus.send::<User>(clock.new_id(), None, &metadata(clock), &UserCommand::Create(new)).await {
        Ok(_) => Ok(Some(NewAdmin { login: email, made_password: is_made.then_some(password) })),
        // Another process was faster.
        Err(rejection) if rejection.code.ends_with("_taken") => Ok(None),
        Err(rejection) => Err(rejection.into()),
    }
}

fn metadata(clock: &Clock) -> Metadata {
    let command_id = clock.new_id();
    let correlation = command_id.simple().to_string();
    Metadata {
        command_id,
        actor: Actor::system("first-start"),
        causation: None,
        correlation,
        traceparent: None,
        restored_version: None,
    }
}

/// A password of 128 random bits, in a file that only this user can read. One left by an earlier start is used again.
fn random_password(path: &PathBuf) -> Result<Secret, FirstAdminError> {
    use std::{fs, io::Write, os::unix::fs::OpenOptionsExt};
    let failed = |source| FirstAdminError::File { path: path.clone(), source };
    if let Ok(password) = fs::read_to_string(path) {
        return Ok(Secret::new(password.trim().to_owned()));
    }
    let mut bytes = [0; 16];
    OsRng.try_fill_bytes(&mut bytes).map_err(|error| failed(io::Error::other(error)))?;
    let password = Uuid::from_bytes(bytes).simple().to_string();
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(password.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(Secret::new(password))
}
