//! What the service tells of its work while it does it: log lines on standard error, and spans of traces by OTLP.
//!
//! * [`start`] begins the log lines.
//! * [`start_traces`] begins to export [`Span`]s, if a collector is configured. Until then a span is nothing and costs nothing.
//!
//! A span is made where the work is and ends when it is dropped. Its parent is named by a `traceparent` of the W3C's Trace
//! Context, because that is what travels: in requests, on the bus, and with each event in the log. It is not a place for
//! texts: nothing of a body, an address or a message goes into it, only words and ids of ours.

mod export;
mod log;
mod span;

pub use export::{Traces, TracesError, start_traces};
pub use log::{TelemetryError, start};
pub use span::{Kind, Span, current, is_recorded, is_tracing};
