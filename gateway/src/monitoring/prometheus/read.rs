//! Values for Prometheus by remote read, as samples or as streamed chunks.
//!
//! Only what is written at once is in memory: series of few points are read together, one of many points a span of hours at a time.

use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use crc::{CRC_32_ISCSI, Crc};
use futures::stream;
use prost::Message;
use signalbox_database::on_behalf;
use signalbox_datapoint_log::ChunkPoint;
use signalbox_projections::monitoring::series::{
    all_points, count_points, count_points_by_hour, counting, note_skipped,
};
use tokio::task::spawn_blocking;

use super::{
    batch::decompressed,
    messages::{
        ChunkedReadResponse, ChunkedSeries, Label, Query, QueryResult, ReadRequest, ReadResponse,
        ResponseType, Sample, TimeSeries,
    },
    select::{MAX_SERIES, Matcher, Series, selected},
    xor::chunks,
};
use crate::{
    auth::Reader,
    extract::read_body,
    monitoring::export::{ExportServices, full},
    problem::{Problem, ProblemKind, ProblemOut},
    services::replica::Database,
    shares::Share,
};

/// Bytes of a request at most, decompressed: each two of them may be a matcher, which takes dozens in memory.
const MAX_BYTES: usize = 1 << 20;
/// Queries of a request at most.
const MAX_QUERIES: usize = 100;
/// Samples of an answer that is not streamed at most.
const MAX_SAMPLES: usize = 2_000_000;
/// Points that are read together, but for those of one hour of one series.
const AT_ONCE: i64 = 250_000;
/// Chunks of a frame at most: less than Prometheus' megabyte.
const CHUNKS: usize = 200;
/// The years 1 to 9999, in milliseconds since 1970.
const TIMES: (i64, i64) = (-62_135_596_800_000, 253_402_300_799_999);
/// Microseconds of an hour.
const HOUR: i64 = 3_600_000_000;
const SAMPLES_TYPE: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const CHUNKS_TYPE: HeaderValue =
    HeaderValue::from_static("application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse");

/// Read values as Prometheus does by remote read. A channel whose labels name a metric by `__name__` is the series with these labels;
/// every other one is `signalbox_value` with the labels `channel`, `unit` and its own. The answer has samples, at most 2,000,000, or
/// streamed chunks, as the request prefers.
#[utoipa::path(post, path = "/api/v1/prometheus/read", tag = "prometheus", security(("jwt" = [])), operation_id = "prometheus_read",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf", description = "`prometheus.ReadRequest`, compressed by snappy."),
    responses((status = 200, description = "`prometheus.ReadResponse`, compressed by snappy, or a stream of `prometheus.ChunkedReadResponse`",
            content((Vec<u8> = "application/x-protobuf"), (Vec<u8> = "application/x-streamed-protobuf"))),
        (status = 400, body = ProblemOut), (status = 401, body = ProblemOut)))]
pub(in crate::monitoring) async fn read(
    State(services): State<ExportServices>,
    Reader(user): Reader,
    request: Request,
) -> Result<Response, Problem> {
    let body = read_body(request).await?;
    let message = decompressed(&body, MAX_BYTES)?;
    let request = ReadRequest::decode(message.as_slice())
        .map_err(|_| Problem::malformed("the body is not a prometheus.ReadRequest"))?;
    if request.queries.len() > MAX_QUERIES {
        return Err(Problem::malformed(format!("the request has more than {MAX_QUERIES} queries")));
    }
    let kind = response_type(&request.accepted)?;
    // Finding the series takes as much as reading their samples.
    let place = services.exports.take(&user.id.to_string()).await.map_err(full)?;
    let (place, queries) = (Arc::new(place), request.queries.len());
    let pieces = on_behalf(place.clone(), plan_all(&services, &place, request.queries)).await?;
    match kind {
        ResponseType::Samples => on_behalf(place, as_samples(&services.database, pieces, queries)).await,
        ResponseType::StreamedXorChunks => {
            let unreadable = on_behalf(place.clone(), count_unreadable(&services.database, &pieces)).await?;
            Ok(as_chunks(services, pieces, unreadable, place))
        }
    }
}

/// The first of `accepted` that is known; samples if none is named.
fn response_type(accepted: &[i32]) -> Result<ResponseType, Problem> {
    let mut known = accepted.iter().filter_map(|kind| ResponseType::try_from(*kind).ok());
    match known.next() {
        Some(kind) => Ok(kind),
        None if accepted.is_empty() => Ok(ResponseType::Samples),
        None => Err(Problem::malformed(
            "none of the accepted response types is known: SAMPLES and STREAMED_XOR_CHUNKS are",
        )),
    }
}

/// The series of a query.
struct Selected {
    /// Place of the query in the request.
    query: usize,
    series: Vec<Series>,
}

/// A part of the answer that is read at once.
struct Piece {
    of: Arc<Selected>,
    /// Places of its series.
    series: Range<usize>,
    /// In microseconds, the end excluded; a whole number of milliseconds.
    span: (i64, i64),
    /// About how many points it has.
    points: i64,
}

/// The pieces of the answer to `queries`, in their order.
async fn plan_all(
    services: &ExportServices,
    place: &Arc<Share>,
    queries: Vec<Query>,
) -> Result<Vec<Piece>, Problem> {
    let (mut pieces, mut room) = (Vec::new(), MAX_SERIES);
    for (query, Query { start, end, matchers }) in queries.into_iter().enumerate() {
        let (catalog, held) = (services.catalogs.fresh().await?, place.clone());
        // Many expressions over many labels take long, and go on when the client has gone away.
        let select = move || {
            let _held = held;
            selected(catalog.live_channels(), &Matcher::all(matchers)?, room)
        };
        let series = beside(select).await??;
        room -= series.len();
        pieces.extend(plan(&services.database, Selected { query, series }, (start, end)).await?);
    }
    Ok(pieces)
}

/// The pieces of the answer to a query from `start` to `end`, in their order.
async fn plan(
    database: &Database,
    selected: Selected,
    (start, end): (i64, i64),
) -> Result<Vec<Piece>, Problem> {
    let (start, end) = (start.max(TIMES.0), end.min(TIMES.1));
    if start > end {
        return Ok(Vec::new());
    }
    let of = Arc::new(selected);
    let span = (start * 1000, (end + 1) * 1000);
    let channels: Vec<i32> = of.series.iter().flat_map(Series::numbers).collect();
    let counts = database.read(|pool| count_points(pool, &channels, span)).await?;
    let mut pieces: Vec<Piece> = Vec::new();
    for (place, series) in of.series.iter().enumerate() {
        let points = series.numbers().filter_map(|channel| counts.get(&channel)).sum();
        if points > AT_ONCE {
            let channels: Vec<i32> = series.numbers().collect();
            for (span, points) in spans(database, &channels, span).await? {
                pieces.push(Piece { of: of.clone(), series: place..place + 1, span, points });
            }
            continue;
        }
        match pieces.last_mut() {
            Some(last) if last.span == span && last.points + points <= AT_ONCE => {
                last.series.end = place + 1;
                last.points += points;
            }
            _ => pieces.push(Piece { of: of.clone(), series: place..place + 1, span, points }),
        }
    }
    Ok(pieces)
}

/// `span`, cut at full hours where there are many points of `channels`, with their numbers.
async fn spans(
    database: &Database,
    channels: &[i32],
    (begin, end): (i64, i64),
) -> Result<Vec<((i64, i64), i64)>, Problem> {
    let hours = database.read(|pool| count_points_by_hour(pool, channels, (begin, end))).await?;
    let (mut found, mut from, mut points) = (Vec::new(), begin, 0);
    for (hour, count) in hours {
        let cut = i64::from(hour) * HOUR;
        if points > 0 && points + count > AT_ONCE && cut > from {
            found.push(((from, cut), points));
            (from, points) = (cut, 0);
        }
        points += count;
    }
    found.push(((from, end), points));
    Ok(found)
}

impl Piece {
    /// Its series and their samples; those without any are left out.
    async fn read(&self, database: &Database) -> Result<Vec<(Vec<Label>, Vec<Sample>)>, Problem> {
        let series = &self.of.series[self.series.clone()];
        let channels: Vec<i32> = series.iter().flat_map(Series::numbers).collect();
        let points = database.read(|pool| all_points(pool, &channels, self.span)).await?;
        let (of, series) = (self.of.clone(), self.series.clone());
        beside(move || labelled(&of.series[series], points)).await
    }
}

/// The samples of `series`, which have `points`.
fn labelled(series: &[Series], mut points: BTreeMap<i32, Vec<ChunkPoint>>) -> Vec<(Vec<Label>, Vec<Sample>)> {
    let mut found = Vec::new();
    for series in series {
        let own = series.numbers().filter_map(|channel| points.remove(&channel)).flatten();
        let samples = samples(own.collect());
        if !samples.is_empty() {
            let label = |(name, value): (String, String)| Label {
                name: name.into_bytes(),
                value: value.into_bytes(),
            };
            found.push((series.labels().into_iter().map(label).collect(), samples));
        }
    }
    found
}

/// Does what takes long for many points on a thread where nothing else waits for it.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(work).await.map_err(|error| Problem::internal(&error))
}

/// Samples in the order of time: of several points in a millisecond, the one recorded last.
fn samples(mut points: Vec<ChunkPoint>) -> Vec<Sample> {
    points.sort_unstable_by_key(ChunkPoint::order);
    let millisecond = |point: &ChunkPoint| point.time.div_euclid(1000);
    points
        .chunk_by(|one, next| millisecond(one) == millisecond(next))
        .filter_map(|same| same.iter().max_by_key(|point| (point.position, point.index)))
        .map(|point| Sample { value: point.value, timestamp: millisecond(point) })
        .collect()
}

/// All of `pieces` in one message, which has a result for each of the queries.
async fn as_samples(database: &Database, pieces: Vec<Piece>, queries: usize) -> Result<Response, Problem> {
    let (mut results, mut count) = (vec![QueryResult::default(); queries], 0);
    for piece in pieces {
        let timeseries = &mut results[piece.of.query].timeseries;
        for (labels, samples) in piece.read(database).await? {
            // The plan counts the hours at the edges of the time whole.
            count += samples.len();
            if count > MAX_SAMPLES {
                let detail = format!(
                    "the answer would have more than {MAX_SAMPLES} samples: ask for a shorter time, for fewer series, or for streamed chunks"
                );
                return Err(Problem::new(ProblemKind::Malformed, "too_many_samples", detail));
            }
            match timeseries.last_mut() {
                Some(last) if last.labels == labels => last.samples.extend(samples),
                _ => timeseries.push(TimeSeries { labels, samples, histograms: Vec::new() }),
            }
        }
    }
    let zip = move || snap::raw::Encoder::new().compress_vec(&ReadResponse { results }.encode_to_vec());
    let body = beside(zip).await?;
    let body = body.map_err(|error| Problem::internal(&error))?;
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, SAMPLES_TYPE);
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(response)
}

/// How many rows of the log may have samples of `pieces` and cannot be read; the header of the answer says so. It costs as much as a
/// piece without points.
async fn count_unreadable(database: &Database, pieces: &[Piece]) -> Result<usize, Problem> {
    let Some(from) = pieces.iter().map(|piece| piece.span.0).min() else { return Ok(0) };
    let (read, known) = counting(database.read(|pool| all_points(pool, &[], (from, from + 1)))).await;
    note_skipped(known.rows);
    read?;
    Ok(known.rows)
}

/// A stream that reads a piece whenever the client has taken the one before. It is broken off when more than `unreadable` rows of
/// the log are left out.
fn as_chunks(services: ExportServices, pieces: Vec<Piece>, unreadable: usize, place: Arc<Share>) -> Response {
    let begin = (services, pieces.into_iter(), place);
    let body = stream::try_unfold(begin, move |(services, mut pieces, place)| async move {
        let Some(piece) = pieces.next() else { return Ok::<_, io::Error>(None) };
        let read = counting(on_behalf(place.clone(), frames(&services.database, &piece)));
        let (frames, skipped) = read.await;
        // The header that would say so has been sent.
        if skipped.rows > unreadable || skipped.damaged > 0 {
            tracing::warn!("a remote read was broken off: some datapoints cannot be decoded");
            return Err(io::Error::other("some datapoints cannot be decoded"));
        }
        let frames = frames.map_err(|problem| {
            tracing::warn!(reason = problem.detail(), "a remote read was broken off");
            io::Error::other("the read was broken off")
        })?;
        Ok(Some((frames, (services, pieces, place))))
    });
    let mut response = Body::from_stream(body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, CHUNKS_TYPE);
    response
}

async fn frames(database: &Database, piece: &Piece) -> Result<Bytes, Problem> {
    let (read, query) = (piece.read(database).await?, piece.of.query as i64);
    beside(move || {
        let mut written = Vec::new();
        for (labels, samples) in read {
            for chunks in chunks(&samples).chunks(CHUNKS) {
                let series = vec![ChunkedSeries { labels: labels.clone(), chunks: chunks.to_vec() }];
                push_frame(&mut written, &ChunkedReadResponse { series, query });
            }
        }
        written.into()
    })
    .await
}

/// A frame: length, CRC32C, message.
fn push_frame(written: &mut Vec<u8>, message: &ChunkedReadResponse) {
    const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
    let message = message.encode_to_vec();
    // Writing to a vector does not fail.
    let _ = prost::encode_length_delimiter(message.len(), written);
    written.extend(CASTAGNOLI.checksum(&message).to_be_bytes());
    written.extend(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(time: i64, value: f64, position: i64) -> ChunkPoint {
        ChunkPoint { time, value, position, index: 0 }
    }

    #[test]
    fn of_several_points_in_a_millisecond_the_one_recorded_last_is_given() {
        let points = vec![point(1999, 1.0, 9), point(1000, 2.0, 10), point(2000, 3.0, 1), point(-1, 4.0, 2)];
        let found: Vec<_> = samples(points).iter().map(|sample| (sample.timestamp, sample.value)).collect();
        assert_eq!(found, [(-1, 4.0), (1, 2.0), (2, 3.0)]);
    }

    #[test]
    fn the_first_known_type_is_answered() {
        let of = |accepted: &[i32]| response_type(accepted).ok();
        assert_eq!(of(&[]), Some(ResponseType::Samples));
        assert_eq!(of(&[1, 0]), Some(ResponseType::StreamedXorChunks));
        assert_eq!(of(&[7, 0]), Some(ResponseType::Samples));
        assert_eq!(of(&[7]), None);
    }

    #[test]
    fn a_frame_has_its_length_and_sum() {
        let mut written = Vec::new();
        push_frame(&mut written, &ChunkedReadResponse { series: Vec::new(), query: 1 });
        assert_eq!(written[0], 2);
        assert_eq!(written[5..], [0x10, 1]);
        // The check value of CRC-32/ISCSI for these two bytes, by its polynomial.
        assert_eq!(written[1..5], crc32c(&[0x10, 1]).to_be_bytes());
    }

    /// Bit by bit.
    fn crc32c(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82F6_3B78 * (sum & 1)))
        })
    }
}
