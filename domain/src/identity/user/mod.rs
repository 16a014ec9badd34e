mod events;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{UserCommand, UserEvent, UserEventKind};
use super::{ExternalIdentity, Role, external::IDENTITY_CLAIM};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, required_text};

/// Longest e-mail address, in characters.
pub const MAX_EMAIL: usize = 255;
/// Characters of a user name.
pub const USERNAME: RangeInclusive<usize> = 2..=50;

/// A person (or program) that may log in.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct User {
    present: Option<Present>,
}

impl User {
    /// Whether the user was created and is not deleted.
    pub fn is_present(&self) -> bool {
        self.present.is_some()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    email: String,
    username: String,
    role: Role,
    password_hash: String,
    identity: Option<ExternalIdentity>,
}

/// Fields of a new user. Passwords arrive hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewUser {
    /// The integer that service 1 shows; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    /// Login name; unique, case-insensitive.
    pub email: String,
    /// Second login name; unique, case-insensitive.
    pub username: String,
    pub role: Role,
    /// Argon2id hash in PHC format; empty for a user without a password.
    pub password_hash: String,
}

/// Fields that are present are changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserChanges {
    /// New e-mail address.
    pub email: Option<String>,
    /// New user name.
    pub username: Option<String>,
    /// New role.
    pub role: Option<Role>,
    /// New Argon2id hash; ends all sessions.
    pub password_hash: Option<String>,
}

/// Kind of the claims to addresses; each user has one.
pub const EMAIL_CLAIM: &str = "user.email";
const USERNAME_CLAIM: &str = "user.username";
const ADMIN_CLAIM: &str = "user.admin";

impl Decider for User {
    const TYPE: &'static str = "user";
    const CONTEXT: &'static str = "identity";
    const STATE_VERSION: i32 = 2;
    type Command = UserCommand;
    type Event = UserEvent;

    fn decide(&self, command: UserCommand) -> Result<Vec<UserEvent>, Rejection> {
        match command {
            UserCommand::Create(new) => self.create(new),
            UserCommand::CreateLinked { user, identity } => {
                identity.check()?;
                let mut events = self.create(user)?;
                events.push(UserEvent::UserIdentityLinked { from: None, to: identity });
                Ok(events)
            }
            UserCommand::Link(identity) => self.link(identity),
            UserCommand::Change(changes) => self.change(changes),
            UserCommand::Delete => self.delete(),
        }
    }

    fn evolve(&mut self, event: UserEvent) {
        if let UserEvent::UserCreated(new) = event {
            let NewUser { email, username, role, password_hash, .. } = new;
            self.present = Some(Present { email, username, role, password_hash, identity: None });
            return;
        }
        let Some(user) = self.present.as_mut() else { return };
        match event {
            UserEvent::UserCreated(_) => {}
            UserEvent::UserEmailChanged { to, .. } => user.email = to,
            UserEvent::UserRenamed { to, .. } => user.username = to,
            UserEvent::UserRoleChanged { to, .. } => user.role = to,
            UserEvent::UserPasswordChanged { password_hash } => user.password_hash = password_hash,
            UserEvent::UserIdentityLinked { to, .. } => user.identity = Some(to),
            UserEvent::UserIdentityRemoved(_) => user.identity = None,
            UserEvent::UserDeleted { .. } => self.present = None,
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            EMAIL_CLAIM => Rejection::conflict("email_taken", "Another user has this e-mail address."),
            USERNAME_CLAIM => Rejection::conflict("username_taken", "Another user has this user name."),
            IDENTITY_CLAIM => Rejection::conflict("identity_taken", "Another user logs in by this identity."),
            _ => Rejection::conflict("last_admin", "The last admin can be neither deleted nor demoted."),
        }
    }

    fn claims(id: Uuid, event: &UserEvent) -> Vec<Claim> {
        match event {
            UserEvent::UserCreated(new) => {
                let mut claims =
                    vec![email(ClaimOp::Take, &new.email), username(ClaimOp::Take, &new.username)];
                claims.extend(admin(ClaimOp::Take, new.role, id));
                claims
            }
            UserEvent::UserEmailChanged { from, to } => {
                vec![email(ClaimOp::Release, from), email(ClaimOp::Take, to)]
            }
            UserEvent::UserRenamed { from, to } => {
                vec![username(ClaimOp::Release, from), username(ClaimOp::Take, to)]
            }
            UserEvent::UserRoleChanged { from, to } => admin(ClaimOp::ReleaseNotLast, *from, id)
                .into_iter()
                .chain(admin(ClaimOp::Take, *to, id))
                .collect(),
            UserEvent::UserPasswordChanged { .. } => Vec::new(),
            UserEvent::UserIdentityLinked { from, to } => {
                let released = from.iter().map(|from| from.claim(ClaimOp::Release));
                released.chain([to.claim(ClaimOp::Take)]).collect()
            }
            UserEvent::UserIdentityRemoved(identity) => vec![identity.claim(ClaimOp::Release)],
            UserEvent::UserDeleted { email: address, username: name, role } => {
                let mut claims = vec![email(ClaimOp::Release, address), username(ClaimOp::Release, name)];
                claims.extend(admin(ClaimOp::ReleaseNotLast, *role, id));
                claims
            }
        }
    }
}

impl User {
    fn present(&self) -> Result<&Present, Rejection> {
        self.present.as_ref().ok_or_else(|| Rejection::not_found("User"))
    }

    fn create(&self, new: NewUser) -> Result<Vec<UserEvent>, Rejection> {
        if self.present.is_some() {
            return Err(Rejection::conflict("user_exists", "This user exists already."));
        }
        let email = valid_email(&new.email)?;
        let username = valid_username(&new.username)?;
        Ok(vec![UserEvent::UserCreated(NewUser { email, username, ..new })])
    }

    fn link(&self, identity: ExternalIdentity) -> Result<Vec<UserEvent>, Rejection> {
        identity.check()?;
        let user = self.present()?;
        match &user.identity {
            Some(known) if known.is_same(&identity) => Ok(Vec::new()),
            _ if user.role == Role::Admin => {
                Err(Rejection::conflict("admin_account", "The account of an admin is not linked."))
            }
            Some(known) if known.issuer == identity.issuer => {
                let message = "Somebody else at the same provider logs in as this user.";
                Err(Rejection::conflict("other_identity", message))
            }
            known => Ok(vec![UserEvent::UserIdentityLinked { from: known.clone(), to: identity }]),
        }
    }

    fn delete(&self) -> Result<Vec<UserEvent>, Rejection> {
        let user = self.present()?;
        let removed = user.identity.clone().map(UserEvent::UserIdentityRemoved);
        let deleted = UserEvent::UserDeleted {
            email: user.email.clone(),
            username: user.username.clone(),
            role: user.role,
        };
        Ok(removed.into_iter().chain([deleted]).collect())
    }

    fn change(&self, changes: UserChanges) -> Result<Vec<UserEvent>, Rejection> {
        let user = self.present()?;
        let mut events = Vec::new();
        if let Some(to) = changes.email.map(|email| valid_email(&email)).transpose()?
            && to != user.email
        {
            events.push(UserEvent::UserEmailChanged { from: user.email.clone(), to });
        }
        if let Some(to) = changes.username.map(|name| valid_username(&name)).transpose()?
            && to != user.username
        {
            events.push(UserEvent::UserRenamed { from: user.username.clone(), to });
        }
        if let Some(to) = changes.role
            && to != user.role
        {
            events.push(UserEvent::UserRoleChanged { from: user.role, to });
        }
        if let Some(password_hash) = changes.password_hash {
            events.push(UserEvent::UserPasswordChanged { password_hash });
        }
        Ok(events)
    }
}

/// Loose on purpose: one `@` with something on both sides and no white space; only delivery proves an address.
fn valid_email(text: &str) -> Result<String, Rejection> {
    let email = required_text("email", text, MAX_EMAIL)?;
    let well_formed = email.split_once('@').is_some_and(|(local, host)| {
        !local.is_empty() && !host.is_empty() && !host.contains('@') && !email.contains(char::is_whitespace)
    });
    if well_formed { Ok(email) } else { Err(Rejection::field("email", "must be an e-mail address")) }
}

fn valid_username(text: &str) -> Result<String, Rejection> {
    let name = required_text("username", text, *USERNAME.end())?;
    if name.chars().count() < *USERNAME.start() {
        return Err(Rejection::field("username", "must be at least 2 characters long"));
    }
    Ok(name)
}

fn email(op: ClaimOp, address: &str) -> Claim {
    Claim::new(op, EMAIL_CLAIM, address.to_lowercase())
}

fn username(op: ClaimOp, name: &str) -> Claim {
    Claim::new(op, USERNAME_CLAIM, name.to_lowercase())
}

fn admin(op: ClaimOp, role: Role, id: Uuid) -> Option<Claim> {
    (role == Role::Admin).then(|| Claim::new(op, ADMIN_CLAIM, id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(role: Role) -> User {
        let mut user = User::default();
        for event in user.decide(UserCommand::Create(new(role))).unwrap() {
            user.evolve(event);
        }
        user
    }

    fn new(role: Role) -> NewUser {
        NewUser {
            number: 1,
            email: "ada@example.org".into(),
            username: "ada".into(),
            role,
            password_hash: "$argon2id$".into(),
        }
    }

    #[test]
    fn a_change_names_the_old_value() {
        let events = user(Role::Operator)
            .decide(UserCommand::Change(UserChanges {
                username: Some(" countess ".into()),
                ..Default::default()
            }))
            .unwrap();
        assert_eq!(events, vec![UserEvent::UserRenamed { from: "ada".into(), to: "countess".into() }]);
    }

    #[test]
    fn a_change_to_the_same_value_is_no_event() {
        let same = UserChanges {
            role: Some(Role::Admin),
            email: Some("ada@example.org".into()),
            ..Default::default()
        };
        assert_eq!(user(Role::Admin).decide(UserCommand::Change(same)).unwrap(), vec![]);
    }

    #[test]
    fn demoting_an_admin_needs_another_admin() {
        let id = Uuid::nil();
        let claims = User::claims(id, &UserEvent::UserRoleChanged { from: Role::Admin, to: Role::Viewer });
        assert_eq!(claims, vec![Claim::new(ClaimOp::ReleaseNotLast, ADMIN_CLAIM, id.to_string())]);
    }

    fn identity(issuer: &str, subject: &str) -> ExternalIdentity {
        ExternalIdentity { provider: "Plant".into(), issuer: issuer.into(), subject: subject.into() }
    }

    fn linked(role: Role) -> User {
        let (mut user, identity) = (User::default(), identity("https://id", "a"));
        for event in user.decide(UserCommand::CreateLinked { user: new(role), identity }).unwrap() {
            user.evolve(event);
        }
        user
    }

    #[test]
    fn one_identity_of_a_provider_logs_in_as_a_user() {
        let link = |user: &User, issuer, subject| user.decide(UserCommand::Link(identity(issuer, subject)));
        let ada = linked(Role::Operator);
        assert_eq!(link(&ada, "https://id", "a").unwrap(), vec![]);
        assert_eq!(link(&ada, "https://id", "b").unwrap_err().code, "other_identity");
        let (from, to) = (identity("https://id", "a"), identity("https://other", "b"));
        let moved = link(&ada, "https://other", "b").unwrap();
        assert_eq!(moved, vec![UserEvent::UserIdentityLinked { from: Some(from.clone()), to: to.clone() }]);
        assert_eq!(
            User::claims(Uuid::nil(), &moved[0]),
            vec![from.claim(ClaimOp::Release), to.claim(ClaimOp::Take)]
        );
    }

    #[test]
    fn an_admin_is_never_linked_but_a_linked_user_may_become_one() {
        let by_email = UserCommand::Link(identity("https://id", "a"));
        assert_eq!(user(Role::Admin).decide(by_email.clone()).unwrap_err().code, "admin_account");
        assert_eq!(linked(Role::Admin).decide(by_email).unwrap(), vec![]);
    }

    #[test]
    fn the_identity_of_a_deleted_user_is_named() {
        let events = linked(Role::Viewer).decide(UserCommand::Delete).unwrap();
        assert_eq!(events[0], UserEvent::UserIdentityRemoved(identity("https://id", "a")));
        assert!(matches!(events[1], UserEvent::UserDeleted { .. }));
        assert_eq!(user(Role::Viewer).decide(UserCommand::Delete).unwrap().len(), 1);
    }

    #[test]
    fn identities_are_bounded_and_never_changed() {
        for subject in ["", " ", "a ", "a\0", &"x".repeat(256)] {
            let link = UserCommand::Link(identity("https://id", subject));
            assert!(user(Role::Viewer).decide(link).is_err(), "{subject:?}");
        }
    }

    #[test]
    fn addresses_without_two_sides_are_refused() {
        for address in ["", "ada", "@x", "ada@", "a b@c", "a@b@c"] {
            let refused = User::default()
                .decide(UserCommand::Create(NewUser { email: address.into(), ..new(Role::Viewer) }));
            assert!(refused.is_err(), "{address}");
        }
    }
}
