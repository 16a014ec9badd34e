//! Messages of Prometheus remote write and remote read, as their published schemas have them, without the parts that are not taken:
//! metadata, exemplars, the contents of histograms, and hints of queries.

use prost::Message;

/// `prometheus.TimeSeries`, of which a `prometheus.WriteRequest` has many; these are read by [`super::fields`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) histograms: Vec<NotTaken>,
}

/// Texts are bytes here and among `symbols`, so that one that is not UTF-8 spoils its series and not the whole request.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Label {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// A value, in both versions.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub(super) timestamp: i64,
}

/// A message that is counted and not read.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct NotTaken {}

/// `io.prometheus.write.v2.TimeSeries`. Labels are pairs of places among the symbols of its request.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) histograms: Vec<NotTaken>,
}

/// `prometheus.ReadRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) queries: Vec<Query>,
    /// [`ResponseType`]s, the preferred one first.
    #[prost(int32, repeated, tag = "2")]
    pub(super) accepted: Vec<i32>,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ResponseType {
    Samples = 0,
    StreamedXorChunks = 1,
}

/// The samples from `start` to `end`, both included, of all series that every matcher fits.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Query {
    /// Milliseconds since 1970.
    #[prost(int64, tag = "1")]
    pub(super) start: i64,
    #[prost(int64, tag = "2")]
    pub(super) end: i64,
    #[prost(message, repeated, tag = "3")]
    pub(super) matchers: Vec<LabelMatcher>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelMatcher {
    /// A [`MatchType`].
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MatchType {
    Equal = 0,
    NotEqual = 1,
    Regex = 2,
    NotRegex = 3,
}

/// `prometheus.ReadResponse`: a result for each query.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    pub(super) timeseries: Vec<TimeSeries>,
}

/// `prometheus.ChunkedReadResponse`: a frame of a streamed answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ChunkedReadResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<ChunkedSeries>,
    /// From 0.
    #[prost(int64, tag = "2")]
    pub(super) query: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) chunks: Vec<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Chunk {
    #[prost(int64, tag = "1")]
    pub(super) min_time: i64,
    #[prost(int64, tag = "2")]
    pub(super) max_time: i64,
    /// [`XOR`].
    #[prost(int32, tag = "3")]
    pub(super) encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) data: Vec<u8>,
}

/// The encoding of [`super::xor`].
pub(super) const XOR: i32 = 1;
