//! A collector of traces, as those that speak OTLP over HTTP: it takes spans as protobuf and keeps them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{eventually_some, seconds};

/// A span that came.
#[derive(Debug, Clone)]
pub struct Spanned {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub kind: SpanKind,
    pub failed: bool,
    pub began: u64,
    pub ended: u64,
    /// Roles of the process that it came from.
    pub roles: String,
    attributes: Vec<KeyValue>,
}

impl Spanned {
    /// The attribute `key` as text; empty if absent.
    pub fn attribute(&self, key: &str) -> String {
        attribute(&self.attributes, key)
    }
}

pub struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Taken {
    spans: Vec<Spanned>,
    bytes: Vec<u8>,
    headers: Vec<HeaderMap>,
}

impl Collector {
    pub async fn start() -> Self {
        let taken = Arc::<Mutex<Taken>>::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(taken.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, taken, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans that came so far.
    pub fn spans(&self) -> Vec<Spanned> {
        self.taken.lock().unwrap().spans.clone()
    }

    /// All bytes that came, headers too, as text.
    pub fn everything(&self) -> String {
        let taken = self.taken.lock().unwrap();
        format!("{} {:?}", String::from_utf8_lossy(&taken.bytes), taken.headers)
    }

    /// Waits for a span that meets the condition; returns it.
    #[track_caller]
    pub fn until(&self, is_so: impl Fn(&Spanned) -> bool) -> impl Future<Output = Spanned> {
        eventually_some(seconds(40), async move || self.spans().into_iter().find(&is_so))
    }

    /// Waits until `trace` has a span of this name; returns it.
    #[track_caller]
    pub fn until_named(&self, trace: &str, name: &str) -> impl Future<Output = Spanned> {
        let (trace, name) = (trace.to_owned(), name.to_owned());
        self.until(move |span| span.trace == trace && span.name == name)
    }

    /// Waits for the span that led to `span`, as another process may send it later.
    #[track_caller]
    pub fn until_parent(&self, span: &Spanned) -> impl Future<Output = Spanned> {
        let (trace, id) = (span.trace.clone(), span.parent.clone());
        self.until(move |other| other.trace == trace && other.id == id)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(taken): State<Arc<Mutex<Taken>>>, headers: HeaderMap, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    let mut taken = taken.lock().unwrap();
    taken.bytes.extend_from_slice(&body);
    taken.headers.push(headers);
    for resource in request.resource_spans {
        let of = resource.resource.unwrap_or_default().attributes;
        assert_eq!(attribute(&of, "service.name"), "signalbox");
        assert!(
            !attribute(&of, "service.instance.id").is_empty()
                && !attribute(&of, "service.version").is_empty()
        );
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        let roles = attribute(&of, "signalbox.roles");
        taken.spans.extend(spans.map(|span| spanned(span, roles.clone())));
    }
}

fn spanned(span: Span, roles: String) -> Spanned {
    Spanned {
        trace: hex::encode(&span.trace_id),
        id: hex::encode(&span.span_id),
        parent: hex::encode(&span.parent_span_id),
        kind: span.kind(),
        failed: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
        began: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
        name: span.name,
        roles,
        attributes: span.attributes,
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.as_ref()?.value.clone());
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => other.map(|other| format!("{other:?}")).unwrap_or_default(),
    }
}
