//! Finds or creates the account of a person who logs in through the provider.

use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_domain::{
    identity::{ExternalIdentity, NewUser, Role, User, UserCommand},
    kernel::{Actor, Rejection},
};
use signalbox_openid::Person;
use signalbox_projections::identity::{UserRow, queries};
use uuid::Uuid;

use super::{SingleSignOn, failure::Failure};
use crate::{
    context::RequestContext,
    services::{commands::Commands, replica::Database},
};

/// How often the account is looked for again after a name was taken, or somebody was faster.
const ATTEMPTS: usize = 4;
/// Letters of a user name.
const NAME_LETTERS: usize = 50;

/// The account of `person`: the one that is linked, else the one with the same verified address, else a new one.
pub(super) async fn find_or_make(
    database: &Database,
    commands: &Commands,
    clock: &Clock,
    sso: &SingleSignOn,
    context: &RequestContext,
    person: &Person,
) -> Result<UserRow, Failure> {
    for attempt in 0..ATTEMPTS {
        if let Some(user) =
            queries::user_by_identity(&database.primary, &person.issuer, &person.subject).await?
        {
            return Ok(user);
        }
        let email = verified_email(person)?;
        let known = queries::user_by_email(&database.primary, email).await?;
        // Letters beyond ASCII that only look alike in lower case are another address.
        let known = known.filter(|user| user.email.eq_ignore_ascii_case(email));
        let (id, command) = match known {
            // A role that only a newer version knows may be more than an admin's.
            Some(user) if !matches!(user.role.known(), Ok(Role::Viewer | Role::Operator)) => {
                return Err(Failure::AdminAccount);
            }
            Some(user) => (user.id.0, UserCommand::Link(identity(sso, person))),
            None => (clock.new_id(), creation(database, sso, person, email, attempt).await?),
        };
        match write(commands, context, id, &command, attempt).await {
            Ok(()) => {}
            Err(rejection) if rejection.code.ends_with("_taken") => {}
            Err(rejection) => return Err(rejection.into()),
        }
    }
    Err(Failure::Unavailable)
}

fn verified_email(person: &Person) -> Result<&str, Failure> {
    let email = person.email.as_deref().filter(|email| !email.contains('\0')).ok_or(Failure::NoEmail)?;
    if person.is_email_verified { Ok(email) } else { Err(Failure::UnverifiedEmail) }
}

async fn creation(
    database: &Database,
    sso: &SingleSignOn,
    person: &Person,
    email: &str,
    attempt: usize,
) -> Result<UserCommand, Failure> {
    if queries::is_removed_identity(&database.primary, &person.issuer, &person.subject).await? {
        return Err(Failure::Deleted);
    }
    if !sso.create_users {
        return Err(Failure::NoAccount);
    }
    let user = NewUser {
        number: 0,
        email: email.to_owned(),
        username: user_name(person, email, attempt),
        role: sso.default_role,
        password_hash: String::new(),
    };
    Ok(UserCommand::CreateLinked { user, identity: identity(sso, person) })
}

async fn write(
    commands: &Commands,
    context: &RequestContext,
    id: Uuid,
    command: &UserCommand,
    attempt: usize,
) -> Result<(), Rejection> {
    let actor = Actor::system("single-sign-on");
    let metadata = context.metadata(actor, &format!("link identity, attempt {attempt}"));
    commands.write::<User>(id, None, &metadata, command).await.map(drop)
}

fn identity(sso: &SingleSignOn, person: &Person) -> ExternalIdentity {
    ExternalIdentity {
        provider: sso.provider_name.clone(),
        issuer: person.issuer.clone(),
        subject: person.subject.clone(),
    }
}

/// The person's name at the provider, or else the part before the `@`. After an attempt that failed because the name
/// is taken, it is followed by letters derived from the person.
fn user_name(person: &Person, email: &str, attempt: usize) -> String {
    let local = email.split('@').next().unwrap_or_default();
    let wanted = [person.name.as_deref().unwrap_or_default(), local];
    let name = wanted.into_iter().map(plain).find(|name| name.chars().count() >= 2);
    let name = name.unwrap_or_else(|| "user".to_owned());
    if attempt == 0 {
        return name;
    }
    let digest = Sha256::digest(format!("{attempt} {} {}", person.issuer, person.subject));
    let suffix = format!("_{}", hex::encode(&digest[..3]));
    name.chars().take(NAME_LETTERS - suffix.len()).chain(suffix.chars()).collect()
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || "._-".contains(*c)).take(NAME_LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: Option<&str>, email: &str, attempt: usize) -> String {
        let person = Person {
            issuer: "https://id".to_owned(),
            subject: "1".to_owned(),
            email: Some(email.to_owned()),
            is_email_verified: true,
            name: name.map(str::to_owned),
        };
        user_name(&person, email, attempt)
    }

    #[test]
    fn a_user_name_is_what_the_provider_says_or_stands_in_the_address() {
        for (name, email, expected) in [
            (Some("ada"), "x@example.org", "ada"),
            (Some("Ada Lovelace"), "x@example.org", "AdaLovelace"),
            (Some("Jürgen.Ä"), "x@example.org", "Jürgen.Ä"),
            (Some("admin@example.org"), "x@example.org", "adminexample.org"),
            (Some("a"), "ada@example.org", "ada"),
            (None, "ada+sso@example.org", "adasso"),
            (None, "a@example.org", "user"),
        ] {
            assert_eq!(named(name, email, 0), expected);
        }
        assert_eq!(named(Some(&"x".repeat(300)), "", 0).len(), NAME_LETTERS);
    }

    #[test]
    fn a_name_that_is_taken_gets_letters_that_follow_from_the_person() {
        let (second, third) = (named(Some("ada"), "", 1), named(Some("ada"), "", 2));
        assert!(second.starts_with("ada_") && second.len() == 10, "{second}");
        assert_ne!(second, third);
        assert_eq!(second, named(Some("ada"), "", 1));
        assert_eq!(named(Some(&"ä".repeat(60)), "", 1).chars().count(), NAME_LETTERS);
    }
}
