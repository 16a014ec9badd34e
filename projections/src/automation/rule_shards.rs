//! The shards in which rules are evaluated, and how far each is in the datapoint log.

use chrono::NaiveDate;
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::{PgPool, postgres::types::PgInterval};
use uuid::Uuid;

/// Number of shards, as in the migration that makes them.
pub const SHARDS: i32 = 16;

/// A position in the datapoint log.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Row that was judged last.
    pub position: i64,
    /// Its day, or an earlier one.
    pub day: NaiveDate,
    /// Points up to it.
    pub total: i64,
}

/// A shard that a process holds.
#[derive(Debug, Clone, FromRow)]
pub struct Shard {
    /// Its number, from 0.
    pub shard: i32,
    /// As in [`Mark`].
    pub position: i64,
    /// As in [`Mark`].
    pub day: NaiveDate,
    /// As in [`Mark`].
    pub total: i64,
}

/// Claims the share of the process `me` for the length of `lease`, and renews what it holds.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn claim_shards(pool: &PgPool, me: Uuid, lease: PgInterval) -> Result<Vec<Shard>, sqlx::Error> {
    sqlx::query_as("SELECT shard, position, day, total FROM ops.claim_rule_shards($1, $2)")
        .bind(me)
        .bind(lease)
        .fetch_all(pool)
        .await
}

/// Moves `shards` that stand at the position `from`; the number of those that did.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn advance_shards(pool: &PgPool, shards: &[i32], from: i64, to: Mark) -> Result<u64, sqlx::Error> {
    // Does not wait for the disk: values that are judged again fire nothing again.
    let moved = sqlx::query(
        "UPDATE ops.rule_shards SET position = $3, day = $4, total = $5
           FROM (SELECT set_config('synchronous_commit', 'off', true)) AS setting
          WHERE shard = ANY($1) AND position = $2",
    )
    .bind(shards)
    .bind(from)
    .bind(to.position)
    .bind(to.day)
    .bind(to.total)
    .execute(pool)
    .await?;
    Ok(moved.rows_affected())
}
