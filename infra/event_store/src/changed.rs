//! Which resources changed in a range of the log, and the parts of their first event that say whose they are.

use signalbox_boxed::boxed;
use signalbox_domain::kernel::UserId;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

/// A stream with events in a range of the log.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ChangedStream {
    /// Position of its newest event in the range.
    pub position: i64,
    /// Its type.
    pub aggregate_type: String,
    /// Its key.
    pub aggregate_id: Uuid,
    /// Version after that event.
    pub version: i64,
    /// The integer that clients of service 1 know it by.
    pub number: Option<i64>,
    /// The user that it was made for.
    pub owner: Option<UserId>,
    /// The webhook or contact that its deliveries are for.
    pub receiver: Option<Uuid>,
    /// Whether it is a dashboard that everybody saw before or sees after its events in the range.
    pub is_shared: bool,
}

/// The streams of `aggregates` that have events after position `after` up to `last`, by the position of the newest of these.
/// The caller bounds the range.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn changed_between(
    pool: &PgPool,
    (after, last): (i64, i64),
    aggregates: &[&str],
) -> Result<Vec<ChangedStream>, sqlx::Error> {
    sqlx::query_as(
        "SELECT c.position, c.aggregate_type, c.aggregate_id::uuid AS aggregate_id, c.version,
                (f.payload->>'number')::bigint AS number,
                coalesce(f.payload->>'owner', f.payload->>'user')::uuid AS owner,
                CASE c.aggregate_type WHEN 'delivery' THEN coalesce(f.payload->>'webhook', f.payload->>'contact')::uuid END AS receiver,
                coalesce(c.aggregate_type = 'dashboard' AND (before.is_global OR after.is_global), false) AS is_shared
           FROM (SELECT aggregate_type, aggregate_id, max(position) AS position, max(sequence) AS version,
                        min(sequence) AS since
                   FROM events WHERE position > $1 AND position <= $2 AND aggregate_type = ANY($3)
                  GROUP BY aggregate_type, aggregate_id) AS c
           JOIN events f ON f.aggregate_type = c.aggregate_type AND f.aggregate_id = c.aggregate_id AND f.sequence = 1
           LEFT JOIN LATERAL (
                SELECT (payload->>'is_global')::boolean AS is_global FROM events e
                 WHERE c.aggregate_type = 'dashboard' AND e.aggregate_type = 'dashboard'
                   AND e.aggregate_id = c.aggregate_id AND e.sequence < c.since AND payload ? 'is_global'
                 ORDER BY e.sequence DESC LIMIT 1) AS before ON true
           LEFT JOIN LATERAL (
                SELECT (payload->>'is_global')::boolean AS is_global FROM events e
                 WHERE c.aggregate_type = 'dashboard' AND e.aggregate_type = 'dashboard'
                   AND e.aggregate_id = c.aggregate_id AND e.sequence <= c.version AND payload ? 'is_global'
                 ORDER BY e.sequence DESC LIMIT 1) AS after ON true
          ORDER BY c.position",
    )
    .bind(after)
    .bind(last)
    .bind(aggregates)
    .fetch_all(pool)
    .await
}
