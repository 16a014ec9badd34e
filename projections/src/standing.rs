use chrono::{DateTime, Utc};
use signalbox_metrics::{Standing, Work};
use sqlx::PgPool;

/// Kinds of work that waits or is being done, and where their read models show it by an index.
const WORK: [(&str, &str); 4] = [
    ("transfer", "SELECT count(*), min(created_at) FROM read.transfers WHERE phase <> 'done'"),
    ("webhook_delivery", "SELECT count(*), min(created_at) FROM read.deliveries WHERE due_at IS NOT NULL"),
    ("extraction", "SELECT count(*), min(created_at) FROM read.extraction_jobs WHERE due_at IS NOT NULL"),
    ("firmware", "SELECT count(*), min(updated_at) FROM read.firmware_updates WHERE work IS NOT NULL"),
];

/// Readers of the datapoint log, and by how many points they are behind.
const DATAPOINTS: [(&str, &str); 2] = [
    ("series", "SELECT h.points - p.total FROM log_head h, series.progress p WHERE h.log = 'datapoints'"),
    (
        "rules",
        "SELECT h.points - (SELECT min(total) FROM ops.rule_shards) FROM log_head h WHERE h.log = 'datapoints'",
    ),
];

/// How far the read models are, and what work they show at `now`; mailboxes are not asked.
///
/// # Errors
/// The database's error.
pub async fn standing(pool: &PgPool, now: DateTime<Utc>) -> Result<Standing, sqlx::Error> {
    let log =
        sqlx::query_scalar("SELECT position FROM log_head WHERE log = 'events'").fetch_one(pool).await?;
    let projections = sqlx::query_as("SELECT projection, position FROM read.checkpoints ORDER BY 1")
        .fetch_all(pool)
        .await?;
    let mut work = Vec::new();
    for (kind, sql) in WORK {
        let (count, oldest): (i64, Option<DateTime<Utc>>) = sqlx::query_as(sql).fetch_one(pool).await?;
        let oldest_seconds = oldest.map_or(0.0, |oldest| (now - oldest).as_seconds_f64().max(0.0));
        work.push(Work { kind, count, oldest_seconds });
    }
    let followers =
        sqlx::query_as("SELECT relay, position FROM ops.relay_checkpoint ORDER BY 1").fetch_all(pool).await?;
    let mut datapoints_behind = Vec::new();
    for (reader, sql) in DATAPOINTS {
        datapoints_behind.push((reader, sqlx::query_scalar(sql).fetch_one(pool).await?));
    }
    Ok(Standing { log, projections, followers, datapoints_behind, work, mailboxes: None })
}
