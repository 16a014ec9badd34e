use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::{
    identity::Role,
    kernel::{SessionId, UserId},
};
use signalbox_from_row::FromRow;
use uuid::Uuid;

use crate::{Word, table::ReadRow};

/// A user.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct UserRow {
    /// Key.
    pub id: UserId,
    /// The integer that service 1 shows.
    pub number: i64,
    /// Login name.
    pub email: String,
    /// Second login name.
    pub username: String,
    pub role: Word<Role>,
    /// Argon2id hash in PHC format; empty for a user without a password.
    pub password_hash: String,
    /// Identity provider; `None` for local users.
    pub sso_provider: Option<String>,
    /// Its `iss`.
    pub sso_issuer: Option<String>,
    /// The user's subject at the provider.
    pub sso_subject: Option<String>,
    /// Position in the log; sessions that started before are void.
    pub valid_after: i64,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for UserRow {
    const TABLE: &'static str = "users";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// The identity of a deleted user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct RemovedIdentityRow {
    /// Key: the user's.
    pub id: UserId,
    /// The provider's `iss`.
    pub issuer: String,
    /// The user's subject at the provider.
    pub subject: String,
}

impl ReadRow for RemovedIdentityRow {
    const TABLE: &'static str = "removed_identities";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// An API token that has not been revoked.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ApiTokenRow {
    /// Key.
    pub id: Uuid,
    pub user_id: UserId,
    /// Display name.
    pub name: String,
    /// SHA-256 of the secret.
    pub secret_sha256: String,
    /// When it stops working; `None` for never.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is a controller's; `None` for one of an earlier version that has not been seen to be.
    pub controller: Option<bool>,
    /// Position of its creation in the log.
    pub position: i64,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

impl ReadRow for ApiTokenRow {
    const TABLE: &'static str = "api_tokens";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// A login session.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct SessionRow {
    /// Key; the `sid` claim of its JWTs.
    pub id: SessionId,
    pub user_id: UserId,
    /// Position of its start in the log.
    pub position: i64,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When its newest JWT expires.
    pub expires_at: DateTime<Utc>,
    /// When it was ended by logout.
    pub ended_at: Option<DateTime<Utc>>,
}

impl ReadRow for SessionRow {
    const TABLE: &'static str = "sessions";

    fn id(&self) -> Uuid {
        self.id.0
    }
}
