//! Values from Prometheus and from agents that speak its remote write, versions 1.0 and 2.0, and for readers by its remote read.
//!
//! An adapter of the seam in [`super::ingestion`]. A series is the channel with exactly its labels. Senders drop what is answered by
//! 4xx and repeat what is answered by 5xx or 429, so a request with bad series is answered by 400 when the others are committed.

mod batch;
mod fields;
mod messages;
mod read;
mod select;
mod xor;

use std::collections::HashMap;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use signalbox_metrics::metrics;
use tokio::task::spawn_blocking;

use self::batch::{Batch, Fault, MAX_BYTES, Version};
pub(super) use self::read::*;
use super::ingestion::take_series;
use crate::{
    auth::Writer,
    context::RequestContext,
    extract::read_body,
    monitoring::ingestion::IngestionServices,
    problem::{Problem, ProblemKind, ProblemOut},
};

/// Largest compressed body.
pub(super) const MAX_WRITE_BYTES: usize = MAX_BYTES;

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Write values as Prometheus does by remote write, 1.0 or 2.0: a message of Protocol Buffers, compressed by snappy. Native histograms
/// and exemplars are not taken.
#[utoipa::path(post, path = "/api/v1/prometheus/write", tag = "prometheus", security(("jwt" = [])), operation_id = "prometheus_write",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf", description = "`prometheus.WriteRequest` or `io.prometheus.write.v2.Request`, compressed by snappy."),
    responses((status = 204), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 415, body = ProblemOut)))]
pub(super) async fn write(
    State(services): State<IngestionServices>,
    Writer(user): Writer,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    let version = version(request.headers())?;
    let body = read_body(request).await?;
    let read = spawn_blocking(move || Batch::read(&body, version));
    let mut batch = read.await.map_err(|error| Problem::internal(&error))??;
    metrics().left_out("not_a_number", batch.not_numbers);
    metrics().left_out("histogram", batch.histograms);
    let wrong = take_series(&services, &user, &context, &batch.series, &batch.values).await?;
    let written = batch.values.len() - wrong.len();
    let mut samples_of = HashMap::<usize, usize>::new();
    if !wrong.is_empty() {
        batch.places.iter().for_each(|place| *samples_of.entry(*place).or_default() += 1);
    }
    let mut refused = std::mem::take(&mut batch.faults);
    for (index, reason) in wrong {
        let (place, value) = (batch.places[index], &batch.values[index]);
        let fault = refused.entry(place).or_insert_with(|| Fault {
            series: batch.name(value.series),
            reason,
            refused: 0,
            samples: samples_of.get(&place).copied().unwrap_or_default(),
        });
        fault.refused += 1;
    }
    let mut response = match refused.first_key_value() {
        None => StatusCode::NO_CONTENT.into_response(),
        Some((place, fault)) => {
            let detail = refusal(*place, fault, refused.len(), (written, batch.samples));
            Problem::new(ProblemKind::Malformed, "invalid_series", detail).into_response()
        }
    };
    if version == Version::Two {
        for (name, count) in [(SAMPLES, written), (HISTOGRAMS, 0), (EXEMPLARS, 0)] {
            response.headers_mut().insert(name, HeaderValue::from(count));
        }
    }
    Ok(response)
}

/// Says which series has samples that were not written, and how many of them.
fn refusal(place: usize, fault: &Fault, series: usize, (written, samples): (usize, usize)) -> String {
    let Fault { series: name, reason, refused, samples: own } = fault;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!(
        "series {place} of the request{name}: {refused} of its {own} samples were not written: {reason}; in all {written} of \
         {samples} samples were written, {} refused, of {series} series",
        samples - written
    )
}

/// The version of a request, by its type.
fn version(headers: &HeaderMap) -> Result<Version, Problem> {
    let unsupported = |detail: &str| Problem::new(ProblemKind::UnsupportedType, "unsupported_type", detail);
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    if !text(header::CONTENT_ENCODING).eq_ignore_ascii_case("snappy") {
        return Err(unsupported("Content-Encoding must be snappy"));
    }
    let mut parts = text(header::CONTENT_TYPE).split(';').map(str::trim);
    let is_protobuf = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/x-protobuf"));
    let message = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("proto").then(|| value.trim_matches('"'))
    });
    match message {
        None | Some("prometheus.WriteRequest") if is_protobuf => Ok(Version::One),
        Some("io.prometheus.write.v2.Request") if is_protobuf => Ok(Version::Two),
        _ => Err(unsupported(
            "Content-Type must be application/x-protobuf of prometheus.WriteRequest or io.prometheus.write.v2.Request",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_series_and_counts_its_samples() {
        let fault =
            Fault { series: "up{job=\"a\"}".into(), reason: "too early".into(), refused: 1, samples: 4 };
        assert_eq!(
            refusal(2, &fault, 1, (6, 7)),
            "series 2 of the request up{job=\"a\"}: 1 of its 4 samples were not written: too early; in all 6 of 7 samples were \
             written, 1 refused, of 1 series"
        );
    }

    #[test]
    fn the_content_type_names_the_version() {
        let of = |kind: &'static str, encoding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            version(&headers).ok()
        };
        assert_eq!(of("application/x-protobuf", "snappy"), Some(Version::One));
        assert_eq!(of("application/x-protobuf;proto=prometheus.WriteRequest", "snappy"), Some(Version::One));
        assert_eq!(
            of("application/x-protobuf; proto=io.prometheus.write.v2.Request", "snappy"),
            Some(Version::Two)
        );
        assert_eq!(
            of("application/x-protobuf; Proto=\"io.prometheus.write.v2.Request\"", "snappy"),
            Some(Version::Two)
        );
        assert_eq!(of("application/x-protobuf;proto=other", "snappy"), None);
        assert_eq!(of("application/json", "snappy"), None);
        assert_eq!(of("application/x-protobuf", "gzip"), None);
    }
}
