//! Users and API tokens at a point in time.

use signalbox_domain::identity::{ApiToken, ApiTokenEventKind, User, UserEventKind};
use uuid::Uuid;

use super::{ApiTokenRow, IdentityRows, UserRow};
use crate::register::Resource;

impl Resource for UserRow {
    type Aggregate = User;
    type Rows = IdentityRows;

    fn is_passing(kind: UserEventKind) -> bool {
        match kind {
            UserEventKind::UserCreated
            | UserEventKind::UserEmailChanged
            | UserEventKind::UserRenamed
            | UserEventKind::UserRoleChanged
            | UserEventKind::UserPasswordChanged
            | UserEventKind::UserIdentityLinked
            | UserEventKind::UserIdentityRemoved
            | UserEventKind::UserDeleted => false,
        }
    }

    fn of(rows: &IdentityRows, id: Uuid) -> Option<&Self> {
        rows.users.get(id)
    }
}

impl Resource for ApiTokenRow {
    type Aggregate = ApiToken;
    type Rows = IdentityRows;

    fn is_passing(kind: ApiTokenEventKind) -> bool {
        match kind {
            ApiTokenEventKind::ApiTokenCreated
            | ApiTokenEventKind::ApiTokenControllerNoted
            | ApiTokenEventKind::ApiTokenRevoked => false,
        }
    }

    fn of(rows: &IdentityRows, id: Uuid) -> Option<&Self> {
        rows.tokens.get(id)
    }
}
