//! Packs the roll-ups of hours in the background, and reads hours by their packs.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use futures::TryStreamExt;
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgConnection, PgPool};

use super::{
    DAY, SeriesError, columns,
    packs::{self, Group, late_before, start_over},
    rollups,
    snapshot::{Progress, begin_fold},
    summary::{Figures, Summary},
};
use crate::runner::END_HUNG;

/// Groups that are packed in one transaction.
const AT_ONCE: i64 = 500;
/// Groups of a day of the log that are put in line in one transaction.
const IN_LINE: i64 = 50_000;

#[derive(Debug, FromRow)]
struct Standing {
    #[row(flatten)]
    progress: Progress,
    packed: i64,
    ended_before: Option<NaiveDate>,
    has_late: bool,
    /// Whether there are roll-ups of all points that are folded.
    is_rolled: bool,
}

/// Packs some hours that are in line; when there are none, puts those of the next day of the log in line that has ended. False when
/// there is nothing to do.
pub(super) async fn step(pool: &PgPool) -> Result<bool, SeriesError> {
    let is_due: bool = sqlx::query_scalar(
        "SELECT k.position <> p.position OR NOT k.has_late OR EXISTS (SELECT FROM series.unpacked_hours) OR EXISTS (
                SELECT FROM series.rollups r WHERE r.day >= coalesce(k.ended_before, '-infinity') AND r.day < p.day)
           FROM series.progress p CROSS JOIN series.pack_progress k",
    )
    .fetch_one(pool)
    .await?;
    if !is_due {
        return Ok(false);
    }
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    let (name, value) = END_HUNG;
    let settings = format!("SET LOCAL synchronous_commit = off; SET LOCAL {name} = '{value}'");
    transaction.execute(settings.as_str()).await?;
    begin_fold(&mut transaction).await?;
    let standing: Standing = sqlx::query_as(
        "SELECT p.position, p.day, p.total, k.position AS packed, k.ended_before, k.has_late,
                r.position = p.position AND NOT EXISTS (SELECT FROM series.unrolled_days) AS is_rolled
           FROM series.progress p CROSS JOIN series.rollup_progress r CROSS JOIN series.pack_progress k",
    )
    .fetch_one(&mut *transaction)
    .await?;
    if !standing.is_rolled {
        return Ok(false);
    }
    if standing.packed != standing.progress.position {
        let has_started = start_over(&mut transaction, standing.progress.position).await?;
        if has_started {
            transaction.commit().await?;
        }
        return Ok(has_started);
    }
    let groups: Vec<Group> = sqlx::query_as(
        "DELETE FROM series.unpacked_hours WHERE ctid = ANY(ARRAY(SELECT ctid FROM series.unpacked_hours LIMIT $1))
         RETURNING channel, number, day",
    )
    .bind(AT_ONCE)
    .fetch_all(&mut *transaction)
    .await?;
    let has_done = if groups.is_empty() {
        put_in_line(&mut transaction, &standing).await?
    } else {
        pack(&mut transaction, &groups).await?;
        true
    };
    transaction.commit().await?;
    Ok(has_done)
}

/// Puts groups of the next day of the log in line that has ended, then those of the present day that came late before there were packs;
/// false when there are none.
async fn put_in_line(connection: &mut PgConnection, standing: &Standing) -> Result<bool, SeriesError> {
    let today = standing.progress.day;
    let next: Option<NaiveDate> = sqlx::query_scalar(
        "SELECT min(day) FROM series.rollups WHERE day >= coalesce($1, '-infinity'::date) AND day < $2",
    )
    .bind(standing.ended_before)
    .bind(today)
    .fetch_one(&mut *connection)
    .await?;
    if next.is_none() && standing.has_late {
        return Ok(false);
    }
    let line = sqlx::query(
        "INSERT INTO series.unpacked_hours (channel, number, day)
         SELECT r.channel, r.number, r.day FROM series.rollups r
          WHERE r.day = $1 AND r.span = 24 AND r.number < $2 AND NOT EXISTS (
                SELECT FROM series.packed_hours p WHERE p.channel = r.channel AND p.number = r.number AND p.day = r.day)
          LIMIT $3",
    )
    .bind(next.unwrap_or(today))
    .bind(next.map_or_else(|| late_before(today), |_| i32::MAX))
    .bind(IN_LINE);
    connection.execute("SAVEPOINT line; SET LOCAL statement_timeout = '20s'").await?;
    let added = match line.execute(&mut *connection).await {
        Ok(added) => added.rows_affected() as i64,
        // Tens of millions of hours came on one day, most of which were put in line when they came.
        Err(error) if is_canceled(&error) => {
            tracing::warn!(day = ?next, "some hours of a day stay without packs: it takes too long to find them");
            connection.execute("ROLLBACK TO SAVEPOINT line").await?;
            0
        }
        Err(error) => return Err(error.into()),
    };
    if added < IN_LINE {
        sqlx::query(
            "UPDATE series.pack_progress SET ended_before = coalesce($1, ended_before), has_late = has_late OR $1 IS NULL",
        )
        .bind(next.and_then(|day| day.succ_opt()))
        .execute(connection)
        .await?;
    }
    Ok(true)
}

fn is_canceled(error: &sqlx::Error) -> bool {
    const CANCELED: &str = "57014";
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == CANCELED)
}

async fn pack(connection: &mut PgConnection, groups: &[Group]) -> Result<(), SeriesError> {
    let mut hours: BTreeMap<Group, BTreeMap<usize, Summary>> = BTreeMap::new();
    for row in rollups::of_groups(&mut *connection, groups).await? {
        let group = Group { channel: row.channel, number: row.number.div_euclid(DAY), day: row.day };
        let hour = row.number.rem_euclid(DAY) as usize;
        hours.entry(group).or_default().insert(hour, row.summary());
    }
    Ok(packs::store(connection, &hours).await?)
}

/// Calls `add` with each hour of `channels` in `ranges`, which are in order, and its figures; one hour may have several.
pub(super) async fn each_hour(
    connection: &mut PgConnection,
    channels: &[i32],
    ranges: &[(i32, i32)],
    figures: Figures,
    mut add: impl FnMut(i32, i32, &Summary),
) -> Result<(), SeriesError> {
    let is_within = |hour: i32| {
        let place = ranges.partition_point(|(first, _)| *first <= hour);
        place > 0 && hour < ranges[place - 1].1
    };
    let mut unpacked: BTreeMap<i32, Vec<Group>> = BTreeMap::new();
    // One after the other: decades of many channels are hundreds of megabytes.
    let mut rows = packs::rows(&mut *connection, channels, ranges, figures);
    while let Some(row) = rows.try_next().await? {
        if row.is_whole() {
            let hours = row.summaries().filter(|(hour, _)| is_within(*hour));
            hours.for_each(|(hour, summary)| add(row.group.channel, hour, &summary));
        } else {
            unpacked.entry(row.group.channel).or_default().push(row.group);
        }
    }
    drop(rows);
    for (channel, groups) in unpacked {
        let hours = columns::of_groups(&mut *connection, channel, &groups, figures).await?;
        let hours = hours.iter().filter(|(hour, _)| is_within(*hour));
        hours.for_each(|(hour, summary)| add(channel, *hour, summary));
    }
    Ok(())
}
