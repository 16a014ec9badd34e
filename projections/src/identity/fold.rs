use std::collections::HashMap;

use async_trait::async_trait;
use signalbox_domain::{
    catalog::Context,
    identity::{ApiToken, ApiTokenEvent, ExternalIdentity, Session, SessionEvent, User, UserEvent},
    kernel::{Decider, SessionId, UserId},
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{ApiTokenRow, RemovedIdentityRow, SessionRow, UserRow};
use crate::{
    ApplyError, Projection, Rows,
    table::{ReadRow, Table, changed_ids},
};

/// Folds users, sessions and API tokens.
pub struct IdentityProjection;

pub enum Event {
    User(UserEvent),
    Session(SessionEvent),
    Token(ApiTokenEvent),
}

/// Users, sessions and API tokens in memory.
#[derive(Default)]
pub struct IdentityRows {
    pub(super) users: Table<UserRow>,
    removed_identities: Table<RemovedIdentityRow>,
    sessions: Table<SessionRow>,
    pub(super) tokens: Table<ApiTokenRow>,
    /// With the place in the log: a login that was in progress then may start a session later (or make a token), in this batch
    /// or the next.
    deleted_users: HashMap<Uuid, i64>,
}

impl Projection for IdentityProjection {
    const CONTEXT: Context = Context::Identity;
    const TABLES: &'static [&'static str] = &["users", "removed_identities", "sessions", "api_tokens"];

    type Rows = IdentityRows;
}

#[async_trait]
impl Rows for IdentityRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            User::TYPE => event.decode::<User>().map(Event::User),
            Session::TYPE => event.decode::<Session>().map(Event::Session),
            _ => event.decode::<ApiToken>().map(Event::Token),
        }
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Event)],
    ) -> Result<(), ApplyError> {
        let ids = |aggregate| changed_ids(events, aggregate);
        self.users.load(connection, schema, ids(User::TYPE)).await?;
        self.removed_identities.load(connection, schema, ids(User::TYPE)).await?;
        self.sessions.load(connection, schema, ids(Session::TYPE)).await?;
        self.tokens.load(connection, schema, ids(ApiToken::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::User(event) => self.user(recorded, event),
            Event::Session(event) => self.session(recorded, event),
            Event::Token(event) => self.token(recorded, event),
        }
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        let deleted = std::mem::take(&mut self.deleted_users);
        let is_over = |user: Uuid, since: i64| deleted.get(&user).is_some_and(|position| since < *position);
        if !deleted.is_empty() {
            self.sessions.remove_where(|session| is_over(session.user_id.0, session.position));
            self.tokens.remove_where(|token| is_over(token.user_id.0, token.position));
        }
        self.users.write(connection, schema, keep).await?;
        self.removed_identities.write(connection, schema, keep).await?;
        self.sessions.write(connection, schema, keep).await?;
        self.tokens.write(connection, schema, keep).await?;
        if !deleted.is_empty() {
            let (users, positions): (Vec<_>, Vec<_>) = deleted.into_iter().unzip();
            for table in [SessionRow::TABLE, ApiTokenRow::TABLE] {
                let sql = format!(
                    "DELETE FROM {schema}.{table} t USING unnest($1, $2) AS deleted (id, position)
                      WHERE t.user_id = deleted.id AND t.position < deleted.position"
                );
                sqlx::query(&sql).bind(&users).bind(&positions).execute(&mut *connection).await?;
            }
        }
        Ok(())
    }
}

impl IdentityRows {
    fn user(&mut self, recorded: &RecordedEvent, event: UserEvent) {
        let id = recorded.aggregate_id;
        if let UserEvent::UserCreated(new) = event {
            return self.users.put(UserRow {
                id: UserId(id),
                number: new.number,
                email: new.email,
                username: new.username,
                role: new.role.into(),
                password_hash: new.password_hash,
                sso_provider: None,
                sso_issuer: None,
                sso_subject: None,
                valid_after: recorded.position,
                version: recorded.sequence,
                created_at: recorded.recorded_at,
                updated_at: recorded.recorded_at,
            });
        }
        let Some(row) = self.users.change(id) else { return };
        row.version = recorded.sequence;
        row.updated_at = recorded.recorded_at;
        match event {
            UserEvent::UserCreated(_) => {}
            UserEvent::UserEmailChanged { to, .. } => row.email = to,
            UserEvent::UserRenamed { to, .. } => row.username = to,
            UserEvent::UserRoleChanged { to, .. } => row.role = to.into(),
            UserEvent::UserPasswordChanged { password_hash } => {
                row.password_hash = password_hash;
                row.valid_after = recorded.position;
            }
            UserEvent::UserIdentityLinked { to, .. } => {
                row.sso_provider = Some(to.provider);
                row.sso_issuer = Some(to.issuer);
                row.sso_subject = Some(to.subject);
            }
            UserEvent::UserIdentityRemoved(ExternalIdentity { issuer, subject, .. }) => {
                self.removed_identities.put(RemovedIdentityRow { id: UserId(id), issuer, subject });
            }
            UserEvent::UserDeleted { .. } => {
                self.users.remove(id);
                self.deleted_users.insert(id, recorded.position);
            }
        }
    }

    fn session(&mut self, recorded: &RecordedEvent, event: SessionEvent) {
        let id = recorded.aggregate_id;
        match event {
            SessionEvent::SessionStarted { user, expires_at } => self.sessions.put(SessionRow {
                id: SessionId(id),
                user_id: user,
                position: recorded.position,
                started_at: recorded.recorded_at,
                expires_at,
                ended_at: None,
            }),
            SessionEvent::SessionRenewed { expires_at } => {
                if let Some(row) = self.sessions.change(id) {
                    row.expires_at = expires_at;
                }
            }
            SessionEvent::SessionEnded => {
                if let Some(row) = self.sessions.change(id) {
                    row.ended_at = Some(recorded.recorded_at);
                }
            }
        }
    }

    fn token(&mut self, recorded: &RecordedEvent, event: ApiTokenEvent) {
        match event {
            ApiTokenEvent::ApiTokenCreated(new) => self.tokens.put(ApiTokenRow {
                id: recorded.aggregate_id,
                user_id: new.user,
                name: new.name,
                secret_sha256: new.secret_sha256.to_string(),
                expires_at: new.expires_at,
                controller: new.controller,
                position: recorded.position,
                version: recorded.sequence,
                created_at: recorded.recorded_at,
            }),
            ApiTokenEvent::ApiTokenControllerNoted => {
                if let Some(row) = self.tokens.change(recorded.aggregate_id) {
                    (row.controller, row.version) = (Some(true), recorded.sequence);
                }
            }
            ApiTokenEvent::ApiTokenRevoked => self.tokens.remove(recorded.aggregate_id),
        }
    }
}
