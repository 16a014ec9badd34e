//! Values read by remote read, as samples and as streamed chunks, by a reader that follows the published protocol.

use std::collections::BTreeMap;

use prost::{Message, bytes::Buf};
use serde_json::json;

use super::{Label, TimeSeries, VERSION_1, send, series, write};
use crate::{
    api::v1::datapoints::{DATAPOINTS, event},
    harness::{Answer, Client, World, eventually, seconds},
};

const READ: &str = "/api/v1/prometheus/read";
const SAMPLES: i32 = 0;
const CHUNKS: i32 = 1;
pub const EQUAL: i32 = 0;
const REGEX: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<Query>,
    #[prost(int32, repeated, tag = "2")]
    accepted: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Query {
    #[prost(int64, tag = "1")]
    start: i64,
    #[prost(int64, tag = "2")]
    end: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<Matcher>,
}

#[derive(Clone, PartialEq, Message)]
struct Matcher {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct Frame {
    #[prost(message, repeated, tag = "1")]
    series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    query: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(int64, tag = "1")]
    min_time: i64,
    #[prost(int64, tag = "2")]
    max_time: i64,
    #[prost(int32, tag = "3")]
    encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

/// Samples of each series of an answer, in its order: labels as PromQL writes them, times and values.
pub type Read = Vec<(String, Vec<(i64, f64)>)>;

pub fn query(matchers: &[(i32, &str, &str)], start: i64, end: i64) -> Query {
    let matcher = |(kind, name, value): &(i32, &str, &str)| Matcher {
        kind: *kind,
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    Query { start, end, matchers: matchers.iter().map(matcher).collect() }
}

async fn ask(client: &Client, accepted: &[i32], queries: Vec<Query>) -> Answer {
    send(client, READ, VERSION_1, &ReadRequest { queries, accepted: accepted.to_vec() }).await
}

/// The answer that has all values as streamed chunks.
pub async fn all_as_chunks(client: &Client) -> Answer {
    ask(client, &[CHUNKS], vec![query(&[(REGEX, "__name__", ".+")], 0, i64::MAX)]).await
}

/// The answers to queries as samples.
pub async fn samples(client: &Client, queries: Vec<Query>) -> Vec<Read> {
    let answer = ask(client, &[SAMPLES], queries).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(answer.header("content-encoding"), Some("snappy"));
    let message = snap::raw::Decoder::new().decompress_vec(&answer.body).unwrap();
    let results = ReadResponse::decode(message.as_slice()).unwrap().results;
    let of = |series: TimeSeries| {
        let samples = series.samples.iter().map(|sample| (sample.timestamp, sample.value));
        (written(&series.labels), samples.collect())
    };
    results.into_iter().map(|result| result.timeseries.into_iter().map(of).collect()).collect()
}

/// The answers to queries as streamed chunks.
async fn chunks(client: &Client, queries: Vec<Query>) -> Vec<Read> {
    let mut found: Vec<Read> = vec![Vec::new(); queries.len()];
    let answer = ask(client, &[9, CHUNKS, SAMPLES], queries).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let kind = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!(answer.header("content-type"), Some(kind));
    let mut rest = answer.body.as_slice();
    while rest.has_remaining() {
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        let sum = rest.get_u32();
        let message = rest.copy_to_bytes(length);
        assert_eq!(sum, crc32c(&message));
        let frame = Frame::decode(message).unwrap();
        let read = &mut found[frame.query as usize];
        for series in frame.series {
            let labels = written(&series.labels);
            if read.last().is_none_or(|(last, _)| *last != labels) {
                read.push((labels, Vec::new()));
            }
            let samples = &mut read.last_mut().unwrap().1;
            for chunk in series.chunks {
                assert_eq!(chunk.encoding, 1);
                let decoded = decode(&chunk.data);
                let ends = (decoded[0].0, decoded.last().unwrap().0);
                assert_eq!(ends, (chunk.min_time, chunk.max_time));
                samples.extend(decoded);
            }
        }
    }
    found
}

fn written(labels: &[Label]) -> String {
    let names: Vec<_> = labels.iter().map(|label| label.name.as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    let pairs: Vec<_> = labels.iter().map(|label| format!("{}={:?}", label.name, label.value)).collect();
    format!("{{{}}}", pairs.join(","))
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82F6_3B78 * (sum & 1)))
    })
}

struct Bits<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |value, _| {
            let bit = self.bytes[self.place / 8] >> (7 - self.place % 8) & 1;
            self.place += 1;
            value << 1 | u64::from(bit)
        })
    }

    /// How many ones come before a zero, `most` at most.
    fn ones(&mut self, most: usize) -> usize {
        (0..most).take_while(|_| self.take(1) == 1).count()
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.take(8);
            value |= (byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }
}

/// The samples of a chunk, by the published format.
fn decode(data: &[u8]) -> Vec<(i64, f64)> {
    let mut bits = Bits { bytes: data, place: 0 };
    let count = bits.take(16);
    let (mut time, mut step, mut value) = (0, 0, 0);
    let (mut leading, mut trailing) = (0, 0);
    let mut found = Vec::new();
    for index in 0..count {
        match index {
            0 => {
                let zigzag = bits.varint();
                time = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                value = bits.take(64);
            }
            1 => step = bits.varint() as i64,
            _ => {
                let size = [0, 14, 17, 20, 64][bits.ones(4)];
                let change = if size == 0 { 0 } else { bits.take(size) };
                let is_negative = size < 64 && change > 1 << size.max(1) >> 1;
                step += if is_negative { change as i64 - (1 << size) } else { change as i64 };
            }
        }
        if index > 0 {
            time += step;
            if bits.take(1) == 1 {
                if bits.take(1) == 1 {
                    leading = bits.take(5) as u32;
                    let size = match bits.take(6) as u32 {
                        0 => 64,
                        size => size,
                    };
                    trailing = 64 - leading - size;
                }
                value ^= bits.take(64 - leading - trailing) << trailing;
            }
        }
        found.push((time, f64::from_bits(value)));
    }
    found
}

/// Numbers that look random, the same in each run.
fn noise(index: i64) -> i64 {
    index.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33
}

#[tokio::test]
async fn all_is_read_by_samples_and_by_chunks() {
    let world = World::start().await;
    let now = world.clock.now().timestamp_millis();
    let mut expected: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    let mut sent = Vec::new();
    for number in 0..7_i64 {
        // Steps of every size, and values that differ in few and in many bits.
        let mut time = now - 40 * 24 * 3_600_000;
        let mut samples = Vec::new();
        for index in 0..900 * number {
            time +=
                [0, 1, 1000, 9_000, 70_000, 600_000][(noise(index * 7 + number) % 6).unsigned_abs() as usize];
            let value = match number {
                1 => 1.0,
                2 => index as f64,
                _ => f64::from_bits(noise(index).unsigned_abs().rotate_left(index as u32) >> 2),
            };
            if value.is_finite() {
                samples.push((value, time));
            }
        }
        let number = number.to_string();
        sent.push(series(&[("__name__", "load"), ("host", &number)], &samples));
        let labels = format!("{{__name__=\"load\",host={number:?}}}");
        let read = expected.entry(labels).or_default();
        read.extend(samples.iter().map(|(value, time)| (*time, *value)));
    }
    assert_eq!(write(&world.admin, sent).await.status, 204);
    let boiler = event(&world, "boiler").await;
    for (value, time) in
        [(1.0, "2026-01-01T00:00:00.0015Z"), (2.0, "2026-01-01T00:00:00.001Z"), (3.0, "1970-01-01T00:00:00Z")]
    {
        let item = json!({"value": value, "event_public_id": boiler, "timestamp": time});
        world.admin.post(DATAPOINTS, item).await.expect(201);
    }
    // Of two values in one millisecond, the one recorded last.
    let read = expected
        .entry("{__name__=\"signalbox_value\",channel=\"boiler\",unit=\"°C\"}".to_owned())
        .or_default();
    read.extend([(1_767_225_600_001, 2.0), (0, 3.0)]);
    expected.retain(|_, samples| !samples.is_empty());
    let expected: Read =
        expected.into_iter().map(|(labels, samples)| (labels, samples.into_iter().collect())).collect();

    let all = || query(&[], i64::MIN, i64::MAX);
    let some =
        || query(&[(EQUAL, "__name__", "load"), (REGEX, "host", "[23]")], now - 39 * 24 * 3_600_000, now);
    let of_some: Read = expected[1..3]
        .iter()
        .map(|(labels, samples)| {
            let is_in = |(time, _): &&(i64, f64)| *time >= now - 39 * 24 * 3_600_000;
            (labels.clone(), samples.iter().filter(is_in).copied().collect())
        })
        .filter(|(_, samples): &(String, Vec<_>)| !samples.is_empty())
        .collect();
    for read in
        [samples(&world.admin, vec![all(), some()]).await, chunks(&world.admin, vec![all(), some()]).await]
    {
        assert_eq!(read.len(), 2);
        for (read, expected) in read[0].iter().zip(&expected) {
            assert_eq!(read, expected);
        }
        assert_eq!(read[0].len(), expected.len());
        assert_eq!(read[1], of_some);
    }
    let nothing = query(&[(EQUAL, "__name__", "none")], i64::MIN, i64::MAX);
    let backwards = query(&[], 2, 1);
    assert_eq!(chunks(&world.admin, vec![nothing.clone()]).await, [Vec::new()]);
    assert_eq!(samples(&world.admin, vec![nothing, backwards]).await, [Vec::new(), Vec::new()]);
    world.finish().await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    assert_eq!(ask(&viewer, &[], vec![query(&[], 0, 1)]).await.status, 200);
    ask(&viewer.anonymous(), &[], Vec::new()).await.error(401);
    for (accepted, queries, reason) in [
        (&[9][..], vec![query(&[], 0, 1)], "response types"),
        (&[], vec![query(&[(REGEX, "a", "(")], 0, 1)], "regular expression"),
        (&[], vec![query(&[(9, "a", "b")], 0, 1)], "type 9"),
        (&[], vec![query(&[(EQUAL, "a", "b"); 65], 0, 1)], "64 matchers"),
        (&[], vec![query(&[], 0, 1); 101], "100 queries"),
    ] {
        let message = ask(&viewer, accepted, queries).await.error(400);
        assert!(message.contains(reason), "{message}");
    }
    let request = viewer.request(reqwest::Method::POST, READ).header("content-type", VERSION_1);
    viewer.send(request.body("x")).await.error(400);
    world.finish().await;
}

/// Finding the series counts, for either kind of answer.
#[tokio::test]
async fn a_third_read_of_a_user_waits_for_one_of_two() {
    let world = World::start().await;
    let viewer = &world.user("viewer", "viewer").await.at(&world.at_one_gateway());
    event(&world, "boiler").await;
    let mut held = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE series.chunks IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let all = || vec![query(&[], 0, i64::MAX)];
    let two = async { tokio::join!(ask(viewer, &[SAMPLES], all()), ask(viewer, &[CHUNKS], all())) };
    let third = async {
        let counting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND query LIKE '%sum(count)%'";
        eventually(seconds(10), async || {
            sqlx::query_scalar::<_, i64>(counting).fetch_one(&world.servers.pool).await.unwrap() == 2
        })
        .await;
        ask(viewer, &[SAMPLES], all()).await.error(429);
        held.rollback().await.unwrap();
    };
    let ((samples, chunks), ()) = tokio::join!(two, third);
    assert_eq!((samples.status, chunks.status), (200, 200));
    world.finish().await;
}
