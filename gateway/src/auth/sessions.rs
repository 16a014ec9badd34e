//! Live login sessions, looked up in the read model and remembered for less than a second, so that a logout, a
//! changed password or role and a deleted user are in force everywhere within one.

use signalbox_clock::Clock;
use signalbox_domain::kernel::UserId;
use signalbox_projections::identity::queries::{LiveSession, live_session};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Credential, Who, memory::Memory};

/// The sessions that this gateway has seen lately.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: PgPool,
    clock: Clock,
    known: Memory<Uuid, Option<Who>>,
}

impl Sessions {
    pub(crate) fn new(pool: PgPool, clock: Clock) -> Self {
        Self { pool, clock, known: Memory::default() }
    }

    /// The user of session `id`, unless it is void.
    pub(crate) async fn who(&self, id: Uuid) -> Result<Option<Who>, sqlx::Error> {
        let now = self.clock.now();
        if let Some(known) = self.known.recall(&id, now) {
            return Ok(known);
        }
        let who = live_session(&self.pool, id, now).await?.and_then(|live| who(id, live));
        self.known.remember(id, who.clone(), now);
        Ok(who)
    }

    /// Forgets what is remembered of session `id`.
    pub(crate) fn forget(&self, id: Uuid) {
        self.known.forget(&id);
    }
}

fn who(session: Uuid, live: LiveSession) -> Option<Who> {
    let LiveSession { user_id, number, email, username, role } = live;
    let (credential, role) = (Credential::Session(session), role.parse().ok()?);
    Some(Who { user: UserId(user_id), credential, number, email, username, role })
}
