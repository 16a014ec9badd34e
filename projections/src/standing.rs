use chrono::{DateTime, Utc};
use signalbox_metrics::{Standing, Work};
use sqlx::PgPool;

/// Kinds of work that waits or is being done, and where their read models show it by an index.
const WORK: [(&str, &str); 3] = [
    ("transfer", "SELECT count(*), min(created_at) FROM read.transfers WHERE phase <> 'done'"),
    ("webhook_delivery", "SELECT count(*), min(created_at) FROM read.deliveries WHERE due_at IS NOT NULL"),
    ("extraction", "SELECT count(*), min(created_at) FROM read.extraction_jobs WHERE due_at IS NOT NULL"),
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
    Ok(Standing { log, projections, work, mailboxes: None })
}
