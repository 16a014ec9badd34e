//! Values from Prometheus by remote write, and for it by remote read. The messages are written here from the published schemas.

mod promql;
pub mod reading;
mod second_judge;
mod writing;

use prost::Message;
pub use reading::{EQUAL, query, samples};
use reqwest::Method;

use crate::harness::{Answer, Client};

const WRITE: &str = "/api/v1/prometheus/write";
const VERSION_1: &str = "application/x-protobuf";

#[derive(Clone, PartialEq, Message)]
pub struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

pub fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    let label = |(name, value): &(&str, &str)| Label { name: (*name).into(), value: (*value).into() };
    let sample = |(value, timestamp): &(f64, i64)| Sample { value: *value, timestamp: *timestamp };
    TimeSeries { labels: labels.iter().map(label).collect(), samples: samples.iter().map(sample).collect() }
}

async fn send(client: &Client, path: &str, kind: &str, message: &impl Message) -> Answer {
    let body = snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap();
    let request = client.request(Method::POST, path).header("content-type", kind);
    client.send(request.header("content-encoding", "snappy").body(body)).await
}

pub async fn write(client: &Client, timeseries: Vec<TimeSeries>) -> Answer {
    send(client, WRITE, VERSION_1, &WriteRequest { timeseries }).await
}
