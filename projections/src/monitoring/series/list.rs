use signalbox_boxed::boxed;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::micros;
use sqlx::{PgConnection, PgPool};

use super::{
    Datapoint, SeriesError, hour_of,
    hours::{Hour, Range, hours, keep_newest, newest_of_hour, oldest_of_hour},
    snapshot::{Snapshot, Tail},
};
use crate::page::{Listed as ListedRow, Order, Page, Sorting};

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

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The points of the page.
    pub points: Vec<Datapoint>,
    /// How many points there are on all pages.
    pub total: i64,
    /// Whether `total` is a guess: only of filtered lists of more than 100,000 points.
    pub is_estimated: bool,
}

impl ListedRow for Datapoint {
    // Hours are read one after the other from either end; any other order would read them all.
    const SORTING: Sorting = Sorting::newest_first(("timestamp", "time"), &[], "position");
}

/// A page of points and how many there are. It costs about what the hours of the page hold.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn list(
    pool: &PgPool,
    filter: ListFilter,
    order: Order,
    page: Page,
) -> Result<Listed, SeriesError> {
    let range = Range {
        channels: filter.channels,
        from: filter.from.map(micros),
        to: filter.to.map(micros),
        ..Range::default()
    };
    let mut snapshot = Snapshot::open(pool).await?;
    let mut tail = snapshot.tail(range.from).await?;
    tail.points.retain(|point| range.contains(point));
    let hours = all_hours(snapshot.connection(), &range, &tail, order).await?;
    let total = hours.iter().map(|hour| hour.count).sum::<i64>();
    let is_estimated = hours.iter().any(|hour| hour.is_estimated);

    let (mut skip, mut found) = (page.offset, Vec::new());
    for hour in hours {
        if !hour.is_estimated && skip >= hour.count {
            skip -= hour.count;
            continue;
        }
        let missing = page.limit as usize - found.len();
        let count = (skip as usize).saturating_add(missing);
        let points = first_of_hour(snapshot.connection(), &hour, &range, &tail, (order, count)).await?;
        let passed = skip.min(points.len() as i64);
        skip -= passed;
        found.extend(points.into_iter().skip(passed as usize).take(missing));
        if found.len() as i64 >= page.limit {
            break;
        }
    }
    snapshot.close();
    Ok(Listed { points: found, total, is_estimated })
}

/// An hour that has points in chunks or in the tail.
struct ListedHour {
    hour: i32,
    count: i64,
    is_estimated: bool,
    /// Whether some of its points are in chunks.
    is_folded: bool,
}

async fn all_hours(
    connection: &mut PgConnection,
    range: &Range,
    tail: &Tail,
    order: Order,
) -> Result<Vec<ListedHour>, SeriesError> {
    let mut all = BTreeMap::new();
    for folded in hours(connection, range, tail).await? {
        let Hour { hour, count, is_estimated, .. } = folded;
        all.insert(hour, ListedHour { hour, count, is_estimated, is_folded: true });
    }
    for point in &tail.points {
        let hour = hour_of(point.point.time);
        let unfolded = ListedHour { hour, count: 0, is_estimated: false, is_folded: false };
        all.entry(hour).or_insert(unfolded).count += 1;
    }
    let mut all: Vec<_> = all.into_values().collect();
    if order.is_descending() {
        all.reverse();
    }
    Ok(all)
}

/// The first `count` points of an hour in this order.
async fn first_of_hour(
    connection: &mut PgConnection,
    hour: &ListedHour,
    range: &Range,
    tail: &Tail,
    (order, count): (Order, usize),
) -> Result<Vec<Datapoint>, SeriesError> {
    let mut points = if !order.is_descending() {
        oldest_of_hour(connection, hour.hour, range, tail, count).await?.0
    } else {
        let is_in = |point: &&Datapoint| hour_of(point.point.time) == hour.hour;
        let mut points: Vec<_> = tail.points.iter().filter(is_in).copied().collect();
        if hour.is_folded {
            points.extend(newest_of_hour(connection, hour.hour, range, tail, count).await?);
        }
        keep_newest(&mut points, count);
        points
    };
    points.sort_unstable_by_key(|point| point.point.order());
    if order.is_descending() {
        points.reverse();
    }
    Ok(points)
}
