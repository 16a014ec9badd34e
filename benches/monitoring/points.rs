//! The same points for everybody: sensors that wander, in steps of a hundredth.

use std::{ops::Range, time::Duration};

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::{Executor, PgPool, postgres::PgPoolCopyExt};
use uuid::Uuid;

use crate::{load, system::Api};

/// Points of a batch.
pub const BATCH: usize = 1000;
/// Events that are charted.
pub const CHARTED: usize = 20;

/// The table of somebody who writes one row per point, with what reads need.
const TABLE: &str = "CREATE TABLE points (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), channel uuid NOT NULL, time timestamptz NOT NULL, value float8 NOT NULL);
    CREATE INDEX points_channel_time ON points (channel, time)";

/// Makes `count` events; returns their ids.
pub async fn add_events(api: &Api, count: usize) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::with_capacity(count);
    let run = Uuid::from_u128(rand::random());
    for index in 0..count {
        let event = json!({"name": format!("bench {run} {index}"), "type": "sensor", "unit": "°C"});
        let made = api.post("/api/v1/events", &event).await?;
        ids.push(made["public_id"].as_str().context("an event without an id")?.to_owned());
    }
    Ok(ids)
}

/// The value of point `nth`.
pub fn value(nth: usize) -> f64 {
    let wander = (nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (2000.0 + (nth / 500 % 1000) as f64 + wander as f64 / 8.0).round() / 100.0
}

/// Requests that record `count` points of `events` in turn, as they come in.
pub fn requests(api: &Api, events: &[String], count: usize) -> Vec<Vec<u8>> {
    let item = |nth: usize| json!({"value": value(nth), "event_public_id": events[nth % events.len()]});
    requests_of(api, count, item)
}

/// Requests that record `count` points, spread from `from` to `to` in microseconds. Every other one is of one of the first
/// 20 events, which are charted: so a chart is full with few rows as with many, and what is compared is not its size.
pub fn requests_between(api: &Api, events: &[String], count: usize, from: i64, to: i64) -> Vec<Vec<u8>> {
    let item = |nth: usize| {
        let time = from + (to - from) / count as i64 * nth as i64;
        let time = chrono::DateTime::from_timestamp_micros(time).unwrap_or_default();
        let among = if nth.is_multiple_of(2) { CHARTED } else { events.len() };
        json!({"value": value(nth), "event_public_id": events[nth / 2 % among], "timestamp": time.to_rfc3339()})
    };
    requests_of(api, count, item)
}

/// Requests that record points `nths` of one event, each a second after the one before, the first of all at `begin`.
pub fn requests_of_one(api: &Api, event: &str, nths: Range<usize>, begin: DateTime<Utc>) -> Vec<Vec<u8>> {
    let first = nths.start;
    let item = |nth: usize| {
        let time = begin + TimeDelta::seconds((first + nth) as i64);
        json!({"value": value(first + nth), "event_public_id": event, "timestamp": time.to_rfc3339()})
    };
    requests_of(api, nths.len(), item)
}

fn requests_of(api: &Api, count: usize, item: impl Fn(usize) -> Value) -> Vec<Vec<u8>> {
    let batch = |first: usize| {
        let items: Vec<_> = (first..(first + BATCH).min(count)).map(&item).collect();
        load::post("/api/v1/datapoints/batch", api.token(), &json!({"datapoints": items}).to_string())
    };
    (0..count).step_by(BATCH).map(batch).collect()
}

/// Makes the table of one row per point.
pub async fn make_table(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute("DROP TABLE IF EXISTS points").await?;
    pool.execute(TABLE).await?;
    Ok(())
}

/// Rows of the same points in the format of COPY, in pieces.
pub fn copy_rows(events: &[String], count: usize) -> Vec<String> {
    let row = |nth: usize| {
        let (event, micros) = (&events[nth % events.len()], nth as i64);
        let time =
            chrono::DateTime::from_timestamp_micros(1_760_000_000_000_000 + micros).unwrap_or_default();
        format!("{}\t{event}\t{}\t{}\n", Uuid::from_u128(rand::random()), time.to_rfc3339(), value(nth))
    };
    let piece = |first: usize| (first..(first + BATCH).min(count)).map(row).collect();
    (0..count).step_by(BATCH).map(piece).collect()
}

/// The same points as lines for InfluxDB, each at a time of its own, in pieces.
pub fn lines(events: &[String], count: usize) -> Vec<String> {
    let line = |nth: usize| {
        let (event, time) = (&events[nth % events.len()], 1_760_000_000_000_000_000 + nth as i64 * 1000);
        format!("points,event={event} value={} {time}\n", value(nth))
    };
    let piece = |first: usize| (first..(first + BATCH).min(count)).map(line).collect();
    (0..count).step_by(BATCH).map(piece).collect()
}

/// Copies `rows` over one connection.
pub async fn copy(pool: &PgPool, rows: &[String]) -> anyhow::Result<()> {
    let mut copy = pool.copy_in_raw("COPY points (id, channel, time, value) FROM STDIN").await?;
    for piece in rows {
        copy.send(piece.as_bytes()).await?;
    }
    copy.finish().await?;
    Ok(())
}

/// Waits until all that came in is folded.
pub async fn wait_until_folded(pool: &PgPool) -> anyhow::Result<()> {
    let behind =
        "SELECT h.position = p.position FROM log_head h, series.progress p WHERE h.log = 'datapoints'";
    let folded = || async move { Ok(sqlx::query_scalar(behind).fetch_one(pool).await?) };
    crate::system::wait_until("the fold of datapoints", Duration::from_secs(300), folded).await
}

/// Waits until hours that change no more are packed, which takes a moment after an import.
pub async fn wait_until_packed(pool: &PgPool) -> anyhow::Result<()> {
    let rest = "SELECT k.position = p.position AND NOT EXISTS (SELECT FROM series.unpacked_hours)
                  FROM series.pack_progress k, series.progress p";
    let packed = || async move { Ok(sqlx::query_scalar(rest).fetch_one(pool).await?) };
    crate::system::wait_until("the packing of hours", Duration::from_secs(300), packed).await
}
