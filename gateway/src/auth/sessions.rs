//! Live login sessions, looked up in the read model and remembered for less than a second, so that a logout, a
//! changed password or role and a deleted user are in force everywhere within one.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_clock::Clock;
use signalbox_domain::{identity::Role, kernel::UserId};
use signalbox_projections::identity::queries::{LiveSession, live_session};
use sqlx::PgPool;
use uuid::Uuid;

/// How long an answer is remembered.
const MEMORY: TimeDelta = TimeDelta::milliseconds(800);
/// Sessions remembered at most; then all are forgotten.
const MAX_REMEMBERED: usize = 100_000;

/// A user with a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: UserId,
    pub(crate) session: Uuid,
    pub(crate) number: i64,
    pub(crate) email: String,
    pub(crate) username: String,
    pub(crate) role: Role,
}

/// The sessions that this gateway has seen lately.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: PgPool,
    clock: Clock,
    remembered: Mutex<HashMap<Uuid, (DateTime<Utc>, Option<Who>)>>,
}

impl Sessions {
    pub(crate) fn new(pool: PgPool, clock: Clock) -> Self {
        Self { pool, clock, remembered: Mutex::default() }
    }

    /// The user of session `id`, unless it is void.
    pub(crate) async fn who(&self, id: Uuid) -> Result<Option<Who>, sqlx::Error> {
        let now = self.clock.now();
        if let Some(known) = self.recall(id, now) {
            return Ok(known);
        }
        let who = live_session(&self.pool, id, now).await?.and_then(|live| who(id, live));
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(id, (now, who.clone()));
        Ok(who)
    }

    /// Forgets what is remembered of session `id`.
    pub(crate) fn forget(&self, id: Uuid) {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn recall(&self, id: Uuid, now: DateTime<Utc>) -> Option<Option<Who>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, who) = remembered.get(&id)?;
        (now - at < MEMORY).then(|| who.clone())
    }
}

fn who(session: Uuid, live: LiveSession) -> Option<Who> {
    let LiveSession { user_id, number, email, username, role } = live;
    Some(Who { user: UserId(user_id), session, number, email, username, role: role.parse().ok()? })
}
