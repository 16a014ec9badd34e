//! The first admin: no user exists before the first start, and no default credential ever.

use std::{io, path::PathBuf};

use rand::{TryRngCore, rngs::OsRng};
use signalbox_clock::Clock;
use signalbox_config::Secret;
use signalbox_domain::{
    identity::{NewUser, Role, User, UserCommand},
    kernel::{Actor, Metadata, Rejection},
};
use signalbox_messaging::Bus;
use signalbox_projections::identity::queries;
use sqlx::PgPool;
use uuid::Uuid;

use crate::auth::{HashError, Passwords};

/// Who the first admin shall be.
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
    /// The password is too short or too long.
    #[error("SIGNALBOX_ADMIN_PASSWORD must be 8 to 256 characters long")]
    Password,
    /// The password cannot be kept.
    #[error("the admin's password cannot be written to {path}: {source}")]
    File {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Creates the first admin when there is no user; gives back login and password of a new one.
///
/// # Errors
/// [`FirstAdminError`].
pub async fn ensure_admin(
    pool: &PgPool,
    bus: &Bus,
    clock: &Clock,
    admin: FirstAdmin,
) -> Result<Option<(String, Secret)>, FirstAdminError> {
    if queries::has_users(pool).await? {
        return Ok(None);
    }
    let email = admin.email.unwrap_or_else(|| "admin@signalbox.local".to_owned());
    let password = match admin.password {
        Some(password) => password,
        None => random_password(&admin.password_file)?,
    };
    if !(8..=256).contains(&password.expose().chars().count()) {
        return Err(FirstAdminError::Password);
    }
    let new = NewUser {
        number: 0,
        email: email.clone(),
        username: "admin".to_owned(),
        role: Role::Admin,
        password_hash: Passwords::new(1)?.hash(password.expose().to_owned()).await?,
    };
    match bus.send::<User>(clock.new_id(), None, &metadata(clock), &UserCommand::Create(new)).await {
        Ok(_) => Ok(Some((email, password))),
        // Another process was faster, or the read model is still behind.
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
