//! Removes the values of channels from days of the log that others still need: values that are too old, and those of channels that
//! were deleted with their values.
//!
//! A removal is recorded in `ops.value_removals`, then done in bounded steps, each a transaction of its own: first the chunks of
//! some channels are deleted and their roll-ups moved, then rows of the log are rewritten, where a removed value leaves its
//! place empty, so that the ids of the others stay. A process that crashes leaves the record, and the next step continues. A
//! rebuild leaves out the channels of a recorded removal. Processes may take steps at the same time: a process that rewrites rows of a
//! day holds its record from before they are read, because rows that are written back as they were would bring removed values back.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use signalbox_boxed::boxed;
use signalbox_datapoint_log::clear_points;
use sqlx::{PgConnection, PgPool};

use super::{
    SeriesError,
    fold::renew_latest,
    follow::{FoldStep, step_in},
    kept::{Removal, Retired, drop_rollups_of_deleted, retire},
    overdue::oldest_kept,
    own_numbers::{await_own_numbers, require_own_numbers},
    retention::note_run,
    snapshot::{begin_fold, exclude_rebuild},
};

/// Channels of one step.
const CHANNELS: i64 = 100;
/// Days whose removal is recorded at once.
const DAYS: i64 = 100;

/// Records `removals`, and the run if it is one.
///
/// # Errors
/// [`SeriesError`]; nothing is recorded then.
#[boxed]
pub async fn record_removals(pool: &PgPool, removals: &[Removal], is_run: bool) -> Result<(), SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    exclude_rebuild(&mut transaction).await?;
    for removal in removals {
        // Rows of the log are rewritten from the first one on again, for the channels that are added. This waits for a step that
        // rewrites some of them now.
        sqlx::query(
            "INSERT INTO ops.value_removals AS v (day, channels) VALUES ($1, $2::int[])
                 ON CONFLICT (day) DO UPDATE SET channels = v.channels || excluded.channels, position = 0",
        )
        .bind(removal.day)
        .bind(&removal.channels)
        .execute(&mut *transaction)
        .await?;
    }
    if is_run {
        note_run(&mut transaction).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Records the removal of values of channels that were deleted with them, of some days at most, and removes roll-ups of theirs whose
/// values are gone already. False when nothing of them is left but what is being removed.
///
/// # Errors
/// [`SeriesError`]; the next call finds the rest.
#[boxed]
pub async fn remove_deleted(pool: &PgPool) -> Result<bool, SeriesError> {
    let found: Vec<(NaiveDate, Vec<i32>)> = sqlx::query_as(
        "SELECT r.day, array_agg(DISTINCT r.channel) AS channels
           FROM (SELECT number FROM read.channels WHERE values_deleted) AS c
          CROSS JOIN LATERAL (SELECT s.channel, s.day FROM series.rollups s
                               WHERE s.channel = c.number AND s.span = 24 OFFSET 0) AS r
          WHERE (SELECT position FROM series.rollup_progress) = (SELECT position FROM series.progress)
            AND NOT EXISTS (SELECT FROM ops.value_removals v WHERE v.day = r.day AND r.channel = ANY(v.channels))
          GROUP BY r.day ORDER BY r.day LIMIT $1",
    )
    .bind(DAYS)
    .fetch_all(pool)
    .await?;
    if !found.is_empty() {
        let removals: Vec<_> = found.into_iter().map(|(day, channels)| Removal { day, channels }).collect();
        record_removals(pool, &removals, false).await?;
        return Ok(true);
    }
    drop_rollups_of_deleted(pool).await
}

/// One step of the recorded removals, on `today`, where values are kept for `days`; false when there are none. Channels whose
/// values are kept by now, because their number was raised, are left out as far as they have been untouched.
///
/// While it is not known what channels' own numbers keep, those that were deleted with their values go on alone.
///
/// # Errors
/// [`SeriesError`]; the step is taken again then.
#[boxed]
pub async fn continue_removal(pool: &PgPool, today: NaiveDate, days: u32) -> Result<bool, SeriesError> {
    let kept = (today, days);
    let outcome = match next_step(pool, kept, Removed::Due).await {
        Err(SeriesError::ChannelsBehind) => match await_own_numbers(pool).await {
            Ok(()) => next_step(pool, kept, Removed::Due).await,
            Err(error) => Err(error),
        },
        outcome => outcome,
    };
    match outcome {
        Err(error @ (SeriesError::ChannelsBehind | SeriesError::ChannelsSetAside)) => {
            if next_step(pool, kept, Removed::Deleted).await? { Ok(true) } else { Err(error) }
        }
        outcome => outcome,
    }
}

/// Which channels of a recorded removal are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removed {
    /// All that are still due, for which their own numbers have to be known.
    Due,
    /// Those that were deleted with their values. The others are left out as far as they are untouched, and found overdue again.
    Deleted,
}

async fn next_step(pool: &PgPool, kept: (NaiveDate, u32), which: Removed) -> Result<bool, SeriesError> {
    let next: Option<(NaiveDate, Vec<i32>, i64)> = sqlx::query_as(
        "SELECT day, channels, position FROM ops.value_removals v
          WHERE NOT $1 OR EXISTS (SELECT FROM read.channels c WHERE c.values_deleted AND c.number = ANY(v.channels))
          ORDER BY day LIMIT 1",
    )
    .bind(which == Removed::Deleted)
    .fetch_optional(pool)
    .await?;
    let Some((day, channels, position)) = next else { return Ok(false) };
    if !remove_chunks(pool, (day, &channels), kept, which).await? {
        rewrite(pool, (day, &channels), position).await?;
    }
    Ok(true)
}

/// Removes the chunks of some of `channels` on `day`; false when there are none.
async fn remove_chunks(
    pool: &PgPool,
    (day, channels): (NaiveDate, &[i32]),
    kept: (NaiveDate, u32),
    which: Removed,
) -> Result<bool, SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    begin_fold(&mut transaction).await?;
    exclude_rebuild(&mut transaction).await?;
    // Deletions of these values that are still to be folded belong into the roll-ups.
    let mut days = HashSet::new();
    while step_in(&mut transaction, "series", &mut days).await? != FoldStep::Idle {}
    let some: Vec<i32> = sqlx::query_scalar(
        "SELECT u.channel FROM unnest($2::int[]) AS u (channel)
          WHERE EXISTS (SELECT FROM series.chunks c WHERE c.channel = u.channel AND c.day = $1) LIMIT $3",
    )
    .bind(day)
    .bind(channels)
    .bind(CHANNELS)
    .fetch_all(&mut *transaction)
    .await?;
    if some.is_empty() {
        // The log is left, to be rewritten without these values.
        transaction.commit().await?;
        return Ok(false);
    }
    let (due, spared) = split_by_due(&mut transaction, day, &some, kept, which).await?;
    if !spared.is_empty() {
        sqlx::query(
            "UPDATE ops.value_removals SET channels = ARRAY(SELECT unnest(channels) EXCEPT SELECT unnest($2::int[]))
              WHERE day = $1",
        )
        .bind(day)
        .bind(&spared)
        .execute(&mut *transaction)
        .await?;
    }
    retire(&mut transaction, Retired::Of(day, &due)).await?;
    sqlx::query("DELETE FROM series.chunks WHERE day = $1 AND channel = ANY($2::int[])")
        .bind(day)
        .bind(&due)
        .execute(&mut *transaction)
        .await?;
    let newest: Vec<i32> = sqlx::query_scalar(
        "WITH latest AS (DELETE FROM series.latest WHERE day = $1 AND channel = ANY($2::int[]) RETURNING channel)
         SELECT channel FROM latest UNION SELECT channel FROM series.current WHERE day = $1 AND channel = ANY($2::int[])",
    )
    .bind(day)
    .bind(&due)
    .fetch_all(&mut *transaction)
    .await?;
    renew_latest(&mut transaction, "series", &newest, NaiveDate::default()).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Those of `channels` whose values of `day` go, and the others.
async fn split_by_due(
    connection: &mut PgConnection,
    day: NaiveDate,
    channels: &[i32],
    (today, days): (NaiveDate, u32),
    which: Removed,
) -> Result<(Vec<i32>, Vec<i32>), SeriesError> {
    let deleted: HashSet<i32> = sqlx::query_scalar(
        "SELECT number FROM read.channels WHERE number = ANY($1::int[]) AND values_deleted",
    )
    .bind(channels)
    .fetch_all(&mut *connection)
    .await?
    .into_iter()
    .collect();
    if which == Removed::Deleted || deleted.len() == channels.len() {
        return Ok(channels.iter().copied().partition(|channel| deleted.contains(channel)));
    }
    require_own_numbers(&mut *connection).await?;
    let own: Vec<(i32, i32)> = sqlx::query_as(
        "SELECT number, retention_days FROM read.channels WHERE number = ANY($1::int[]) AND retention_days IS NOT NULL",
    )
    .bind(channels)
    .fetch_all(connection)
    .await?;
    let own: HashMap<i32, u32> =
        own.into_iter().map(|(channel, days)| (channel, days.unsigned_abs())).collect();
    let is_due = |channel: &i32| {
        let days = own.get(channel).copied().unwrap_or(days);
        deleted.contains(channel) || (days > 0 && day < oldest_kept(today, days))
    };
    Ok(channels.iter().copied().partition(is_due))
}

/// Rewrites some rows of `day` after `position` without the values of `channels`; after the last one, the removal is done.
async fn rewrite(
    pool: &PgPool,
    (day, channels): (NaiveDate, &[i32]),
    position: i64,
) -> Result<(), SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    // Held until the rows are written: another process might add channels and rewrite the same rows after they were read here.
    let recorded: Option<(Vec<i32>, i64)> =
        sqlx::query_as("SELECT channels, position FROM ops.value_removals WHERE day = $1 FOR UPDATE")
            .bind(day)
            .fetch_optional(&mut *transaction)
            .await?;
    if recorded.as_ref().is_none_or(|(now, at)| now != channels || *at != position) {
        return Ok(transaction.rollback().await?);
    }
    let next = clear_points(&mut transaction, (day, channels), position).await?;
    let written = match next {
        Some(next) => {
            sqlx::query("UPDATE ops.value_removals SET position = $2 WHERE day = $1").bind(day).bind(next)
        }
        None => sqlx::query("DELETE FROM ops.value_removals WHERE day = $1").bind(day),
    };
    written.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(())
}
