use signalbox_boxed::boxed;
use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use signalbox_datapoint_log::{ChunkPoint, micros, moment};
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};

use super::{
    Datapoint, HOUR, SeriesError, current, hour_of,
    hours::{Range, newest_of_hour},
    ranked::{Ranked, current_of},
    snapshot::Snapshot,
};

#[derive(Debug, FromRow)]
pub(super) struct LatestRow {
    channel: i32,
    time: i64,
    value: f64,
    day: NaiveDate,
    position: i64,
    index: i32,
}

impl From<LatestRow> for Datapoint {
    fn from(row: LatestRow) -> Self {
        let LatestRow { channel, time, value, day, position, index } = row;
        let point = ChunkPoint { time, value, position, index: index as u32 };
        Self { channel, day, point }
    }
}

/// The current point of each channel that has any, by channel: the newest by the earlier of when it was measured and when it
/// arrived.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn latest(pool: &PgPool) -> Result<Vec<Datapoint>, SeriesError> {
    let mut snapshot = Snapshot::open(pool).await?;
    let tail = snapshot.tail(None).await?;
    let folded = current::folded(snapshot.connection(), &tail).await?;
    snapshot.close();
    let arrived = |point: &Datapoint| tail.arrivals.get(&point.point.position).copied();
    let new = tail.points.iter().map(|point| Ranked::new(*point, arrived(point)));
    let current = current_of(folded.into_iter().chain(new));
    let mut found: Vec<_> = current.into_values().map(|ranked| ranked.point).collect();
    found.sort_unstable_by_key(|point| point.channel);
    Ok(found)
}

/// The newest point of each of `channels` that was measured at `time` or before, by channel; it costs about what an hour of
/// each of them holds.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn newest_until(
    pool: &PgPool,
    channels: &[i32],
    time: DateTime<Utc>,
) -> Result<Vec<Datapoint>, SeriesError> {
    let end = micros(time).saturating_add(1);
    let mut snapshot = Snapshot::open(pool).await?;
    let mut tail = snapshot.tail(None).await?;
    tail.points.retain(|point| point.point.time < end && channels.contains(&point.channel));
    let mut newest: BTreeMap<i32, Datapoint> = BTreeMap::new();
    let mut keep = |point: Datapoint| {
        let known = newest.entry(point.channel).or_insert(point);
        if known.point.order() < point.point.order() {
            *known = point;
        }
    };
    // An hour may hold only points that are younger, or were deleted since: then the one before it is looked at.
    let mut before: BTreeMap<i32, i32> =
        channels.iter().map(|channel| (*channel, hour_of(end - 1).saturating_add(1))).collect();
    while !before.is_empty() {
        let hours = hours_before(snapshot.connection(), &before).await?;
        before.clear();
        for (channel, hour) in hours {
            let from = Some(i64::from(hour) * HOUR);
            let range = Range { channels: Some(vec![channel]), from, to: Some(end), ..Range::default() };
            let found = newest_of_hour(snapshot.connection(), hour, &range, &tail, 1).await?;
            if found.is_empty() {
                before.insert(channel, hour);
            }
            found.into_iter().for_each(&mut keep);
        }
    }
    snapshot.close();
    tail.points.into_iter().for_each(keep);
    Ok(newest.into_values().collect())
}

/// The newest hour of each channel in `before` that is before the one given with it; channels without one are left out.
async fn hours_before(
    connection: &mut PgConnection,
    before: &BTreeMap<i32, i32>,
) -> Result<Vec<(i32, i32)>, SeriesError> {
    let (channels, hours): (Vec<i32>, Vec<i32>) = before.iter().unzip();
    let found = sqlx::query_as(
        "SELECT requested.channel, newest.hour FROM unnest($1, $2) AS requested (channel, hour) CROSS JOIN LATERAL (
             SELECT c.hour FROM series.chunks c WHERE c.channel = requested.channel AND c.hour < requested.hour
              ORDER BY c.hour DESC LIMIT 1) AS newest",
    );
    Ok(found.bind(channels).bind(hours).fetch_all(connection).await?)
}

/// When the newest of all points was measured.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn last_time(pool: &PgPool) -> Result<Option<DateTime<Utc>>, SeriesError> {
    Ok(latest(pool).await?.iter().map(|point| point.point.time).max().map(moment))
}

/// The newest folded points of `channels`.
pub(super) async fn folded_latest(
    connection: &mut PgConnection,
    channels: &[i32],
) -> Result<Vec<Datapoint>, SeriesError> {
    let rows: Vec<LatestRow> = sqlx::query_as(
        "SELECT channel, time, value, day, position, index FROM series.latest WHERE channel = ANY($1)",
    )
    .bind(channels)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Datapoint::from).collect())
}
