//! Which values are older than they are kept: whole days of the log, and values of single channels on days that others need.
//!
//! A channel's own number of days precedes the general one. A day of the log is dropped when it and all days before it hold
//! nothing that is kept, so the log stays without gaps; on any other day, values are removed channel by channel, see `removal`.
//! A channel has values on a day exactly if it has roll-ups of that day in `series.rollups`. While the read model of channels lacks
//! something that the log has, nothing is overdue.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{NaiveDate, TimeDelta};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

use super::{
    SeriesError,
    kept::Removal,
    own_numbers::{await_own_numbers, is_kept, require_own_numbers},
    retention::{LoggedDay, days_before},
};

/// Days with values that one run takes from a channel.
const DAYS: usize = 2;

/// Values that are older than they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Days of which nothing is kept, from the first day of the log on.
    pub days: Vec<LoggedDay>,
    /// Values on other days, oldest first.
    pub removals: Vec<Removal>,
    /// Days with further ones, which a later run takes.
    pub later: usize,
}

impl Overdue {
    /// Whether nothing is due.
    pub fn is_empty(&self) -> bool {
        self.days.is_empty() && self.removals.is_empty()
    }
}

/// The oldest day that is kept for `days` on `today`.
pub fn oldest_kept(today: NaiveDate, days: u32) -> NaiveDate {
    today.checked_sub_signed(TimeDelta::days(i64::from(days))).unwrap_or_default()
}

#[derive(Debug, FromRow)]
struct OverdueRow {
    day: NaiveDate,
    /// Days that the channels' values are kept.
    keep: i32,
    channels: Vec<i32>,
}

/// All values that are overdue on `today`, where values are kept for `days`, 0 for ever.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn overdue(pool: &PgPool, today: NaiveDate, days: u32) -> Result<Overdue, SeriesError> {
    let (droppable, rows) = find(pool, today, days).await?;
    Ok(without_dropped(droppable, rows, 0))
}

/// Those of one run: of each channel, values of two days at most.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn next_run(pool: &PgPool, today: NaiveDate, days: u32) -> Result<Overdue, SeriesError> {
    let (droppable, rows) = find(pool, today, days).await?;
    Ok(one_run(droppable, rows))
}

fn one_run(mut droppable: Vec<LoggedDay>, rows: Vec<OverdueRow>) -> Overdue {
    let taken = first_with_values(&droppable);
    let mut later: BTreeSet<NaiveDate> = droppable.split_off(taken).iter().map(|day| day.day).collect();
    let mut seen: HashMap<i32, usize> = HashMap::new();
    let (run, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| {
        let days = seen.entry(row.keep).or_default();
        *days += 1;
        *days <= DAYS
    });
    later.extend(rest.iter().map(|row| row.day));
    without_dropped(droppable, run, later.len())
}

/// How many of the first `days` one run drops: up to [`DAYS`] that hold values, and empty ones among them.
fn first_with_values(days: &[LoggedDay]) -> usize {
    let with_values = days.iter().enumerate().filter(|(_, day)| day.points > 0);
    let end = with_values.map(|(place, _)| place + 1).nth(DAYS - 1);
    end.unwrap_or(days.len())
}

/// Values on days that are dropped need no removal.
fn without_dropped(days: Vec<LoggedDay>, rows: Vec<OverdueRow>, later: usize) -> Overdue {
    let mut removals: BTreeMap<NaiveDate, Vec<i32>> = BTreeMap::new();
    let dropped = days.last().map(|last| last.day);
    for row in rows.into_iter().filter(|row| Some(row.day) > dropped) {
        removals.entry(row.day).or_default().extend(row.channels);
    }
    let removal = |(day, mut channels): (NaiveDate, Vec<i32>)| {
        channels.sort_unstable();
        Removal { day, channels }
    };
    Overdue { days, removals: removals.into_iter().map(removal).collect(), later }
}

/// The days that may be dropped, and what is overdue besides, by day.
async fn find(
    pool: &PgPool,
    today: NaiveDate,
    days: u32,
) -> Result<(Vec<LoggedDay>, Vec<OverdueRow>), SeriesError> {
    let known = require_own_numbers(pool).await;
    let found = find_shown(pool, today, days).await?;
    match known {
        Ok(()) => Ok(found),
        Err(SeriesError::ChannelsBehind | SeriesError::ChannelsSetAside)
            if found.0.is_empty() && found.1.is_empty() =>
        {
            Ok(found)
        }
        Err(SeriesError::ChannelsBehind) => {
            await_own_numbers(pool).await?;
            find_shown(pool, today, days).await
        }
        Err(error) => Err(error),
    }
}

/// The same, as the read model of channels shows it.
async fn find_shown(
    pool: &PgPool,
    today: NaiveDate,
    days: u32,
) -> Result<(Vec<LoggedDay>, Vec<OverdueRow>), SeriesError> {
    let all = match days {
        0 => Vec::new(),
        days => days_before(pool, oldest_kept(today, days)).await?,
    };
    let count = all.len();
    let mut droppable = Vec::new();
    for day in all {
        if is_kept(pool, today, day.day).await? {
            break;
        }
        droppable.push(day);
    }
    // Channels without a number of their own have overdue values beside these only where a day was not dropped.
    let is_blocked = droppable.len() < count;
    Ok((droppable, overdue_rows(pool, (today, days), is_blocked).await?))
}

async fn overdue_rows(
    pool: &PgPool,
    (today, days): (NaiveDate, u32),
    is_blocked: bool,
) -> Result<Vec<OverdueRow>, SeriesError> {
    // A value is measured no later than ten minutes after its arrival, and its day of arrival may be a day behind: the number of
    // its day of measurement bounds what is read of a channel.
    let rows = sqlx::query_as(
        "SELECT r.day, c.keep, array_agg(DISTINCT r.channel) AS channels
           FROM (SELECT number, coalesce(retention_days, $2::int) AS keep FROM read.channels
                  WHERE retention_days IS NOT NULL OR $3::bool) AS c
          CROSS JOIN LATERAL (
                SELECT s.channel, s.day FROM series.rollups s
                 WHERE s.channel = c.number AND s.span = 24 AND s.number <= $1::date - c.keep - DATE '1970-01-01' + 2
                   AND s.day < $1::date - c.keep OFFSET 0) AS r
          WHERE c.keep > 0 AND r.day < (SELECT day FROM series.progress)
            AND (SELECT position FROM series.rollup_progress) = (SELECT position FROM series.progress)
            AND NOT EXISTS (SELECT FROM ops.value_removals v WHERE v.day = r.day AND r.channel = ANY(v.channels))
          GROUP BY r.day, c.keep ORDER BY r.day, c.keep",
    )
    .bind(today)
    .bind(i32::try_from(days).unwrap_or(i32::MAX))
    .bind(is_blocked && days > 0)
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u64) -> NaiveDate {
        NaiveDate::default() + chrono::Days::new(number)
    }

    fn due(points: &[i64]) -> Vec<LoggedDay> {
        (0..).zip(points).map(|(number, points)| LoggedDay { day: day(number), points: *points }).collect()
    }

    fn row(number: u64, keep: i32, channels: &[i32]) -> OverdueRow {
        OverdueRow { day: day(number), keep, channels: channels.to_vec() }
    }

    #[test]
    fn a_run_drops_two_days_with_values() {
        for (points, expected) in [
            (&[][..], 0),
            (&[5], 1),
            (&[5, 5], 2),
            (&[5, 5, 5], 2),
            (&[0, 5, 0, 0, 5, 0, 5], 5),
            (&[0, 0, 0], 3),
        ] {
            assert_eq!(first_with_values(&due(points)), expected, "{points:?}");
        }
    }

    #[test]
    fn a_run_takes_two_days_of_each_number_and_none_twice() {
        let rows = vec![
            row(0, 7, &[4]),
            row(1, 30, &[2, 9]),
            row(1, 7, &[4]),
            row(2, 30, &[2]),
            row(2, 7, &[4]),
            row(3, 30, &[9]),
        ];
        let run = one_run(due(&[5]), rows);
        let removals = vec![
            Removal { day: day(1), channels: vec![2, 4, 9] },
            Removal { day: day(2), channels: vec![2] },
        ];
        assert_eq!(run, Overdue { days: due(&[5]), removals, later: 2 });
    }
}
