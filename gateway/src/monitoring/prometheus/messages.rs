//! Messages of Prometheus remote write, as their published schemas have them, without the parts that are not taken: metadata,
//! exemplars, and the contents of histograms.

use prost::Message;

/// `prometheus.WriteRequest`, version 1.0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) histograms: Vec<NotTaken>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
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

/// `io.prometheus.write.v2.Request`, version 2.0. Labels are pairs of places in `symbols`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestV2 {
    #[prost(string, repeated, tag = "4")]
    pub(super) symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) timeseries: Vec<TimeSeriesV2>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) histograms: Vec<NotTaken>,
}
