use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use signalbox_projections::identity::queries::note_token_uses;
use sqlx::PgPool;
use uuid::Uuid;

/// When tokens were used last, until that is written down.
#[derive(Debug, Default)]
pub(crate) struct TokenUses(Mutex<HashMap<Uuid, DateTime<Utc>>>);

impl TokenUses {
    pub(super) fn note(&self, token: Uuid, at: DateTime<Utc>) {
        self.uses().insert(token, at);
    }

    /// Writes them down. Those that could not be written are kept for the next call.
    ///
    /// # Errors
    /// The database's error.
    pub(crate) async fn write(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let used = mem::take(&mut *self.uses());
        let (tokens, times): (Vec<_>, Vec<_>) = used.iter().map(|(token, at)| (*token, *at)).unzip();
        let written = note_token_uses(pool, &tokens, &times).await;
        if written.is_err() {
            let mut newer = self.uses();
            for (token, at) in used {
                newer.entry(token).or_insert(at);
            }
        }
        written
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<Uuid, DateTime<Utc>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
