//! Reports values of sensors to webhooks: the first one at once, then the newest one every five seconds.
//!
//! Reads the newest value of each channel and what was reported last, sends `Report`; the aggregate lets one of them pass
//! in five seconds. So the last value of a burst always arrives, and nothing is remembered that a restart could lose. While
//! no enabled subscription wants readings, nothing is done; what came in before one did is passed over.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use signalbox_datapoint_log::{IdKey, read_row};
use signalbox_domain::{
    automation::{DatapointPlace, REPORT_INTERVAL, Reading, ReadingCommand, ReportedReading},
    kernel::ChannelId,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    automation::readings::{readings, readings_wanted},
    monitoring::{
        queries::{SensorChannel, sensors},
        series::{Datapoint, SeriesError, latest},
    },
};
use sqlx::PgPool;
use tokio::sync::Mutex;

use crate::{Context, Worker, WorkerError, rules::device::Devices};

/// Channels that are reported at the same time.
const CONCURRENT: usize = 64;

/// The reports of values.
#[derive(Debug, Default)]
pub struct Readings {
    /// Values that came in before anybody wanted readings, by channel: they need not be looked up again.
    passed_over: Mutex<HashMap<i32, DatapointPlace>>,
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
        let Some(since) = wanted_since(&context.pool).await? else { return Ok(false) };
        let mut passed_over = self.passed_over.lock().await;
        let due = due(context, &passed_over).await?;
        let key = IdKey::load(&context.pool).await?;
        let reported = stream::iter(due)
            .map(|(channel, point)| async move {
                let done = report(context, key, since, &channel, &point).await?;
                Ok::<_, WorkerError>((!done).then_some((point.channel, place(&point))))
            })
            .buffer_unordered(CONCURRENT);
        let old: Vec<_> = reported.try_collect().await?;
        passed_over.extend(old.into_iter().flatten());
        // More is due when an interval has passed, and the period is shorter.
        Ok(false)
    }
}

/// Since when readings are wanted. That is noted, so that a subscription that changes later makes no gap.
async fn wanted_since(pool: &PgPool) -> Result<Option<DateTime<Utc>>, WorkerError> {
    let noted: Option<DateTime<Utc>> =
        sqlx::query_scalar("SELECT since FROM ops.readings_wanted").fetch_optional(pool).await?;
    match (readings_wanted(pool).await?, noted) {
        (Some(_), Some(noted)) => Ok(Some(noted)),
        (Some(since), None) => {
            sqlx::query("INSERT INTO ops.readings_wanted (since) VALUES ($1) ON CONFLICT DO NOTHING")
                .bind(since)
                .execute(pool)
                .await?;
            Ok(Some(since))
        }
        (None, Some(_)) => {
            sqlx::query("DELETE FROM ops.readings_wanted").execute(pool).await?;
            Ok(None)
        }
        (None, None) => Ok(None),
    }
}

/// The newest values that have not been reported, of sensors whose last report is long enough ago.
async fn due(
    context: &Context,
    passed_over: &HashMap<i32, DatapointPlace>,
) -> Result<Vec<(SensorChannel, Datapoint)>, WorkerError> {
    let now = context.clock.now();
    let sensors = sensors(&context.pool).await?;
    let mut by_number: HashMap<_, _> = sensors.into_iter().map(|sensor| (sensor.number, sensor)).collect();
    let last = readings(&context.pool).await?;
    let last: HashMap<_, _> = last.into_iter().map(|row| (row.id, row)).collect();
    let newest = latest(&context.pool).await.map_err(series)?;
    let due = newest.into_iter().filter_map(|point| {
        let sensor = by_number.remove(&point.channel)?;
        let is_due = last
            .get(&sensor.id)
            .is_none_or(|last| place(&point) > last.place() && now - last.reported_at >= REPORT_INTERVAL);
        let is_old = passed_over.get(&point.channel).is_some_and(|old| place(&point) <= *old);
        (is_due && !is_old).then_some((sensor, point))
    });
    Ok(due.collect())
}

/// Reports `point`; false when it came in before `since`, or was deleted.
async fn report(
    context: &Context,
    key: IdKey,
    since: DateTime<Utc>,
    channel: &SensorChannel,
    point: &Datapoint,
) -> Result<bool, WorkerError> {
    let Some(row) = read_row(&context.pool, point.place()).await? else { return Ok(false) };
    if row.recorded_at < since {
        return Ok(false);
    }
    let Ok(Some((origin, _))) = row.point(point.point.index) else { return Ok(false) };
    let devices = Devices::load(&context.pool, [channel.id], [origin]).await?;
    let reading = Reading {
        datapoint_id: key.id(point.place()).to_string(),
        place: place(point),
        channel_id: ChannelId(channel.id),
        channel_name: channel.name.clone(),
        value: point.point.value,
        device: devices.name(channel.id, origin),
        occurred_at: row.recorded_at,
    };
    let key = format!("report {}-{}", point.point.position, point.point.index);
    let command = ReadingCommand::Report { reading, at: context.clock.now() };
    let span = context.span_of_point(Readings::NAME, Some(place(point))).await;
    let sent = context.send_if_still_due::<ReportedReading>(Readings::NAME, channel.id, &key, &command);
    span.around(sent).await?;
    Ok(true)
}

fn place(point: &Datapoint) -> DatapointPlace {
    DatapointPlace { position: point.point.position, index: point.point.index }
}

fn series(error: SeriesError) -> WorkerError {
    match error {
        SeriesError::Database(error) => error.into(),
        other => WorkerError::Series(other),
    }
}
