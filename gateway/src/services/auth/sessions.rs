//! Live login sessions, looked up in the read model and remembered for less than a second, so that a logout, a
//! changed password or role and a deleted user are in force everywhere within one.

use signalbox_clock::Clock;
use signalbox_database::SharedServerClock;
use signalbox_projections::identity::queries::{LiveSession, live_session};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Credential, CurrentUser, memory::Memory};

/// The sessions that this gateway has seen lately.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: PgPool,
    clock: Clock,
    server_clock: SharedServerClock,
    known: Memory<Uuid, Option<CurrentUser>>,
}

impl Sessions {
    pub(crate) fn new(pool: PgPool, clock: Clock, server_clock: SharedServerClock) -> Self {
        Self { pool, clock, server_clock, known: Memory::default() }
    }

    /// The user of session `id`, unless it is void.
    pub(crate) async fn user(&self, id: Uuid) -> Result<Option<CurrentUser>, sqlx::Error> {
        let now = self.clock.monotonic();
        if let Some(known) = self.known.recall(&id, now) {
            return Ok(known);
        }
        let user = live_session(&self.pool, id.into(), self.server_clock.now())
            .await?
            .and_then(|live| user(id, live));
        self.known.remember(id, user.clone(), now);
        Ok(user)
    }

    /// Forgets what is remembered of session `id`.
    pub(crate) fn forget(&self, id: Uuid) {
        self.known.forget(&id);
    }
}

fn user(session: Uuid, live: LiveSession) -> Option<CurrentUser> {
    let LiveSession { user_id, number, email, username, role } = live;
    let (credential, role) = (Credential::Session(session), role.known().ok()?);
    Some(CurrentUser { id: user_id, credential, number, email, username, role, controller: Some(false) })
}
