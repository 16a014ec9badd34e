use signalbox_domain::{
    identity::Role,
    kernel::{Actor, UserId},
};
use uuid::Uuid;

/// A user with a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: UserId,
    pub(crate) credential: Credential,
    pub(crate) number: i64,
    pub(crate) email: String,
    pub(crate) username: String,
    pub(crate) role: Role,
}

/// What a user was recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A JWT of this login session.
    Session(Uuid),
    /// This API token.
    ApiToken(Uuid),
}

impl Who {
    pub(crate) fn actor(&self) -> Actor {
        Actor::User(self.user)
    }
}
