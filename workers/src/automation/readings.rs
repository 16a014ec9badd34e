//! Reports values of sensors to webhooks: the first one at once, then the newest one every five seconds.
//!
//! Reads the datapoint log from its progress on, in the order of arrival: the time of measurement does not matter, so a
//! device whose clock is wrong is reported like any other, and late values count. Sends `Report`; the aggregate admits one
//! report in five seconds, whatever the number of workers. The stored progress stays behind the values that wait for the
//! end of their window, so a restart reads them again and loses none. Without an enabled subscription to readings, the
//! worker is idle; values that arrived before the subscription are skipped.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use signalbox_database::ops::readings_progress::{self, ReadingsProgress};
use signalbox_datapoint_log::{
    IdKey, LogEnd, LogRow, Origin, Place, end_at, head, read_after, read_points_after, read_row,
};
use signalbox_domain::automation::{DatapointPlace, Reading, ReadingCommand, ReportWindow, ReportedReading};
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    automation::readings::{readings, readings_subscribed_since},
    monitoring::queries::{SensorChannel, sensors},
};
use sqlx::PgPool;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, automation::rules::device::Devices};

/// Channels that are reported at the same time.
const CONCURRENT: usize = 64;
/// Points and rows of the log that are read at once.
const POINTS: i64 = 50_000;
const ROWS: i64 = 5_000;
/// Clocks of processes may differ by this much: reading starts this long before a subscription.
const CLOCKS: TimeDelta = TimeDelta::minutes(1);

/// The reports of values.
#[derive(Debug, Default)]
pub struct Readings {
    /// The progress of this process; `None` if it has to be loaded.
    follower: Mutex<Option<Follower>>,
}

impl Worker for Readings {
    const NAME: &'static str = "readings";

    fn period(&self) -> Duration {
        Duration::from_millis(250)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        matches!(wakeup, Wakeup::DatapointsAppended { .. })
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(50)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut known = self.follower.lock().await;
        let Some(progress) = progress(&context.pool).await? else {
            *known = None;
            return Ok(false);
        };
        let mut follower = match known.take().filter(|follower| follower.since == progress.since) {
            Some(follower) => follower,
            None => Follower::load(context, progress).await?,
        };
        // After an error it is unknown which values were reported, so the next step loads that again.
        let Step { has_more, is_current } = follower.step(context).await?;
        *known = is_current.then_some(follower);
        Ok(has_more)
    }
}

/// The start of the subscription is stored, so that a later change of a subscription causes no gap.
async fn progress(pool: &PgPool) -> Result<Option<ReadingsProgress>, WorkerError> {
    let noted = readings_progress::readings_progress(pool).await?;
    match (readings_subscribed_since(pool).await?, noted) {
        (Some(_), Some(noted)) => Ok(Some(noted)),
        (Some(since), None) => {
            readings_progress::begin(pool, since).await?;
            Ok(Some(ReadingsProgress { since, position: None, day: None, total: None }))
        }
        (None, Some(_)) => {
            readings_progress::end(pool).await?;
            Ok(None)
        }
        (None, None) => Ok(None),
    }
}

/// A value that may be reported.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    place: Place,
    channel: i32,
    value: f64,
    origin: Origin,
    recorded_at: DateTime<Utc>,
    /// The log before its row.
    before: LogEnd,
}

/// Result of a step.
struct Step {
    has_more: bool,
    /// Whether this process's record of earlier reports is valid.
    is_current: bool,
}

#[derive(Debug)]
struct Follower {
    since: DateTime<Utc>,
    /// Rows up to this position existed when reading started: those before `since` are skipped. A later row counts
    /// whatever its time, because the clock of the process that recorded it may be wrong.
    known: i64,
    /// All up to here has been read.
    read: LogEnd,
    /// The stored part of that.
    stored: i64,
    /// By the channel's integer.
    windows: HashMap<i32, ReportWindow<Arrived>>,
    /// The last reports when this began, by channel.
    reported: HashMap<Uuid, (DatapointPlace, DateTime<Utc>)>,
}

impl Follower {
    async fn load(context: &Context, progress: ReadingsProgress) -> Result<Self, WorkerError> {
        let ReadingsProgress { since, position, day, total } = progress;
        let (read, known) = match (position, day, total) {
            (Some(position), Some(day), Some(points)) => (LogEnd { position, day, points }, 0),
            _ => (end_at(&context.pool, since - CLOCKS).await?, head(&context.pool).await?.position),
        };
        let reported = readings(&context.pool).await?;
        let reported = reported.into_iter().map(|row| (row.id.0, (row.place(), row.reported_at))).collect();
        Ok(Self { since, known, read, stored: position.unwrap_or(-1), windows: HashMap::new(), reported })
    }

    async fn step(&mut self, context: &Context) -> Result<Step, WorkerError> {
        let LogEnd { position, day, points } = self.read;
        let mut connection = context.pool.acquire().await?;
        let mut rows = read_points_after(&mut connection, (position, day, points), POINTS, ROWS).await?;
        drop(connection);
        if rows.is_empty() {
            // Retention may have dropped rows, and with them more points than are read at once.
            rows = read_after(&context.pool, position, day, 1).await?;
        }
        let has_more =
            rows.last().is_some_and(|last| last.total - points >= POINTS || rows.len() as i64 >= ROWS);
        if rows.is_empty() && self.windows.values().all(|window| window.waiting().next().is_none()) {
            return Ok(Step { has_more, is_current: true });
        }
        let sensors = sensors(&context.pool).await?;
        let sensors: HashMap<_, _> = sensors.into_iter().map(|sensor| (sensor.number, sensor)).collect();
        // Pending values of a deleted channel are not reported.
        self.windows.retain(|channel, _| sensors.contains_key(channel));
        let now = context.server_time().await?;
        for row in &rows {
            self.read_row(row, &sensors, now);
        }
        let is_current = self.report(context, &sensors, now).await?;
        self.store(&context.pool).await?;
        Ok(Step { has_more, is_current })
    }

    fn read_row(&mut self, row: &LogRow, sensors: &HashMap<i32, SensorChannel>, now: DateTime<Utc>) {
        let before =
            LogEnd { position: row.position - 1, day: row.day, points: row.total - i64::from(row.points) };
        self.read = LogEnd { position: row.position, day: row.day, points: row.total };
        if row.position <= self.known && row.recorded_at < self.since {
            return;
        }
        let batches = row.batches().unwrap_or_else(|error| {
            tracing::warn!(%error, "values of an unreadable row are not reported");
            Vec::new()
        });
        let points = batches
            .into_iter()
            .flat_map(|(origin, points)| points.into_iter().map(move |point| (origin, point)));
        for ((origin, point), index) in points.zip(0..) {
            let Some(sensor) = sensors.get(&point.channel) else { continue };
            let arrived = Arrived {
                place: Place { day: row.day, position: row.position, index },
                channel: point.channel,
                value: point.value,
                origin,
                recorded_at: row.recorded_at,
                before,
            };
            let last = self.reported.get(&sensor.id.0).copied();
            let window = self.windows.entry(point.channel).or_insert_with(|| ReportWindow::new(last));
            window.arrive(arrived.log_place(), row.recorded_at, now, arrived);
        }
    }

    /// Sends the due reports; false if another worker has reported meanwhile.
    async fn report(
        &mut self,
        context: &Context,
        sensors: &HashMap<i32, SensorChannel>,
        now: DateTime<Utc>,
    ) -> Result<bool, WorkerError> {
        let due: Vec<_> = self.windows.values_mut().filter_map(|window| window.due(now)).collect();
        if due.is_empty() {
            return Ok(true);
        }
        let key = IdKey::load(&context.pool).await?;
        let due =
            due.into_iter().filter_map(|arrived| Some((sensors.get(&arrived.channel)?.clone(), arrived)));
        let reports: Vec<_> = stream::iter(due)
            .map(|(sensor, arrived)| async move {
                let report = report(context, key, &sensor, &arrived, now).await?;
                Ok::<_, WorkerError>((arrived, report))
            })
            .buffer_unordered(CONCURRENT)
            .try_collect()
            .await?;
        let mut is_current = true;
        for (arrived, report) in reports {
            match report {
                Report::Sent(at) => {
                    if let Some(window) = self.windows.get_mut(&arrived.channel) {
                        window.reported(arrived.log_place(), at);
                    }
                }
                Report::Gone => {}
                Report::Refused => is_current = false,
            }
        }
        Ok(is_current)
    }

    /// Stores how far the log need not be read again.
    async fn store(&mut self, pool: &PgPool) -> Result<(), WorkerError> {
        let waiting = self.windows.values().flat_map(ReportWindow::waiting).map(|arrived| arrived.before);
        let end = waiting.chain([self.read]).min_by_key(|end| end.position).unwrap_or(self.read);
        if end.position <= self.stored {
            return Ok(());
        }
        readings_progress::advance(pool, self.since, end.position, end.day, end.points).await?;
        self.stored = end.position;
        Ok(())
    }
}

impl Arrived {
    fn log_place(&self) -> DatapointPlace {
        DatapointPlace { position: self.place.position, index: self.place.index }
    }
}

/// Result of a report.
enum Report {
    /// It was recorded, at this time.
    Sent(DateTime<Utc>),
    /// The value was deleted meanwhile.
    Gone,
    /// Another worker has reported this value, a newer one, or another one just before.
    Refused,
}

async fn report(
    context: &Context,
    key: IdKey,
    channel: &SensorChannel,
    arrived: &Arrived,
    at: DateTime<Utc>,
) -> Result<Report, WorkerError> {
    if read_row(&context.pool, arrived.place).await?.is_none() {
        return Ok(Report::Gone);
    }
    let devices = Devices::load(&context.pool, [channel.id.0], [arrived.origin]).await?;
    let reading = Reading {
        datapoint_id: key.id(arrived.place).to_string(),
        place: arrived.log_place(),
        channel_id: channel.id,
        channel_name: channel.name.clone(),
        value: arrived.value,
        device: devices.name(channel.id.0, arrived.origin),
        occurred_at: arrived.recorded_at,
    };
    // The time is part of the key: a report that was refused because it was too early is another one later. The
    // aggregate recognises a value that was reported.
    let key = format!("report {}-{} {}", arrived.place.position, arrived.place.index, at.timestamp_micros());
    let command = ReadingCommand::Report { reading, at };
    let span = context.span_of_point(Readings::NAME, Some(arrived.log_place())).await;
    let sent = context.send_if_still_due::<ReportedReading>(Readings::NAME, channel.id.0, &key, &command);
    let outcome = span.around(sent).await?;
    Ok(if outcome.is_some_and(|outcome| outcome.position.is_some()) {
        Report::Sent(at)
    } else {
        Report::Refused
    })
}
