use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Role;
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, required_text};

/// A person (or program) that may log in.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct User {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    email: String,
    username: String,
    role: Role,
    password_hash: String,
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
    /// What the user may do.
    pub role: Role,
    /// Argon2id hash in PHC format.
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

/// What can be asked of a user.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum UserCommand {
    /// Create the user.
    Create(NewUser),
    /// Change some fields.
    Change(UserChanges),
    /// Remove the user and end all sessions.
    Delete,
}

/// What can have happened to a user. Changes name the old value too, for the audit and for claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserEvent {
    /// A user exists now.
    UserCreated(NewUser),
    /// The e-mail address changed.
    UserEmailChanged {
        /// Old address.
        from: String,
        /// New address.
        to: String,
    },
    /// The user name changed.
    UserRenamed {
        /// Old name.
        from: String,
        /// New name.
        to: String,
    },
    /// The role changed.
    UserRoleChanged {
        /// Old role.
        from: Role,
        /// New role.
        to: Role,
    },
    /// The password changed; every earlier session has ended.
    UserPasswordChanged {
        /// Argon2id hash in PHC format.
        password_hash: String,
    },
    /// The user is gone.
    UserDeleted {
        /// Address that is free again.
        email: String,
        /// Name that is free again.
        username: String,
        /// Role that was held.
        role: Role,
    },
}

impl DomainEvent for UserEvent {
    fn event_type(&self) -> String {
        match self {
            Self::UserCreated(_) => "user_created",
            Self::UserEmailChanged { .. } => "user_email_changed",
            Self::UserRenamed { .. } => "user_renamed",
            Self::UserRoleChanged { .. } => "user_role_changed",
            Self::UserPasswordChanged { .. } => "user_password_changed",
            Self::UserDeleted { .. } => "user_deleted",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}

const EMAIL_CLAIM: &str = "user.email";
const USERNAME_CLAIM: &str = "user.username";
const ADMIN_CLAIM: &str = "user.admin";

impl Decider for User {
    const TYPE: &'static str = "user";
    const CONTEXT: &'static str = "identity";
    const STATE_VERSION: i32 = 1;
    type Command = UserCommand;
    type Event = UserEvent;

    fn decide(&self, command: UserCommand) -> Result<Vec<UserEvent>, Rejection> {
        match command {
            UserCommand::Create(new) => self.create(new),
            UserCommand::Change(changes) => self.change(changes),
            UserCommand::Delete => {
                let user = self.present()?;
                Ok(vec![UserEvent::UserDeleted {
                    email: user.email.clone(),
                    username: user.username.clone(),
                    role: user.role,
                }])
            }
        }
    }

    fn evolve(&mut self, event: UserEvent) {
        if let UserEvent::UserCreated(new) = event {
            let NewUser { email, username, role, password_hash, .. } = new;
            self.present = Some(Present { email, username, role, password_hash });
            return;
        }
        let Some(user) = self.present.as_mut() else { return };
        match event {
            UserEvent::UserCreated(_) => {}
            UserEvent::UserEmailChanged { to, .. } => user.email = to,
            UserEvent::UserRenamed { to, .. } => user.username = to,
            UserEvent::UserRoleChanged { to, .. } => user.role = to,
            UserEvent::UserPasswordChanged { password_hash } => user.password_hash = password_hash,
            UserEvent::UserDeleted { .. } => self.present = None,
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            EMAIL_CLAIM => Rejection::conflict("email_taken", "Another user has this e-mail address."),
            USERNAME_CLAIM => Rejection::conflict("username_taken", "Another user has this user name."),
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
    let email = required_text("email", text, 255)?;
    let well_formed = email.split_once('@').is_some_and(|(local, host)| {
        !local.is_empty() && !host.is_empty() && !host.contains('@') && !email.contains(char::is_whitespace)
    });
    if well_formed {
        Ok(email)
    } else {
        Err(Rejection::invalid("invalid_field", "email must be an e-mail address"))
    }
}

fn valid_username(text: &str) -> Result<String, Rejection> {
    let name = required_text("username", text, 50)?;
    if name.chars().count() < 2 {
        return Err(Rejection::invalid("invalid_field", "username must be at least 2 characters long"));
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

    #[test]
    fn addresses_without_two_sides_are_refused() {
        for address in ["", "ada", "@x", "ada@", "a b@c", "a@b@c"] {
            let refused = User::default()
                .decide(UserCommand::Create(NewUser { email: address.into(), ..new(Role::Viewer) }));
            assert!(refused.is_err(), "{address}");
        }
    }
}
