//! The datapoints of an experiment, or of a range of time, written as they are read: memory is bounded, however many they are.

use std::{fmt::Write, io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SecondsFormat, Utc};
use futures::stream;
use serde::Deserialize;
use signalbox_database::{SharedServerClock, on_behalf};
use signalbox_datapoint_log::{ChunkPoint, IdKey, moment, read_rows};
use signalbox_domain::kernel::UserId;
use signalbox_projections::monitoring::{
    queries::{ExperimentSpan, labelled_channel_numbers},
    series::{Counts, Datapoint, Export, ExportSpan, counting, note_skipped},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use super::{datapoint_reads::time, datapoints::show, labels::LabelFilter};
use crate::{
    answer::attachment,
    auth::Reader,
    context_services::services,
    extract::{Params, Text, key},
    problem::{Problem, ProblemKind, ProblemOut},
    services::{
        catalog::{Catalog, Catalogs},
        replica::Database,
        shares::Exports,
    },
    shares::Full,
};

/// Exports at the same time; each holds a slice in memory.
pub(crate) const EXPORTS: usize = 16;
/// Those of one user.
pub(crate) const EXPORTS_EACH: u32 = 2;
/// Rows of a piece.
const PIECE: usize = 2000;
/// Pieces that wait for the client.
const AHEAD: usize = 2;
/// How long a client may take to read a piece before it is given up.
const STALLED: Duration = Duration::from_secs(60);
/// Characters that a text must not begin with, because a spreadsheet would read it as a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

const HEADER: &str = "timestamp,event_name,event_public_id,value,unit,datapoint_public_id\r\n";

/// A part of the answer to the client.
enum Piece {
    Rows(Bytes),
    /// All was sent. Without this the connection is broken off, so that nobody takes a part for the whole.
    End,
}

services! {
    /// Services that many values are read by.
    ExportServices {
        catalogs: Arc<Catalogs>,
        database: Database,
        datapoint_ids: IdKey,
        exports: Exports,
        server_clock: SharedServerClock,
        stop: CancellationToken,
    }
}

/// The datapoints of an experiment as CSV, oldest first.
#[utoipa::path(get, path = "/api/v1/experiments/{id}/export/csv", tag = "experiments", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "export_experiment",
    responses((status = 200, body = String, content_type = "text/csv"), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut)))]
pub(crate) async fn export(
    State(services): State<ExportServices>,
    Reader(user): Reader,
    Text(id): Text,
) -> Result<Response, Problem> {
    let missing = || Problem::not_found("Experiment");
    let id = key("Experiment", &id)?;
    let catalog = services.catalogs.fresh().await?;
    let span = catalog.experiment(id).ok_or_else(missing)?.clone();
    let end = Catalog::end_of(&span, services.server_clock.now());
    let range = ExportSpan { from: span.started_at, to: Some(end), ..ExportSpan::default() };
    stream_points(services, user.id, range, (Format::Csv, file_name(&span))).await
}

/// Which datapoints are exported, and how they are written.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportParams {
    /// `csv` (default), or `ndjson`: a datapoint as JSON on each line.
    #[param(value_type = Option<crate::words::ExportFormat>)]
    format: Option<Format>,
    /// Measured at or after, ISO 8601.
    from: Option<String>,
    /// Measured before, ISO 8601.
    to: Option<String>,
    /// The `public_id` of the last datapoint received: the export continues behind it.
    after: Option<String>,
}

/// How datapoints are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    #[default]
    Csv,
    Ndjson,
}

/// Datapoints in the order of time; those of one instant in the order of their arrival. With the same parameters and `after`, an export
/// that was broken off continues behind the last datapoint received. Values that have arrived since are contained as far as
/// they were measured later than that one.
#[utoipa::path(get, path = "/api/v1/datapoints/export", tag = "datapoints", security(("jwt" = [])), params(ExportParams, LabelFilter), operation_id = "export_datapoints",
    responses((status = 200, description = "The datapoints", content((String = "text/csv"), (String = "application/x-ndjson"))), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn export_datapoints(
    State(services): State<ExportServices>,
    Reader(user): Reader,
    Params(params): Params<ExportParams>,
    LabelFilter(labels): LabelFilter,
) -> Result<Response, Problem> {
    let ExportParams { format, from, to, after } = params;
    let (from, to) = (time("from", from.as_deref())?, time("to", to.as_deref())?);
    let from = from.unwrap_or(DateTime::<Utc>::MIN_UTC);
    if to.is_some_and(|to| from >= to) {
        return Err(Problem::field("from", "must be before to"));
    }
    let channels = if labels.is_empty() {
        None
    } else {
        Some(services.database.read(|pool| labelled_channel_numbers(pool, &labels)).await?)
    };
    let after = match after {
        Some(after) => Some(place_in_time(&services.database, &services.datapoint_ids, &after).await?),
        None => None,
    };
    let format = format.unwrap_or_default();
    let name = format!("datapoints.{}", format.extension());
    stream_points(services, user.id, ExportSpan { from, to, channels, after }, (format, name)).await
}

/// The datapoint that a client calls `id`, which may have been deleted since.
async fn place_in_time(database: &Database, datapoint_ids: &IdKey, id: &str) -> Result<ChunkPoint, Problem> {
    let missing = || Problem::field("after", "must be the public_id of a datapoint that is kept");
    let place = crate::extract::id(id).and_then(|id| datapoint_ids.place(id)).ok_or_else(missing)?;
    let rows = read_rows(&database.primary, &[(place.position, place.day)]).await?;
    let found = rows.first().and_then(|row| row.point(place.index).ok().flatten());
    let (_, found) = found.ok_or_else(missing)?;
    Ok(ChunkPoint { time: found.time, value: found.value, position: place.position, index: place.index })
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Ndjson => "application/x-ndjson",
        })
    }
}

/// Why there is no place for another export, or another remote read.
pub(super) fn full(full: Full) -> Problem {
    match full {
        Full::Own => Problem::new(
            ProblemKind::TooMany,
            "rate_limited",
            format!(
                "you have {EXPORTS_EACH} exports or remote reads under way, or they took long just now: try again when one has ended"
            ),
        )
        .retry_after(1),
        Full::All => Problem::unavailable("Too many exports are running: try again in a moment."),
    }
}

/// The points of `span` as a body that is written while they are read.
async fn stream_points(
    services: ExportServices,
    user: UserId,
    span: ExportSpan,
    (format, name): (Format, String),
) -> Result<Response, Problem> {
    let place = services.exports.take(&user.to_string()).await.map_err(full)?;
    let (export, known) = counting(Export::begin(&services.database.primary, span)).await;
    note_skipped(known.rows);
    let export = export?;
    // Events that are younger than the catalog may have sent values.
    let catalog = services.catalogs.newest().await?;
    let (sender, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let written = tokio::select! {
            written = on_behalf(place, write_rows(&services.server_clock, &services.datapoint_ids, &catalog, (export, known), (format, &sender))) => written,
            () = sender.closed() => Err("the client has gone away".to_owned()),
            () = services.stop.cancelled() => Err("the service stops".to_owned()),
        };
        if let Err(reason) = written {
            tracing::warn!(reason, "an export was broken off");
        }
    });
    let body = stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Rows(rows)) => Some((Ok(rows), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::other("the export was broken off")), None)),
        }
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, format.content_type());
    if let Ok(value) = HeaderValue::from_str(&attachment(&name)) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

fn file_name(span: &ExperimentSpan) -> String {
    let name = span.name.replace(' ', "_").replace('/', "-");
    let id = span.id.to_string();
    format!("experiment_{name}_{}.csv", &id[..8])
}

async fn write_rows(
    server_clock: &SharedServerClock,
    datapoint_ids: &IdKey,
    catalog: &Catalog,
    (mut export, known): (Export, Counts),
    (format, pieces): (Format, &mpsc::Sender<Piece>),
) -> Result<(), String> {
    let send = async |piece: Piece| match timeout(STALLED, pieces.send(piece)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the client has gone away".to_owned()),
        Err(_) => Err("the client has stopped reading".to_owned()),
    };
    if format == Format::Csv {
        send(Piece::Rows(Bytes::from_static(HEADER.as_bytes()))).await?;
    }
    loop {
        let (next, skipped) = counting(export.next()).await;
        // The header that would say so has been sent.
        if skipped.rows > known.rows || skipped.damaged > 0 {
            return Err("some of its datapoints cannot be decoded".to_owned());
        }
        let Some(points) = next.map_err(|error| error.to_string())? else { break };
        for points in points.chunks(PIECE) {
            let mut rows = String::with_capacity(points.len() * 160);
            for point in points {
                match format {
                    Format::Csv => push_row(&mut rows, datapoint_ids, catalog, point),
                    Format::Ndjson => push_line(&mut rows, server_clock, datapoint_ids, catalog, point)?,
                }
            }
            send(Piece::Rows(rows.into())).await?;
        }
    }
    send(Piece::End).await
}

fn push_row(rows: &mut String, datapoint_ids: &IdKey, catalog: &Catalog, point: &Datapoint) {
    let channel = catalog.numbered(point.channel);
    let time = moment(point.point.time).to_rfc3339_opts(SecondsFormat::Micros, false);
    let name = text_cell(channel.map_or("", |known| &known.name));
    let unit = text_cell(channel.and_then(|known| known.unit.as_deref()).unwrap_or_default());
    let id = channel.map_or("", |known| &known.public_id);
    let (value, point) = (number_cell(point.point.value), datapoint_ids.id(point.place()));
    // Writing to a string does not fail.
    let _ = write!(rows, "{time},{name},{id},{value},{unit},{point}\r\n");
}

fn push_line(
    rows: &mut String,
    server_clock: &SharedServerClock,
    datapoint_ids: &IdKey,
    catalog: &Catalog,
    point: &Datapoint,
) -> Result<(), String> {
    let line = serde_json::to_string(&show(server_clock, datapoint_ids, catalog, point))
        .map_err(|error| error.to_string())?;
    rows.push_str(&line);
    rows.push('\n');
    Ok(())
}

/// A text of a user as a cell, quoted where it must be.
fn text_cell(text: &str) -> String {
    let text = if text.starts_with(FORMULA) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The shortest text that is read as the same float, with an exponent of at least two digits: `0.1`, `7.0`, `1e+22`.
fn number_cell(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn numbers_are_short_and_exact() {
        for (value, expected) in [
            (0.1, "0.1"),
            (7.0, "7.0"),
            (-0.0, "-0.0"),
            (1e22, "1e+22"),
            (1.5e300, "1.5e+300"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (123_456_789.25, "123456789.25"),
        ] {
            assert_eq!(number_cell(value), expected);
            assert_eq!(expected.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn texts_are_quoted_and_are_no_formulas() {
        for (text, expected) in [
            ("boiler", "boiler"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-x,y", "\"'-x,y\""),
            ("@cmd", "'@cmd"),
            ("\tx", "'\tx"),
            ("a=b", "a=b"),
        ] {
            assert_eq!(text_cell(text), expected);
        }
    }

    #[test]
    fn a_file_is_named_after_its_experiment() {
        let span = ExperimentSpan {
            id: Uuid::from_u128(0x0123_4567_89ab << 80),
            name: "Prüfung 1/2 \"heiß\"".to_owned(),
            started_at: chrono::DateTime::UNIX_EPOCH,
            stopped_at: None,
        };
        let name = file_name(&span);
        assert_eq!(name, "experiment_Prüfung_1-2_\"heiß\"_01234567.csv");
        let header = attachment(&name);
        assert!(
            header.starts_with("attachment; filename=\"experiment_Pr_fung_1-2__hei___01234567.csv\""),
            "{header}"
        );
        assert!(header.is_ascii());
    }
}
