use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_database::faults;
use signalbox_event_store::head_position;
use signalbox_metrics::{Standing, Work};
use sqlx::PgPool;

use crate::oldest_snapshot;

/// Kinds of work that waits or is being done, and where their read models show it by an index.
const WORK: [(&str, &str); 5] = [
    ("transfer", "SELECT count(*), min(created_at) FROM read.transfers WHERE phase <> 'done'"),
    ("webhook_delivery", "SELECT count(*), min(created_at) FROM read.deliveries WHERE due_at IS NOT NULL"),
    ("extraction", "SELECT count(*), min(created_at) FROM read.extraction_jobs WHERE due_at IS NOT NULL"),
    ("firmware", "SELECT count(*), min(updated_at) FROM read.firmware_updates WHERE work IS NOT NULL"),
    // Streams of read models, and events that workers have skipped.
    ("set_aside", "SELECT count(*), min(seen_at) FROM read.poisonous_events"),
];

/// Readers of the datapoint log, and their lag in points.
const DATAPOINTS: [(&str, &str); 3] = [
    ("series", "SELECT h.points - p.total FROM log_head h, series.progress p WHERE h.log = 'datapoints'"),
    (
        "rules",
        "SELECT h.points - (SELECT min(total) FROM ops.rule_shards) FROM log_head h WHERE h.log = 'datapoints'",
    ),
    (
        "alarms",
        "SELECT h.points - coalesce((SELECT total FROM ops.alarm_progress), 0) FROM log_head h WHERE h.log = 'datapoints'",
    ),
];

/// Positions of the read models, and their pending work at `now`; mailboxes are not included.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn standing(pool: &PgPool, now: DateTime<Utc>) -> Result<Standing, sqlx::Error> {
    let log = head_position(pool).await?;
    let projections = positions(pool).await?;
    let mut work = Vec::new();
    for (kind, sql) in WORK {
        let (count, oldest): (i64, Option<DateTime<Utc>>) = sqlx::query_as(sql).fetch_one(pool).await?;
        let oldest_seconds = oldest.map_or(0.0, |oldest| (now - oldest).as_seconds_f64().max(0.0));
        work.push(Work { kind, count, oldest_seconds });
    }
    let followers = followers(pool).await?;
    let mut datapoints_behind = Vec::new();
    for (reader, sql) in DATAPOINTS {
        datapoints_behind.push((reader, sqlx::query_scalar(sql).fetch_one(pool).await?));
    }
    let oldest_snapshot_seconds = oldest_snapshot(pool).await?.map_or(0.0, |oldest| oldest.seconds);
    let faults = faults(pool).await?.into_iter();
    let faults = faults.map(|fault| (fault.part, (now - fault.since).as_seconds_f64().max(0.0))).collect();
    Ok(Standing {
        log,
        projections,
        followers,
        datapoints_behind,
        work,
        mailboxes: None,
        oldest_snapshot_seconds,
        faults,
    })
}

/// Each projection and the position that it has reached.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn positions(pool: &PgPool) -> Result<Vec<(String, i64)>, sqlx::Error> {
    sqlx::query_as("SELECT projection, position FROM read.checkpoints ORDER BY 1").fetch_all(pool).await
}

/// The position of a reader of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLag {
    /// Kind and name, such as `projection.transfer.lag`.
    pub part: String,
    /// The position reached.
    pub position: i64,
    /// The remaining number of positions.
    pub behind: i64,
}

/// How far each part is that follows a log: read models, folds of datapoints, relays and the hash chain.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn log_lags(pool: &PgPool) -> Result<Vec<LogLag>, sqlx::Error> {
    let log = head_position(pool).await?;
    let points: i64 =
        sqlx::query_scalar("SELECT points FROM log_head WHERE log = 'datapoints'").fetch_one(pool).await?;
    let projections = positions(pool).await?;
    let folds: Vec<(String, i64)> = sqlx::query_as(
        "SELECT 'fold.series.lag', total FROM series.progress
          UNION ALL SELECT 'fold.rules.lag', min(total) FROM ops.rule_shards HAVING count(*) > 0
          UNION ALL SELECT 'fold.alarms.lag', total FROM ops.alarm_progress",
    )
    .fetch_all(pool)
    .await?;
    let of = |part: String, position: i64, head: i64| LogLag { part, position, behind: head - position };
    let projections = projections.into_iter().map(|(name, at)| of(format!("projection.{name}.lag"), at, log));
    let followers = followers(pool).await?.into_iter().map(|(name, at)| {
        of(if name == CHAIN { format!("{name}.lag") } else { format!("relay.{name}.lag") }, at, log)
    });
    let folds = folds.into_iter().map(|(part, at)| of(part, at, points));
    Ok(projections.chain(followers).chain(folds).collect())
}

/// Name of the hash chain among the followers of the log.
const CHAIN: &str = "chain";

async fn followers(pool: &PgPool) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let mut followers: Vec<(String, i64)> =
        sqlx::query_as("SELECT relay, position FROM ops.relay_checkpoint ORDER BY 1").fetch_all(pool).await?;
    let chain = sqlx::query_scalar("SELECT coalesce(max(last_position), 0) FROM log_chain").fetch_one(pool);
    followers.push((CHAIN.to_owned(), chain.await?));
    Ok(followers)
}
