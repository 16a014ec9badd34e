use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use signalbox_domain::{
    identity::Role,
    kernel::{Actor, UserId},
};
use uuid::Uuid;

/// A user with a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentUser {
    pub(crate) id: UserId,
    pub(crate) credential: Credential,
    pub(crate) number: i64,
    pub(crate) email: String,
    pub(crate) username: String,
    pub(crate) role: Role,
    /// Whether the credential is an API token of a controller; `None` for a token of an earlier version that has not been seen to
    /// be one.
    pub(crate) controller: Option<bool>,
}

/// The credential that authenticated a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A JWT of this login session.
    Session(Uuid),
    /// This API token.
    ApiToken(Uuid),
}

/// The least role that the handler of a request requires. The extractors set it; later stages read it: a running
/// body, and a repetition with the same `Idempotency-Key`.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequiredRole(Arc<AtomicU8>);

impl RequiredRole {
    const ROLES: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    /// Raises it to `least`.
    pub(crate) fn raise(&self, least: Role) {
        self.0.fetch_max(least as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Role {
        let raised = self.0.load(Ordering::Relaxed);
        Self::ROLES.into_iter().find(|role| *role as u8 == raised).unwrap_or(Role::Admin)
    }
}

impl CurrentUser {
    /// Whether it runs plugin instances, by an API token that is for that.
    pub(crate) fn runs_controller(&self) -> bool {
        self.controller == Some(true) && self.role >= Role::Operator
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::User(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_role_is_only_raised() {
        let required = RequiredRole::default();
        assert_eq!(required.get(), Role::Viewer);
        for (raised, expected) in
            [(Role::Operator, Role::Operator), (Role::Admin, Role::Admin), (Role::Operator, Role::Admin)]
        {
            required.clone().raise(raised);
            assert_eq!(required.get(), expected);
        }
    }
}
