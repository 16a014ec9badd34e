//! The newest values, for sockets.
//!
//! Follows the datapoint log by what command handlers announce; missed rows are read from the log. Values of a short
//! while become one frame, written once for all sockets. A socket that is behind by more than a few frames gets the
//! newest value of each channel instead: nothing is queued for anyone.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::StreamExt;
use serde::Serialize;
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::{ChunkPoint, Entry, decode_payload, head, micros, moment, read_points_after};
use signalbox_messaging::{Bus, LiveRow};
use signalbox_projections::monitoring::series::{self, SeriesError};
use sqlx::PgPool;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::catalog::{Catalog, Catalogs};

/// Frames that are kept for sockets that are a little behind.
const FRAMES: usize = 4;
/// Values of a message at most; a frame may be several.
const MESSAGE: usize = 1000;
/// How long values are gathered, and by how much longer for each socket, because writing to many takes time.
const GATHER: Duration = Duration::from_millis(25);
const GATHER_PER_SOCKET: Duration = Duration::from_micros(400);
/// How often the log is polled, in case announcements are lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Points that are read one after the other; when more are missing, the newest of each channel do.
const MISSED: i64 = 100_000;

/// A value as sockets show it.
#[derive(Debug, Clone, Copy)]
struct Value {
    point: ChunkPoint,
    rank: Rank,
    /// The frame that first showed it.
    frame: u64,
}

/// Order of the values of a channel: a value counts from when it was measured or from when it arrived, whichever was first,
/// so that one from a device whose clock is ahead does not hide those after it.
type Rank = (i64, i64, u32);

fn rank(point: &ChunkPoint, arrived: i64) -> Rank {
    (point.time.min(arrived), point.position, point.index)
}

#[derive(Debug)]
struct Inner<M> {
    /// Number of the newest frame.
    frame: u64,
    newest: HashMap<i32, Value>,
    /// Channels that the next frame shows.
    gathered: Vec<i32>,
    /// The last frames, the newest one last.
    frames: VecDeque<Vec<M>>,
}

/// The live values of this gateway, in messages of type `M`.
#[derive(Debug)]
pub(crate) struct LiveValues<M> {
    inner: Mutex<Inner<M>>,
    /// Number of the newest frame; its receivers are the sockets.
    moved: watch::Sender<u64>,
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'static str,
    datapoints: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Item<'a> {
    value: f64,
    event_public_id: &'a str,
    timestamp: String,
    experiment_public_id: Option<String>,
}

/// The services that live values are read by.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) pool: &'a PgPool,
    pub(crate) bus: &'a Bus,
    pub(crate) clock: &'a SharedServerClock,
    pub(crate) catalogs: &'a Catalogs,
}

impl<M> Default for LiveValues<M> {
    fn default() -> Self {
        let (frame, newest, gathered, frames) = Default::default();
        Self { inner: Mutex::new(Inner { frame, newest, gathered, frames }), moved: watch::Sender::default() }
    }
}

impl<M: Clone + From<String>> LiveValues<M> {
    /// Reports every new frame. Values are gathered as long as there is a receiver.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// The frames after `seen`, and the number of the newest one; `None` when not all of them are kept.
    pub(crate) fn frames_since(&self, seen: u64) -> Option<(Vec<M>, u64)> {
        let inner = self.inner();
        let behind = usize::try_from(inner.frame - seen.min(inner.frame)).ok()?;
        let skip = inner.frames.len().checked_sub(behind)?;
        Some((inner.frames.iter().skip(skip).flatten().cloned().collect(), inner.frame))
    }

    /// The newest values after frame `seen` on the channels that `is_asked` selects, and the number of the newest
    /// frame.
    pub(crate) fn newest_since(
        &self,
        seen: u64,
        catalog: &Catalog,
        now: DateTime<Utc>,
        is_asked: impl Fn(i32) -> bool,
    ) -> (Vec<M>, u64) {
        let inner = self.inner();
        let new = inner.newest.iter().filter(|(channel, value)| value.frame > seen && is_asked(**channel));
        let values: Vec<_> = new.map(|(channel, value)| (*channel, value.point)).collect();
        let frame = inner.frame;
        drop(inner);
        (messages(catalog, &values, now), frame)
    }

    /// Takes points that `arrived` at one moment, in microseconds since 1970.
    fn take(&self, points: impl Iterator<Item = (i32, ChunkPoint)>, arrived: i64) {
        let mut inner = self.inner();
        let next = inner.frame + 1;
        for (channel, point) in points {
            let (known, rank) = (inner.newest.get(&channel).copied(), rank(&point, arrived));
            // A late value does not replace a newer one.
            if known.is_none_or(|known| known.rank < rank) {
                if known.is_none_or(|known| known.frame < next) {
                    inner.gathered.push(channel);
                }
                inner.newest.insert(channel, Value { point, rank, frame: next });
            }
        }
    }

    /// Makes a frame of what was gathered.
    fn publish(&self, catalog: &Catalog, now: DateTime<Utc>) {
        let mut inner = self.inner();
        let gathered = std::mem::take(&mut inner.gathered);
        if gathered.is_empty() {
            return;
        }
        let values: Vec<_> = gathered
            .iter()
            .filter_map(|channel| inner.newest.get(channel).map(|value| (*channel, value.point)))
            .collect();
        let frame = messages(catalog, &values, now);
        inner.frames.push_back(frame);
        if inner.frames.len() > FRAMES {
            inner.frames.pop_front();
        }
        inner.frame += 1;
        self.moved.send_replace(inner.frame);
    }

    fn has_gathered(&self) -> bool {
        !self.inner().gathered.is_empty()
    }

    /// Without sockets nothing is kept: the next one starts with the next values.
    fn forget(&self) {
        let mut inner = self.inner();
        inner.newest.clear();
        inner.gathered.clear();
    }

    fn sockets(&self) -> u32 {
        u32::try_from(self.moved.receiver_count()).unwrap_or(u32::MAX)
    }

    fn inner(&self) -> MutexGuard<'_, Inner<M>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn messages<M: From<String>>(catalog: &Catalog, values: &[(i32, ChunkPoint)], now: DateTime<Utc>) -> Vec<M> {
    let item = |(channel, point): &(i32, ChunkPoint)| {
        let time = moment(point.time);
        Some(Item {
            value: point.value,
            event_public_id: &catalog.numbered(*channel)?.public_id,
            timestamp: time.to_rfc3339_opts(SecondsFormat::Micros, false),
            experiment_public_id: catalog.experiment_at(time, now).map(|span| span.id.to_string()),
        })
    };
    let message = |values: &[(i32, ChunkPoint)]| {
        let message =
            Message { r#type: "datapoints_batch", datapoints: values.iter().filter_map(item).collect() };
        serde_json::to_string(&message).ok().map(M::from)
    };
    values.chunks(MESSAGE).filter_map(message).collect()
}

/// Gathers values and makes frames of them until the gateway stops.
pub(crate) async fn follow<M: Clone + From<String>>(values: &LiveValues<M>, source: Source<'_>) {
    // Kept over interruptions: rows committed meanwhile are read from the log.
    let mut reached = None;
    loop {
        if let Err(error) = follow_once(values, source, &mut reached).await {
            tracing::warn!(%error, "live values are interrupted for a moment");
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn follow_once<M: Clone + From<String>>(
    values: &LiveValues<M>,
    source: Source<'_>,
    kept: &mut Option<i64>,
) -> Result<(), SeriesError> {
    let rows = source.bus.live_rows().await.map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
    let mut rows = std::pin::pin!(rows);
    let reached = match kept {
        Some(reached) => reached,
        None => kept.insert(head(source.pool).await?.position),
    };
    let mut frame_at = Instant::now();
    loop {
        let wait = if values.has_gathered() { frame_at } else { Instant::now() + POLL_INTERVAL };
        let next = timeout_at(wait, rows.next()).await;
        // Counted after the wait: a socket that opened meanwhile must see this very row.
        let sockets = values.sockets();
        match next {
            Ok(None) => return Ok(()),
            Ok(Some(row)) if sockets == 0 => {
                values.forget();
                *reached = (*reached).max(row.position);
            }
            Ok(Some(row)) => {
                let is_first = !values.has_gathered();
                *reached = take_row(values, source, row, *reached).await?;
                if is_first {
                    frame_at = Instant::now() + GATHER + GATHER_PER_SOCKET * sockets;
                }
            }
            Err(_) if !values.has_gathered() && sockets > 0 => {
                *reached = read_missed(values, source, *reached).await?;
                frame_at = Instant::now();
            }
            Err(_) => {}
        }
        if Instant::now() >= frame_at && values.has_gathered() {
            let catalog = source.catalogs.fresh().await?;
            values.publish(&catalog, source.clock.now());
        }
    }
}

async fn take_row<M: Clone + From<String>>(
    values: &LiveValues<M>,
    source: Source<'_>,
    row: LiveRow,
    reached: i64,
) -> Result<i64, SeriesError> {
    if row.position <= reached {
        return Ok(reached);
    }
    if row.position > reached + 1 {
        return read_missed(values, source, reached).await;
    }
    let points = decode_payload(&row.payload).unwrap_or_else(|error| {
        // The fold records such a row when it meets it in the log.
        tracing::warn!(%error, position = row.position, "values are not shown live, because they cannot be read");
        Vec::new()
    });
    let with_place = points.into_iter().zip(0..).map(|(point, index)| {
        let place = ChunkPoint { time: point.time, value: point.value, position: row.position, index };
        (point.channel, place)
    });
    let arrived = row.recorded_at.unwrap_or_else(|| source.clock.now());
    values.take(with_place, micros(arrived));
    Ok(row.position)
}

/// Takes what was not announced from the log.
async fn read_missed<M: Clone + From<String>>(
    values: &LiveValues<M>,
    source: Source<'_>,
    reached: i64,
) -> Result<i64, SeriesError> {
    let end = head(source.pool).await?;
    if end.position <= reached {
        return Ok(reached);
    }
    let yesterday = (source.clock.now() - TimeDelta::days(1)).date_naive();
    let mut connection = source.pool.acquire().await?;
    let rows = read_points_after(&mut connection, (reached, yesterday, end.points), MISSED, 1000).await?;
    drop(connection);
    let is_all = rows.last().is_some_and(|row| row.position >= end.position)
        && rows.first().is_some_and(|row| row.position == reached + 1);
    if !is_all {
        let latest = series::latest(source.pool).await?;
        let points = latest.into_iter().map(|point| (point.channel, point.point));
        values.take(points, micros(source.clock.now()));
        return Ok(end.position);
    }
    for row in &rows {
        if let Ok(Entry::Points(points)) = row.entry() {
            let present = points.into_iter().zip(0..).filter(|(point, _)| !point.is_cleared());
            let with_place = present.map(|(point, index)| {
                let place =
                    ChunkPoint { time: point.time, value: point.value, position: row.position, index };
                (point.channel, place)
            });
            values.take(with_place, micros(row.recorded_at));
        }
    }
    Ok(rows.last().map_or(reached, |row| row.position))
}
