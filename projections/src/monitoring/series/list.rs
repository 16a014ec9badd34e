use std::{cmp::Reverse, collections::BTreeMap};

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::micros;
use sqlx::PgPool;

use super::{
    Datapoint, SeriesError, hour_of,
    hours::{Range, hours, keep_newest, newest_of_hour},
    snapshot::Snapshot,
};
use crate::page::Page;

/// Which points are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Integers of channels.
    pub channels: Option<Vec<i32>>,
    /// Measured at or after.
    pub from: Option<DateTime<Utc>>,
    /// Measured before.
    pub to: Option<DateTime<Utc>>,
}

/// A page of points, newest first, and how many there are. It costs about what the hours of the page hold.
///
/// # Errors
/// [`SeriesError`].
pub async fn list(
    pool: &PgPool,
    filter: ListFilter,
    page: Page,
) -> Result<(Vec<Datapoint>, i64), SeriesError> {
    let range = Range { channels: filter.channels, from: filter.from.map(micros), to: filter.to.map(micros) };
    let mut snapshot = Snapshot::open(pool).await?;
    let mut tail = snapshot.tail().await?;
    tail.points.retain(|point| range.contains(point));
    let mut in_tail: BTreeMap<Reverse<i32>, Vec<Datapoint>> = BTreeMap::new();
    for point in &tail.points {
        in_tail.entry(Reverse(hour_of(point.point.time))).or_default().push(*point);
    }
    let folded = hours(snapshot.connection(), &range, &tail).await?;
    let folded: BTreeMap<_, _> = folded.iter().map(|hour| (Reverse(hour.hour), hour.count)).collect();
    let total = folded.values().sum::<i64>() + tail.points.len() as i64;
    let mut all: Vec<_> = folded.keys().chain(in_tail.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();

    let (mut skip, mut found) = (page.offset, Vec::new());
    for hour in all {
        let new = in_tail.remove(&hour).unwrap_or_default();
        let count = folded.get(&hour).unwrap_or(&0) + new.len() as i64;
        if skip >= count {
            skip -= count;
            continue;
        }
        let missing = page.limit as usize - found.len();
        let wanted = (skip as usize).saturating_add(missing);
        let mut points = new;
        if folded.contains_key(&hour) {
            points.extend(newest_of_hour(snapshot.connection(), hour.0, &range, &tail, wanted).await?);
        }
        keep_newest(&mut points, wanted);
        points.sort_unstable_by_key(|point| Reverse(point.point.order()));
        found.extend(points.into_iter().skip(skip as usize).take(missing));
        skip = 0;
        if found.len() as i64 >= page.limit {
            break;
        }
    }
    snapshot.close().await?;
    Ok((found, total))
}
