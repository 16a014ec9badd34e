//! Values from clients of InfluxDB, versions 1 and 2: Telegraf, collectors, devices.
//!
//! An adapter of the seam in [`super::ingestion`]. Every numeric or boolean field is a value of the channel whose labels are
//! `_measurement`, `_field` and the tags. Lines that are wrong are left out and the others written: 400 says so, and names the
//! first; 204 says that all are committed.

mod batch;
mod line;
pub(super) mod query;

use std::collections::{BTreeMap, btree_map::Entry};

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use signalbox_metrics::metrics;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use self::batch::{Batch, MAX_BYTES, Precision};
use super::ingestion::{RefusedValues, take_series};
use crate::{
    auth::{CurrentUser, Writer},
    context::RequestContext,
    extract::{Params, is_zipped, read_body, unzipped},
    monitoring::ingestion::IngestionServices,
    problem::{InfluxErrorOut, Problem, ProblemKind},
};

/// Largest body of lines, compressed or not.
pub(super) const MAX_WRITE_BYTES: usize = MAX_BYTES;

const VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
/// The version whose write interfaces are served here, both of them.
const SERVED: HeaderValue = HeaderValue::from_static("1.8.10-signalbox");

/// How lines are written. Other parameters of InfluxDB, such as `org`, `bucket`, `db` and `rp`, are accepted and without effect.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WriteParams {
    /// Unit of the times: `ns`, `us`, `ms` or `s`, and in version 1 also `u`, `m` and `h`; `ns`, if it is absent.
    #[param(value_type = Option<crate::words::Precision>)]
    precision: Option<String>,
}

/// Write values as line protocol, as clients of InfluxDB 2 do. `Authorization: Token …` presents an API token; the body may be
/// compressed by gzip.
#[utoipa::path(post, path = "/api/v2/write", tag = "line protocol", security(("jwt" = [])), params(WriteParams), operation_id = "write_lines",
    request_body(content = String, content_type = "text/plain", description = "Lines: `measurement,tag=value field=1.5 time`."),
    responses((status = 204), (status = 400, body = InfluxErrorOut), (status = 401, body = InfluxErrorOut), (status = 403, body = InfluxErrorOut)))]
pub(super) async fn write(
    State(services): State<IngestionServices>,
    Writer(user): Writer,
    context: RequestContext,
    Params(params): Params<WriteParams>,
    request: Request,
) -> Result<Response, Problem> {
    write_lines(&services, &user, &context, params.precision.as_deref(), request).await
}

/// Write values as line protocol, as clients of InfluxDB 1 do. The API token is the password of Basic authentication or `p`; the
/// body may be compressed by gzip.
#[utoipa::path(post, path = "/write", tag = "line protocol", security(("jwt" = [])), params(WriteParams), operation_id = "write_lines_v1",
    request_body(content = String, content_type = "text/plain", description = "Lines: `measurement,tag=value field=1.5 time`."),
    responses((status = 204), (status = 400, body = InfluxErrorOut), (status = 401, body = InfluxErrorOut), (status = 403, body = InfluxErrorOut)))]
pub(super) async fn write_v1(
    State(services): State<IngestionServices>,
    Writer(user): Writer,
    context: RequestContext,
    Params(params): Params<WriteParams>,
    request: Request,
) -> Result<Response, Problem> {
    write_lines(&services, &user, &context, params.precision.as_deref(), request).await
}

/// Whether line protocol is taken here, as clients of InfluxDB ask first. `X-Influxdb-Version` has the version that is served.
#[utoipa::path(get, path = "/ping", tag = "line protocol", operation_id = "ping", responses((status = 204)))]
pub(super) async fn ping() -> Response {
    (StatusCode::NO_CONTENT, [(VERSION, SERVED)]).into_response()
}

async fn write_lines(
    services: &IngestionServices,
    user: &CurrentUser,
    context: &RequestContext,
    precision: Option<&str>,
    request: Request,
) -> Result<Response, Problem> {
    let precision = Precision::named(precision)
        .ok_or_else(|| Problem::field("precision", "must be ns, us, ms, s, m or h"))?;
    let is_zipped = is_zipped(request.headers())?;
    let body = read_body(request).await?;
    let read = spawn_blocking(move || match is_zipped {
        true => Batch::read(&unzipped(&body, MAX_BYTES)?, precision),
        false => Batch::read(&body, precision),
    });
    let batch = read.await.map_err(|error| Problem::internal(&error))??;
    metrics().left_out("text", batch.texts);
    let refused_values = take_series(services, user, context, &batch.series, &batch.values).await?;
    match refusal(&refused_lines(&batch, refused_values), batch.lines) {
        Some(problem) => Err(problem),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Why a line was not written, or one of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refused {
    reason: String,
    /// Whether other fields of it were written.
    is_partial: bool,
}

/// Lines that were not written, or not all of their fields, by their numbers.
fn refused_lines(batch: &Batch, values: RefusedValues) -> BTreeMap<usize, Refused> {
    let of_fault =
        |(line, fault): &(usize, &str)| (*line, Refused { reason: (*fault).to_owned(), is_partial: false });
    let mut refused: BTreeMap<_, _> = batch.faults.iter().map(of_fault).collect();
    for (index, reason) in &values {
        let line = batch.lines_of_values[*index];
        if let Entry::Vacant(entry) = refused.entry(line) {
            let is_partial = batch.values_of(line).any(|other| !values.contains_key(&other));
            let reason = match is_partial.then(|| batch.field(*index)).flatten() {
                Some(field) => format!("{reason}; its field {field:?} was left out"),
                None => reason.clone(),
            };
            entry.insert(Refused { reason, is_partial });
        }
    }
    refused
}

/// The answer if any of `lines` lines was refused.
fn refusal(refused: &BTreeMap<usize, Refused>, lines: usize) -> Option<Problem> {
    let (line, Refused { reason, .. }) = refused.first_key_value()?;
    let partly = refused.values().filter(|refused| refused.is_partial).count();
    let dropped = refused.len() - partly;
    // Clients of version 1 recognise a partial write by these words.
    let begin = if dropped < lines { "partial write: " } else { "" };
    let in_part = if partly > 0 { format!(", {partly} of them in part") } else { String::new() };
    let detail = format!(
        "{begin}unable to write line {line}: {reason}; {} of {lines} lines were written{in_part} dropped={dropped}",
        lines.saturating_sub(dropped)
    );
    Some(Problem::new(ProblemKind::Malformed, "invalid_lines", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(lines: &[usize]) -> BTreeMap<usize, Refused> {
        let of = |line: &usize| (*line, Refused { reason: format!("reason {line}"), is_partial: false });
        lines.iter().map(of).collect()
    }

    #[test]
    fn the_first_refused_line_is_named() {
        assert_eq!(refusal(&refused(&[]), 3), None);
        let some = refusal(&refused(&[7, 3]), 3).unwrap();
        assert_eq!(
            some.detail(),
            "partial write: unable to write line 3: reason 3; 1 of 3 lines were written dropped=2"
        );
        let all = refusal(&refused(&[1]), 1).unwrap();
        assert_eq!(all.detail(), "unable to write line 1: reason 1; 0 of 1 lines were written dropped=1");
    }

    #[test]
    fn lines_without_some_of_their_fields_are_written_in_part() {
        let batch = Batch::read(b"m a=1,b=2 1\nm c=1,d=2 1\nm e=1 1", Precision::Seconds).unwrap();
        let left_out =
            |indexes: &[usize]| indexes.iter().map(|index| (*index, "no room".to_owned())).collect();
        let some = refusal(&refused_lines(&batch, left_out(&[1, 2, 3])), batch.lines).unwrap();
        assert_eq!(
            some.detail(),
            "partial write: unable to write line 1: no room; its field \"b\" was left out; 2 of 3 lines were written, 1 of them in \
             part dropped=1"
        );
        let whole = refusal(&refused_lines(&batch, left_out(&[0, 1])), batch.lines).unwrap();
        assert_eq!(
            whole.detail(),
            "partial write: unable to write line 1: no room; 2 of 3 lines were written dropped=1"
        );
    }
}
