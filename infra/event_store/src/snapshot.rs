//! Snapshots spare long streams from being replayed whole. They are derived: one that is missing, of another
//! state version or unreadable is ignored.

use serde_json::Value;
use signalbox_domain::kernel::Decider;
use sqlx::PgPool;
use uuid::Uuid;

/// The newest usable state of an aggregate and its version.
pub(crate) async fn load<D: Decider>(pool: &PgPool, id: Uuid) -> Result<Option<(D, i64)>, sqlx::Error> {
    let row: Option<(i64, Value)> = sqlx::query_as(
        "SELECT sequence, state FROM snapshots
          WHERE aggregate_type = $1 AND aggregate_id = $2 AND state_version = $3",
    )
    .bind(D::TYPE)
    .bind(id.to_string())
    .bind(D::STATE_VERSION)
    .fetch_optional(pool)
    .await?;
    Ok(row.and_then(|(sequence, state)| Some((serde_json::from_value(state).ok()?, sequence))))
}

/// Keeps `state` as of `sequence`, unless a newer one of this state version is there.
pub(crate) async fn save<D: Decider>(
    pool: &PgPool,
    id: Uuid,
    sequence: i64,
    state: Value,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO snapshots AS s (aggregate_type, aggregate_id, state_version, sequence, state)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (aggregate_type, aggregate_id)
         DO UPDATE SET state_version = excluded.state_version, sequence = excluded.sequence, state = excluded.state
          WHERE s.state_version <> excluded.state_version OR s.sequence < excluded.sequence",
    )
    .bind(D::TYPE)
    .bind(id.to_string())
    .bind(D::STATE_VERSION)
    .bind(sequence)
    .bind(state)
    .execute(pool)
    .await?;
    Ok(())
}
