//! Folds the whole log again beside the live chunks, compares, and swaps.
//!
//! Which rows a chunk has depends on when it was folded, so points are compared, not rows. The live fold waits only for the
//! swap.

use std::collections::{BTreeMap, HashSet};

use chrono::NaiveDate;
use futures::TryStreamExt;
use signalbox_datapoint_log::{codec::decode_chunk, head};
use sqlx::{Connection, Executor, PgConnection, PgPool, Row};

use super::{
    SeriesError,
    follow::{FoldStep, step_in},
    snapshot::{Progress, begin_fold},
};
use crate::{
    Leases, Watcher,
    rebuild::{Fate, lock_tables},
};

const BESIDE: &str = "read_rebuild_series";

/// What a rebuild did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesReport {
    /// Points folded.
    pub points: i64,
    /// Chunks and newest points that differed between those that were live and the new ones.
    pub differences: i64,
}

/// Rebuilds the chunks while the system serves; waits for another rebuild.
///
/// # Errors
/// [`SeriesError`]; the live chunks are untouched then.
pub async fn rebuild_series(pool: &PgPool) -> Result<SeriesReport, SeriesError> {
    rebuild_series_watched(pool, &|_, _| {}).await
}

/// [`rebuild_series`] that tells how many of how many points have been folded.
///
/// # Errors
/// [`SeriesError`].
pub async fn rebuild_series_watched(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    build(pool, Fate::Live, watcher).await
}

/// Folds the chunks anew and says how they differ from the live ones, which stay as they are; tells how many of how many
/// points have been folded.
///
/// # Errors
/// [`SeriesError`].
pub async fn compare_series_watched(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    build(pool, Fate::Dropped, watcher).await
}

async fn build(pool: &PgPool, fate: Fate, watcher: Watcher<'_>) -> Result<SeriesReport, SeriesError> {
    let _lease = Leases::new(pool).acquire("rebuild.datapoints").await;
    let mut connection = pool.acquire().await?.detach();
    let result = build_and_compare(&mut connection, fate, watcher).await;
    if result.is_err() || fate == Fate::Dropped {
        // The next rebuild would drop it too; if the database is away, that is what is left to do.
        let _ = connection.execute(drop_statement(BESIDE).as_str()).await;
    }
    result
}

fn drop_statement(schema: &str) -> String {
    format!("DROP SCHEMA IF EXISTS {schema} CASCADE")
}

async fn build_and_compare(
    connection: &mut PgConnection,
    fate: Fate,
    watcher: Watcher<'_>,
) -> Result<SeriesReport, SeriesError> {
    connection.execute(drop_statement(BESIDE).as_str()).await?;
    sqlx::query("SELECT create_series($1)").bind(BESIDE).execute(&mut *connection).await?;
    begin_where_the_log_begins(connection).await?;
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
    if fate == Fate::Live {
        // Every reader holds this one first.
        lock_tables(&mut transaction, &["series.progress".to_owned()]).await?;
        transaction.execute("DROP SCHEMA series CASCADE").await?;
        transaction.execute(format!("ALTER SCHEMA {BESIDE} RENAME TO series").as_str()).await?;
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

/// Retention may have dropped the first days.
async fn begin_where_the_log_begins(connection: &mut PgConnection) -> Result<(), SeriesError> {
    let statement = format!(
        "UPDATE {BESIDE}.progress p SET position = l.position - 1, total = l.total - l.points
           FROM (SELECT position, total, points FROM datapoint_log ORDER BY position LIMIT 1) l"
    );
    connection.execute(statement.as_str()).await?;
    Ok(())
}

/// Sums over points, by chunk, that do not depend on rows.
type Sums = BTreeMap<(i32, i32, NaiveDate), u64>;

async fn differences(connection: &mut PgConnection, is_comparable: bool) -> Result<i64, SeriesError> {
    if !is_comparable {
        // The live fold was behind: what it has not folded cannot be compared.
        return Ok(0);
    }
    let (live, rebuilt) = (sums(connection, "series").await?, sums(connection, BESIDE).await?);
    let keys: HashSet<_> = live.keys().chain(rebuilt.keys()).collect();
    let chunks = keys.into_iter().filter(|key| live.get(key) != rebuilt.get(key)).count() as i64;
    let latest: i64 = sqlx::query_scalar(&format!(
        "SELECT count(*) FROM ((TABLE series.latest EXCEPT TABLE {BESIDE}.latest)
            UNION ALL (TABLE {BESIDE}.latest EXCEPT TABLE series.latest)) AS difference"
    ))
    .fetch_one(connection)
    .await?;
    Ok(chunks + latest)
}

async fn sums(connection: &mut PgConnection, schema: &str) -> Result<Sums, SeriesError> {
    let mut sums = Sums::new();
    let sql = format!("SELECT channel, hour, day, points FROM {schema}.chunks");
    let mut rows = sqlx::query(&sql).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        let sum = sums.entry((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)).or_default();
        for point in decode_chunk(row.try_get(3)?)? {
            let mut mixed = point.time as u64 ^ point.value.to_bits().rotate_left(17);
            mixed ^= (point.position as u64).rotate_left(37) ^ u64::from(point.index).rotate_left(53);
            // Spread, so that the sum of two wrong points is not that of two right ones.
            mixed = (mixed ^ mixed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *sum = sum.wrapping_add(mixed ^ mixed >> 29);
        }
    }
    Ok(sums)
}
