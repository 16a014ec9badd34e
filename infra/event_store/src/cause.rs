use signalbox_boxed::boxed;
use signalbox_domain::kernel::{Decider, Metadata};
use sqlx::{PgPool, Row};
use uuid::Uuid;

/// Completes the `metadata` of a command on aggregate `id` at `version`: adds the causing event, and that event's
/// correlation and trace. A command without a cause starts a causal trace of its own, named after the command.
pub(crate) async fn complete<D: Decider>(
    pool: &PgPool,
    id: Uuid,
    version: i64,
    metadata: &Metadata,
) -> Result<Metadata, sqlx::Error> {
    let mut metadata = metadata.clone();
    if !metadata.correlation.is_empty() {
        return Ok(metadata);
    }
    let cause = match metadata.causation {
        Some(position) => {
            let at = format!("{CAUSE} WHERE position = $1");
            sqlx::query(&at).bind(position).fetch_optional(pool).await?
        }
        None if D::IS_ONE_TRACE => {
            let newest = format!("{CAUSE} WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence = $3");
            let newest = sqlx::query(&newest).bind(D::TYPE).bind(id.to_string()).bind(version);
            newest.fetch_optional(pool).await?
        }
        None => None,
    };
    metadata.correlation = metadata.command_id.simple().to_string();
    if let Some(cause) = cause {
        metadata.causation = Some(cause.try_get("position")?);
        metadata.correlation = cause.try_get::<Option<_>, _>("correlation")?.unwrap_or(metadata.correlation);
        metadata.traceparent = metadata.traceparent.or(cause.try_get("traceparent")?);
    }
    Ok(metadata)
}

const CAUSE: &str = "SELECT position, metadata->>'correlation' AS correlation, metadata->>'traceparent' AS traceparent FROM events";

/// The trace of what leads to a command on aggregate `id`, whose sender says no more of it than `causation`; see
/// [`Metadata::correlation`].
///
/// # Errors
/// The database's error.
pub async fn trace_of_cause<D: Decider>(
    pool: &PgPool,
    id: Uuid,
    causation: Option<i64>,
) -> Result<Option<String>, sqlx::Error> {
    match causation {
        Some(position) => trace_at(pool, position).await,
        None if D::IS_ONE_TRACE => trace_of_stream(pool, D::TYPE, id).await,
        None => Ok(None),
    }
}

/// The trace of the event at `position`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn trace_at(pool: &PgPool, position: i64) -> Result<Option<String>, sqlx::Error> {
    let found = sqlx::query_scalar("SELECT metadata->>'traceparent' FROM events WHERE position = $1");
    Ok(found.bind(position).fetch_optional(pool).await?.flatten())
}

/// The traces of the events at `positions` that have one, by position.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn traces_at(pool: &PgPool, positions: &[i64]) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT metadata->>'traceparent' FROM events
          WHERE position = ANY($1) AND metadata->>'traceparent' IS NOT NULL ORDER BY position",
    )
    .bind(positions)
    .fetch_all(pool)
    .await
}

/// The trace of the newest event of one aggregate.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn trace_of_stream(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
) -> Result<Option<String>, sqlx::Error> {
    let found = sqlx::query_scalar(
        "SELECT metadata->>'traceparent' FROM events
          WHERE aggregate_type = $1 AND aggregate_id = $2 ORDER BY sequence DESC LIMIT 1",
    );
    Ok(found.bind(aggregate_type).bind(id.to_string()).fetch_optional(pool).await?.flatten())
}
