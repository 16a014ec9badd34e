//! Users and API tokens at a point in time.

use signalbox_domain::identity::{ApiToken, User};
use uuid::Uuid;

use super::{ApiTokenRow, IdentityRows, UserRow};
use crate::register::Resource;

impl Resource for UserRow {
    type Aggregate = User;
    type Rows = IdentityRows;

    fn of(rows: &IdentityRows, id: Uuid) -> Option<&Self> {
        rows.users.get(id)
    }
}

impl Resource for ApiTokenRow {
    type Aggregate = ApiToken;
    type Rows = IdentityRows;

    fn of(rows: &IdentityRows, id: Uuid) -> Option<&Self> {
        rows.tokens.get(id)
    }
}
