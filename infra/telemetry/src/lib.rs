//! The service's telemetry: log lines on standard error, and spans of traces by OTLP.
//!
//! * [`start`] enables the log lines.
//! * [`start_traces`] starts the export of [`Span`]s, if a collector is configured. Until then a span is empty and
//!   costs nothing.
//!
//! A span is created where the work is done and ends when it is dropped. Its parent is named by a `traceparent` of
//! W3C Trace Context, because that is the form that travels: in requests, on the bus, and with each event in the log.
//! A span carries no free text: nothing of a body, an address or a message, only fixed words and ids.

mod export;
mod log;
mod span;

pub use export::{Traces, TracesError, start_traces};
pub use log::{TelemetryError, start};
pub use span::{Kind, Span, current, is_recorded, is_tracing};
