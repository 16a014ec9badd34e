//! The traces of appended batches, for later processing steps. They are recorded in the batch's own transaction, only
//! while tracing is enabled; they carry no data and are deleted soon.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_database::delete_in_batches;
use sqlx::PgPool;

/// Appends batches as `append_datapoints` does, and notes the traces of those that have one.
pub(crate) const APPEND_TRACED: &str = "
    WITH arrival AS MATERIALIZED (SELECT coalesce($4, clock_timestamp()) AS arrived_at),
    done AS MATERIALIZED (SELECT * FROM arrival, append_datapoints($1, $2, $3, arrived_at)),
    noted AS (
        INSERT INTO ops.datapoint_traces (position, first_index, points, traceparent, noted_at)
        SELECT d.log_position, d.first_index, n.points, n.traceparent, d.arrived_at
          FROM (SELECT *, row_number() OVER () AS idx FROM done) d
          JOIN unnest($2, $5::text[]) WITH ORDINALITY AS n (points, traceparent, idx) USING (idx)
         WHERE n.traceparent IS NOT NULL AND NOT d.is_duplicate
        ON CONFLICT DO NOTHING)
    SELECT log_position, log_day, first_index, is_duplicate, arrived_at FROM done";

/// The trace that brought point `index` of the row at `position`, if it was noted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn trace_of_point(pool: &PgPool, position: i64, index: u32) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT traceparent FROM ops.datapoint_traces
          WHERE position = $1 AND first_index <= $2 AND $2 < first_index + points",
    )
    .bind(position)
    .bind(i32::try_from(index).unwrap_or(i32::MAX))
    .fetch_optional(pool)
    .await
}

/// Forgets what was noted before `time`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_traces(pool: &PgPool, time: DateTime<Utc>) -> Result<(), sqlx::Error> {
    delete_in_batches(pool, "ops.datapoint_traces", "t.noted_at < $1", time).await.map(drop)
}
