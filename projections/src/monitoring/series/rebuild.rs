//! Folds the whole log again beside the live chunks, compares, and swaps.
//!
//! The rows of a chunk depend on the times of its folds, so points are compared, not rows. The live fold waits only
//! for the swap.

use signalbox_boxed::boxed;
use std::collections::{BTreeMap, HashSet};

use chrono::NaiveDate;
use futures::TryStreamExt;
use signalbox_datapoint_log::{codec::decode_chunk, head};
use sqlx::{Connection, Executor, PgConnection, PgPool, Row};

use super::{
    SeriesError,
    chunk::readable,
    follow::{FoldStep, step_in},
    incomplete::recheck_skipped,
    kept::retire_recorded,
    rollups,
    snapshot::{Progress, REBUILD_LEASE, begin_fold},
};
use crate::{
    Leases, Watcher,
    rebuild::{RebuildMode, lock_tables},
};

const BESIDE: &str = "read_rebuild_series";

/// Result of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesReport {
    /// Points folded.
    pub points: i64,
    /// Chunks and newest points that differed between the live ones and the new ones.
    pub differences: i64,
}

/// Rebuilds the chunks while the system serves; waits for another rebuild.
///
/// # Errors
/// [`SeriesError`]; the live chunks are untouched then.
#[boxed]
pub async fn rebuild_series(pool: &PgPool) -> Result<SeriesReport, SeriesError> {
    rebuild_series_watched(pool, &|_, _| {}).await
}

/// Like [`rebuild_series`]; reports how many of how many points have been folded.
///
/// # Errors
/// [`SeriesError`].
pub async fn rebuild_series_watched(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    build(pool, RebuildMode::Swap, watcher).await
}

/// Folds the chunks again and reports how they differ from the live ones, which stay unchanged; reports how many of
/// how many points have been folded.
///
/// # Errors
/// [`SeriesError`].
pub async fn compare_series_watched(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    build(pool, RebuildMode::Compare, watcher).await
}

async fn build(pool: &PgPool, mode: RebuildMode, watcher: Watcher<'_>) -> Result<SeriesReport, SeriesError> {
    let _lease = Leases::new(pool).acquire(REBUILD_LEASE).await;
    let mut connection = pool.acquire().await?.detach();
    let result = build_and_compare(&mut connection, mode, watcher).await;
    if result.is_err() || mode == RebuildMode::Compare {
        // Best effort if the database is down: the next rebuild drops it too.
        let _ = connection.execute(drop_statement(BESIDE).as_str()).await;
    }
    result
}

fn drop_statement(schema: &str) -> String {
    format!("DROP SCHEMA IF EXISTS {schema} CASCADE")
}

async fn build_and_compare(
    connection: &mut PgConnection,
    mode: RebuildMode,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    connection.execute(drop_statement(BESIDE).as_str()).await?;
    sqlx::query("SELECT create_series($1)").bind(BESIDE).execute(&mut *connection).await?;
    sqlx::query("SELECT create_series_current($1)").bind(BESIDE).execute(&mut *connection).await?;
    Progress::begin(connection, BESIDE).await?;
    let mut days = HashSet::new();
    let all = head(&mut *connection).await?.points;
    while fold(connection, &mut days).await? != FoldStep::Idle {
        let total = Progress::read(connection, BESIDE).await?.total;
        watcher(total, all.max(total));
    }
    let mut transaction = connection.begin().await?;
    begin_fold(&mut transaction).await?;
    while step_in(&mut transaction, BESIDE, &mut days).await? != FoldStep::Idle {}
    let live = Progress::read(&mut transaction, "series").await?;
    let rebuilt = Progress::read(&mut transaction, BESIDE).await?;
    let differences = differences(&mut transaction, rebuilt.position == live.position).await?;
    if mode == RebuildMode::Swap {
        // Every reader holds this one first.
        lock_tables(&mut transaction, &["series.progress".to_owned()]).await?;
        retire_recorded(&mut transaction).await?;
        transaction.execute("DROP SCHEMA series CASCADE").await?;
        transaction.execute(format!("ALTER SCHEMA {BESIDE} RENAME TO series").as_str()).await?;
        recheck_skipped(&mut transaction).await?;
    }
    transaction.commit().await?;
    Ok(SeriesReport { points: rebuilt.total, differences })
}

async fn fold(connection: &mut PgConnection, days: &mut HashSet<NaiveDate>) -> Result<FoldStep, SeriesError> {
    let mut transaction = connection.begin().await?;
    transaction.execute("SET LOCAL synchronous_commit = off").await?;
    let step = step_in(&mut transaction, BESIDE, days).await?;
    transaction.commit().await?;
    Ok(step)
}

/// Sums over points, by chunk, that do not depend on rows.
type Sums = BTreeMap<(i32, i32, NaiveDate), u64>;

async fn differences(connection: &mut PgConnection, is_comparable: bool) -> Result<i64, SeriesError> {
    if !is_comparable {
        // The live fold lagged: points that it has not folded cannot be compared.
        return Ok(0);
    }
    let (live, rebuilt) = (sums(connection, "series").await?, sums(connection, BESIDE).await?);
    let keys: HashSet<_> = live.keys().chain(rebuilt.keys()).collect();
    let chunks = keys.into_iter().filter(|key| live.get(key) != rebuilt.get(key)).count() as i64;
    let mut points = 0;
    for table in ["latest", "current"] {
        let sql = format!(
            "SELECT count(*) FROM ((TABLE series.{table} EXCEPT TABLE {BESIDE}.{table})
                UNION ALL (TABLE {BESIDE}.{table} EXCEPT TABLE series.{table})) AS difference"
        );
        points += sqlx::query_scalar::<_, i64>(&sql).fetch_one(&mut *connection).await?;
    }
    Ok(chunks + points + rollups::differences(connection, BESIDE).await?)
}

async fn sums(connection: &mut PgConnection, schema: &str) -> Result<Sums, SeriesError> {
    let mut sums = Sums::new();
    let sql = format!("SELECT channel, hour, day, points FROM {schema}.chunks");
    let mut rows = sqlx::query(&sql).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        let sum = sums.entry((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)).or_default();
        // One that is damaged differs from any that is not.
        for point in
            readable(decode_chunk(row.try_get(3)?), row.try_get(0)?, row.try_get(1)?).unwrap_or_default()
        {
            let mut mixed = point.time as u64 ^ point.value.to_bits().rotate_left(17);
            mixed ^= (point.position as u64).rotate_left(37) ^ u64::from(point.index).rotate_left(53);
            // Spread, so that the sum of two wrong points is not that of two right ones.
            mixed = (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *sum = sum.wrapping_add(mixed ^ mixed >> 29);
        }
    }
    Ok(sums)
}
