//! Events of the log that a read model lacks, for decisions by it that cannot be undone.

use signalbox_boxed::boxed;
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

/// Positions that are looked through for an event of one kind. The runner stores its checkpoint more often.
const LOOKED_THROUGH: i64 = 10_000;

/// Why a read model does not show all that the log holds of one kind of aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Its events are not applied yet.
    Behind,
    /// A stream is set aside, because an event of it cannot be applied.
    SetAside,
}

/// Why the read model of `projection` does not show all events of the aggregates of type `aggregate`; `None` if it does, and then so does
/// a later statement.
///
/// # Errors
/// The database's error.
pub async fn lack(
    executor: impl PgExecutor<'_>,
    projection: &str,
    aggregate: &str,
) -> Result<Option<Lack>, sqlx::Error> {
    let (is_behind, is_set_aside): (bool, bool) = sqlx::query_as(
        "SELECT CASE WHEN head.position - seen.position > $3 THEN true
                     ELSE EXISTS (SELECT FROM events e WHERE e.position > seen.position AND e.aggregate_type = $2) END,
                EXISTS (SELECT FROM read.poisonous_events p
                         WHERE p.projection = $1 AND coalesce(p.aggregate_type, $2) = $2)
           FROM log_head head,
                (SELECT coalesce((SELECT position FROM read.checkpoints WHERE projection = $1), 0) AS position) seen
          WHERE head.log = 'events'",
    )
    .bind(projection)
    .bind(aggregate)
    .bind(LOOKED_THROUGH)
    .fetch_one(executor)
    .await?;
    Ok(match (is_set_aside, is_behind) {
        (true, _) => Some(Lack::SetAside),
        (false, true) => Some(Lack::Behind),
        (false, false) => None,
    })
}

/// The aggregates of type `aggregate` with events that the stored checkpoint of `projection` does not include, at most `limit`. The others
/// are shown up to date by a later statement.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unapplied_streams(
    pool: &PgPool,
    projection: &str,
    aggregate: &str,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT DISTINCT e.aggregate_id::uuid FROM events e
          WHERE e.aggregate_type = $2
            AND e.position > coalesce((SELECT position FROM read.checkpoints WHERE projection = $1), 0)
          LIMIT $3",
    )
    .bind(projection)
    .bind(aggregate)
    .bind(limit)
    .fetch_all(pool)
    .await
}
