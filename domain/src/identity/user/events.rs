use serde::{Deserialize, Serialize};

use super::{ExternalIdentity, NewUser, Role, UserChanges};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum UserCommand {
    /// Create the user.
    Create(NewUser),
    /// Create a user who logs in through an OpenID provider.
    CreateLinked {
        /// The user.
        user: NewUser,
        /// The user's identity at the provider.
        identity: ExternalIdentity,
    },
    /// From now on this identity logs in as the user; in place of one at another provider.
    Link(ExternalIdentity),
    /// Change some fields.
    Change(UserChanges),
    /// Remove the user and end all sessions.
    Delete,
}

/// Events of a user. Changes also carry the old value, for the audit and for claims.
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
    /// An identity at an OpenID provider logs in as the user.
    UserIdentityLinked {
        /// The one that did before.
        from: Option<ExternalIdentity>,
        /// The one that does now.
        to: ExternalIdentity,
    },
    /// The identity of a deleted user; it does not get a new account automatically.
    UserIdentityRemoved(ExternalIdentity),
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

event_kinds!(UserEvent, UserEventKind {
    UserCreated = "user_created", "1";
    UserEmailChanged = "user_email_changed", "1";
    UserRenamed = "user_renamed", "1";
    UserRoleChanged = "user_role_changed", "1";
    UserPasswordChanged = "user_password_changed", "1";
    UserIdentityLinked = "user_identity_linked", "1";
    UserIdentityRemoved = "user_identity_removed", "1";
    UserDeleted = "user_deleted", "1";
});
