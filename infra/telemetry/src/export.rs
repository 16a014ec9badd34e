//! Spans on their way to a collector: gathered in a bounded queue, sent by a thread of their own.
//!
//! A collector that is away costs the service nothing: spans that do not fit the queue are dropped, and the loss is logged
//! at most once a minute.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData,
        SpanExporter as Exporter,
    },
};
use signalbox_config::Telemetry;
use tokio::{runtime::Handle, task::spawn_blocking};
use uuid::Uuid;

use crate::span::install;

/// Spans that may wait; more are dropped.
const QUEUE: usize = 8192;
/// Spans of one request to the collector.
const BATCH: usize = 512;
/// How long spans are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// How long a request to the collector may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How long a process that stops waits for the collector.
const FLUSH: Duration = Duration::from_secs(3);
/// A collector that takes nothing is mentioned no more often.
const QUIET: Duration = Duration::from_secs(60);
/// Largest answer that is read.
const ANSWER: usize = 64 << 10;
/// Path of traces under the address of a collector.
const PATH: &str = "/v1/traces";

/// Why no spans can be exported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The collector's address or the environment's settings for it are wrong.
    #[error("telemetry.otlp_endpoint cannot be used: {0}")]
    Endpoint(#[from] opentelemetry_otlp::ExporterBuildError),
    /// No HTTP client can be made.
    #[error("no connection to a collector can be made: {0}")]
    Client(#[from] reqwest::Error),
    /// It was started before.
    #[error("the export of traces was started twice")]
    Twice,
}

/// The export of spans of this process.
#[derive(Debug, Default)]
pub struct Traces(Option<SdkTracerProvider>);

/// Starts to export spans, if a collector is configured, in the name of a process with `roles`. Call it in the
/// runtime that is to send them.
///
/// # Errors
/// [`TracesError`].
pub fn start_traces(
    settings: &Telemetry,
    roles: &[&'static str],
    instance: Uuid,
) -> Result<Traces, TracesError> {
    if settings.otlp_endpoint.is_empty() {
        return Ok(Traces(None));
    }
    let client = Client { http: reqwest::Client::builder().build()?, runtime: Handle::current() };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(traces_url(&settings.otlp_endpoint))
        .with_timeout(REQUEST)
        .build()?;
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(GATHER)
        .build();
    let processor = BatchSpanProcessor::builder(Watched::new(exporter)).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio))))
        .with_resource(resource(roles, instance))
        .build();
    if install(provider.tracer("signalbox")) { Ok(Traces(Some(provider))) } else { Err(TracesError::Twice) }
}

impl Traces {
    /// Sends what is left, and waits for it, but not for long.
    pub async fn stop(self) {
        let Some(provider) = self.0 else { return };
        let stopped = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if !matches!(stopped, Ok(Ok(()))) {
            tracing::warn!("the last spans of traces were not taken by the collector");
        }
    }
}

/// The resource that the spans describe.
fn resource(roles: &[&'static str], instance: Uuid) -> Resource {
    Resource::builder()
        .with_service_name("signalbox")
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_string()),
            KeyValue::new("signalbox.roles", roles.join(",")),
        ])
        .build()
}

/// Where a collector at `endpoint` takes traces.
fn traces_url(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
}

/// Sends requests from the runtime, as the thread that exports has none.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = self
            .http
            .request(request.method().clone(), request.uri().to_string())
            .headers(request.headers().clone())
            .timeout(REQUEST)
            .body(request.into_body());
        self.runtime.spawn(send(request)).await?
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<Response<Bytes>, HttpError> {
    // The address may hold a password.
    let mut answer = request.send().await.map_err(reqwest::Error::without_url)?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + chunk.len() > ANSWER {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(response.body(body.into())?)
}

/// Mentions in the log that spans are lost.
struct Watched<E> {
    exporter: E,
    lost: Mutex<Lost>,
}

#[derive(Default)]
struct Lost {
    spans: usize,
    reported: Option<Instant>,
}

impl<E> Watched<E> {
    fn new(exporter: E) -> Self {
        Self { exporter, lost: Mutex::default() }
    }

    fn note(&self, spans: usize, error: &dyn fmt::Display) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.spans += spans;
        if lost.reported.is_none_or(|reported| reported.elapsed() >= QUIET) {
            tracing::warn!(%error, spans = lost.spans, "the collector takes no spans of traces, which are lost: see telemetry.otlp_endpoint");
            *lost = Lost { spans: 0, reported: Some(Instant::now()) };
        }
    }
}

impl<E> fmt::Debug for Watched<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl<E: Exporter> Exporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent {
            self.note(spans, error);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_where_it_is_missing() {
        for given in
            ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces", "http://c:4318/v1/traces/"]
        {
            assert_eq!(traces_url(given), "http://c:4318/v1/traces");
        }
        assert_eq!(traces_url("https://c/otlp"), "https://c/otlp/v1/traces");
    }
}
