use std::{future::Future, sync::OnceLock, time::SystemTime};

use opentelemetry::{
    Context, KeyValue, Value,
    trace::{
        Span as _, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, Span as Recording};

pub use opentelemetry::trace::SpanKind as Kind;

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

tokio::task_local! {
    static CURRENT: String;
}

/// From now on spans are made by `tracer`; false when there is one already.
pub(crate) fn install(tracer: SdkTracer) -> bool {
    TRACER.set(tracer).is_ok()
}

/// Whether spans are made at all: for what is looked up only for their sake.
pub fn is_tracing() -> bool {
    TRACER.get().is_some()
}

/// Whether spans of this trace go to the collector: for work on many traces at once, most of which may not be recorded.
pub fn is_recorded(traceparent: &str) -> bool {
    is_tracing() && parse(traceparent).is_some_and(|parent| parent.is_sampled())
}

/// The `traceparent` of the span that this task works in, see [`Span::around`].
pub fn current() -> Option<String> {
    if is_tracing() { CURRENT.try_with(Clone::clone).ok() } else { None }
}

/// Something that is being done; it ends when this is dropped.
#[derive(Debug, Default)]
pub struct Span(Option<Box<Recording>>);

impl Span {
    /// Starts a span caused by `parent`; without a parent, or with an unreadable one, it starts a new trace.
    pub fn begin(kind: Kind, parent: Option<&str>, name: impl FnOnce() -> String) -> Self {
        Self::make(kind, parent, None, name)
    }

    /// As [`Span::begin`], for what has begun at `start`.
    pub fn begun_at(
        start: SystemTime,
        kind: Kind,
        parent: Option<&str>,
        name: impl FnOnce() -> String,
    ) -> Self {
        Self::make(kind, parent, Some(start), name)
    }

    fn make(
        kind: Kind,
        parent: Option<&str>,
        start: Option<SystemTime>,
        name: impl FnOnce() -> String,
    ) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let parent = parent.and_then(parse);
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let mut builder = tracer.span_builder(name()).with_kind(kind);
        builder.start_time = start;
        Self(Some(Box::new(tracer.build_with_context(builder, &context))))
    }

    /// Says something of it: a word, a number or an id, never a text that somebody wrote.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// As [`Span::set`], for what takes time to make.
    pub fn set_with<V: Into<Value>>(&mut self, key: &'static str, value: impl FnOnce() -> V) {
        if let Some(span) = self.0.as_mut().filter(|span| span.is_recording()) {
            span.set_attribute(KeyValue::new(key, value()));
        }
    }

    /// Something else led to it too.
    pub fn link(&mut self, traceparent: &str) {
        if let (Some(span), Some(other)) = (&mut self.0, parse(traceparent)) {
            span.add_link(other, Vec::new());
        }
    }

    /// It did not succeed; `code` is a stable word.
    pub fn fail(&mut self, code: &str) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new("error.type", code.to_owned()));
            span.set_status(Status::error(""));
        }
    }

    /// It ended at `end`, sooner than this is dropped.
    pub fn end_at(mut self, end: SystemTime) {
        if let Some(span) = &mut self.0 {
            span.end_with_timestamp(end);
        }
    }

    /// Names it to what it leads to.
    pub fn traceparent(&self) -> Option<String> {
        let context = self.0.as_ref()?.span_context();
        context.is_valid().then(|| {
            let flags = context.trace_flags().to_u8();
            format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
        })
    }

    /// Does `work` as a part of it: spans that are begun in it for [`current`] are its children.
    pub async fn around<F: Future>(&self, work: F) -> F::Output {
        match self.traceparent() {
            Some(traceparent) => CURRENT.scope(traceparent, work).await,
            None => work.await,
        }
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, see the W3C's Trace Context.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (Some(_version), Some(trace), Some(span), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let parent = SpanContext::new(trace, span, flags, true, TraceState::default());
    parent.is_valid().then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_trace_parent_and_whether_it_is_recorded() {
        let parent = parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!(parent.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id().to_string(), "b7ad6b7169203331");
        assert!(parent.is_sampled() && parent.is_remote());
        assert!(!parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe").unwrap().is_sampled());
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-xyz-b7ad6b7169203331-01",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn without_a_collector_a_span_is_nothing() {
        let mut span = Span::begin(Kind::Internal, None, || unreachable!("no name is made"));
        span.set_with("key", || -> String { unreachable!("no value is made") });
        span.fail("word");
        assert!(span.traceparent().is_none() && !is_tracing());
        assert!(span.around(async { current() }).await.is_none());
    }
}
