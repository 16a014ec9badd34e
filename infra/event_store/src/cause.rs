use signalbox_domain::kernel::{Decider, Metadata};
use sqlx::{PgPool, Row};
use uuid::Uuid;

/// `metadata` of a command on aggregate `id` at `version`, with what its sender left open: the event that led to it, and the
/// correlation and the trace of that. What nothing led to begins a story of its own, named after the command.
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
        None if D::ONE_STORY => {
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
