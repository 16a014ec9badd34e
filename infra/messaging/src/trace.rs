//! Spans of messages on the bus, and the header that links them.

use std::fmt;

use async_nats::HeaderMap;
use signalbox_domain::kernel::{ErrorKind, Rejection};
use signalbox_telemetry::{Kind, Span};

const HEADER: &str = "traceparent";

/// The span of a message on `subject` whose sender waits for the answer.
pub(crate) fn sending(subject: &str, parent: Option<&str>) -> Span {
    about(Span::begin(Kind::Client, parent, || format!("send {subject}")), subject)
}

/// The span of handling such a message.
pub(crate) fn answering(subject: impl fmt::Display, parent: Option<&str>) -> Span {
    about(Span::begin(Kind::Server, parent, || format!("handle {subject}")), subject)
}

/// The span of publishing a message on `subject` and waiting for its reader.
pub(crate) fn publishing(subject: &str, parent: Option<&str>) -> Span {
    about(Span::begin(Kind::Producer, parent, || format!("publish {subject}")), subject)
}

fn about(mut span: Span, subject: impl fmt::Display) -> Span {
    span.set("messaging.system", "nats");
    span.set_with("messaging.destination.name", || subject.to_string());
    span
}

/// The answer to a command was no. Only one that should have been taken is a fault.
pub(crate) fn note(span: &mut Span, rejection: &Rejection) {
    match rejection.kind {
        ErrorKind::Unavailable => span.fail(&rejection.code),
        _ => span.set_with("signalbox.rejection", || rejection.code.clone()),
    }
}

/// Headers that name the cause of a message.
pub(crate) fn trace_headers(traceparent: Option<&str>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(HEADER, traceparent?);
    Some(headers)
}

/// The traceparent of a message with these headers.
pub(crate) fn traceparent(headers: Option<&HeaderMap>) -> Option<&str> {
    Some(headers?.get(HEADER)?.as_str())
}
