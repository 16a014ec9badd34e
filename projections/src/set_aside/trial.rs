use std::collections::BTreeSet;

use signalbox_event_store::read_stream_from;
use sqlx::{Connection, PgConnection};

use super::{
    BATCH, Held, apply_each,
    table::{bump_revision, live_streams, note},
};
use crate::{Poison, Projection, StepError};

/// The treatment, in a rebuild, of streams that are set aside when it starts.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    tried: BTreeSet<(String, String)>,
    /// Streams that wait in the rebuilt tables.
    pub(crate) held: Held,
    /// Where those that were tried and cannot be applied begin to wait.
    pub(crate) poisons: Vec<Poison>,
}

impl Trial {
    /// Tries the streams that `P` has set aside on the empty tables in `schema`, and leaves them empty.
    pub(crate) async fn of<P: Projection>(
        connection: &mut PgConnection,
        schema: &str,
        indexes: &[String],
    ) -> Result<Self, StepError> {
        let tried = live_streams(connection, P::NAME).await?.into_iter().map(|(stream, _)| stream);
        let mut trial = Self { tried: tried.collect(), ..Self::default() };
        if trial.tried.is_empty() {
            return Ok(trial);
        }
        let mut transaction = connection.begin().await?;
        // They are made after the rebuild otherwise; an entry may be too large for one of them.
        for statement in indexes {
            sqlx::query(statement).execute(&mut *transaction).await?;
        }
        for (aggregate_type, id) in &trial.tried {
            let mut attempt = transaction.begin().await?;
            let (mut sequence, mut poison) = (1, None);
            while poison.is_none() {
                let stream = (aggregate_type.as_str(), id.as_str());
                let slice = read_stream_from(&mut attempt, stream, sequence, i64::MAX, BATCH).await?;
                if slice.count() == 0 {
                    break;
                }
                sequence += slice.count() as i64;
                (_, poison) = apply_each::<P>(&mut attempt, schema, &slice).await?;
            }
            attempt.rollback().await?;
            if let Some(poison) = poison {
                trial.held.insert(&poison.key);
                trial.poisons.push(poison);
            }
        }
        transaction.rollback().await?;
        Ok(trial)
    }

    /// Adds streams that were set aside live meanwhile.
    pub(crate) async fn renew(
        &mut self,
        connection: &mut PgConnection,
        name: &str,
    ) -> Result<(), sqlx::Error> {
        for (stream, position) in live_streams(connection, name).await? {
            if !self.tried.contains(&stream) {
                self.held.0.insert(stream, position);
            }
        }
        Ok(())
    }

    /// How many of the streams can be applied.
    pub(crate) fn applied_again(&self) -> usize {
        self.tried.len() - self.poisons.len()
    }

    /// The rebuilt tables are live: sets aside the streams as the trial found them.
    pub(crate) async fn conclude(
        &self,
        connection: &mut PgConnection,
        name: &str,
    ) -> Result<(), sqlx::Error> {
        let (types, ids): (Vec<_>, Vec<_>) = self.tried.iter().cloned().unzip();
        sqlx::query(
            "DELETE FROM read.poisonous_events p USING unnest($2::text[], $3::text[]) AS tried (type, id)
              WHERE p.projection = $1 AND p.aggregate_type = tried.type AND p.aggregate_id = tried.id",
        )
        .bind(name)
        .bind(types)
        .bind(ids)
        .execute(&mut *connection)
        .await?;
        for poison in &self.poisons {
            note(connection, name, poison).await?;
        }
        bump_revision(connection, name).await
    }
}
