//! Whether the service works.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use signalbox_database::{Fault, answers, on_behalf};
use signalbox_documents::{Documents, Offer};
use signalbox_messaging::Bus;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    readiness::Readiness,
    services::{
        pulse::{PROBE_TIMEOUT, Pulse},
        replica::Database,
    },
};

/// Whether the service works.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthOut {
    /// `ok`, or `degraded` while a part does not work.
    #[schema(value_type = crate::words::HealthStatus)]
    status: &'static str,
    version: &'static str,
    components: ComponentsOut,
}

/// Whether its parts work: `ok` or `error` each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ComponentsOut {
    #[schema(value_type = crate::words::PartStatus)]
    database: &'static str,
    #[schema(value_type = crate::words::PartStatus)]
    api: &'static str,
    #[schema(value_type = crate::words::PartStatus)]
    broker: &'static str,
}

/// Whether the service works, since when, and when the last datapoint was measured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FullHealthOut {
    #[serde(flatten)]
    health: HealthOut,
    /// `ok` or `error`.
    #[schema(value_type = crate::words::PartStatus)]
    database: &'static str,
    /// Time of the newest datapoint, at most a second old; null when there is none, or while it cannot be found out.
    last_datapoint: Option<DateTime<Utc>>,
    /// Since this process began to serve.
    uptime_seconds: f64,
    /// Parts of the installation that do not work; at most a second old.
    faults: Vec<FaultOut>,
}

/// A part that does not work.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FaultOut {
    /// Kind and name, e.g. `worker.cleanup`. `signalbox doctor` and the log give the reason.
    part: String,
    /// When it was first seen not to work.
    since: DateTime<Utc>,
}

/// Whether requests can be served, and what is missing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReadyOut {
    /// `ok` or `unavailable`.
    #[schema(value_type = crate::words::ReadyStatus)]
    status: &'static str,
    /// `broker`, `commands`, `read_models`, `database`, `background_database`, `users` or `stopping`.
    #[schema(value_type = Vec<crate::words::MissingPart>)]
    missing: Vec<&'static str>,
}

/// Name and version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InfoOut {
    name: &'static str,
    version: &'static str,
    /// Path of the interface's description.
    docs: &'static str,
}

/// Whether the service works.
#[utoipa::path(get, path = "/api/health", tag = "health", operation_id = "api_health",
    responses((status = 200, body = HealthOut), (status = 503, body = HealthOut)))]
pub(crate) async fn health(
    State(database): State<Database>,
    State(bus): State<Bus>,
    State(pulse): State<Arc<Pulse>>,
) -> Response {
    let (database, faults) = tokio::join!(database_answers(&database), pulse.faults());
    (status_code(database), Json(HealthOut::new(&bus, database, &faults))).into_response()
}

/// Whether the service works, since when, and when the last datapoint was measured.
#[utoipa::path(get, path = "/health", tag = "health", operation_id = "health",
    responses((status = 200, body = FullHealthOut), (status = 503, body = FullHealthOut)))]
pub(crate) async fn root_health(
    State(database): State<Database>,
    State(bus): State<Bus>,
    State(pulse): State<Arc<Pulse>>,
) -> Response {
    let (database, out) = full_health(&database, &bus, &pulse).await;
    (status_code(database), Json(out)).into_response()
}

/// Whether the database answers, and the whole record.
async fn full_health(database: &Database, bus: &Bus, pulse: &Pulse) -> (bool, FullHealthOut) {
    let (database, last_datapoint, faults) =
        tokio::join!(database_answers(database), pulse.last_datapoint(), pulse.faults());
    let up = pulse.uptime();
    let out = FullHealthOut {
        health: HealthOut::new(bus, database, &faults),
        database: word(database),
        last_datapoint,
        uptime_seconds: (up.as_millis() / 100) as f64 / 10.0,
        faults: faults.into_iter().map(FaultOut::from).collect(),
    };
    (database, out)
}

/// The same, and who reads documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct V1HealthOut {
    #[serde(flatten)]
    health: FullHealthOut,
    /// Engines that work.
    #[schema(value_type = Vec<crate::words::ExtractionEngine>)]
    extractors: Vec<&'static str>,
    /// Whether text in pictures can be recognised.
    ocr_available: bool,
}

/// Whether the service works, since when, when the last datapoint was measured, and who reads documents.
#[utoipa::path(get, path = "/api/v1/health", tag = "health", operation_id = "api_v1_health",
    responses((status = 200, body = V1HealthOut), (status = 503, body = V1HealthOut)))]
pub(crate) async fn v1_health(
    State(database): State<Database>,
    State(bus): State<Bus>,
    State(pulse): State<Arc<Pulse>>,
    State(documents): State<Option<Documents>>,
) -> Response {
    let offer = async {
        match &documents {
            Some(documents) => timeout(PROBE_TIMEOUT, documents.offer()).await.unwrap_or_default(),
            None => Offer::default(),
        }
    };
    let ((database, health), offer) = tokio::join!(full_health(&database, &bus, &pulse), offer);
    let out = V1HealthOut {
        health,
        ocr_available: offer.ocr_engines.iter().any(|engine| *engine != "none"),
        extractors: offer.engines.into_iter().filter(|engine| *engine != "auto").collect(),
    };
    (status_code(database), Json(out)).into_response()
}

/// Whether the process runs.
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez", responses((status = 200)))]
pub(crate) async fn live() -> Json<serde_json::Value> {
    Json(json!({"status": "ok"}))
}

/// Whether requests can be served: within the last 10 s a command handler answered, at least one read model moved or had nothing
/// left to apply, and the database answered through each pool of connections; the broker is connected, a user exists, and the
/// process is not stopping. A single part that does not work shows in `/health` instead.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", responses((status = 200, body = ReadyOut), (status = 503, body = ReadyOut)))]
pub(crate) async fn ready(State(readiness): State<Readiness>) -> Response {
    ready_answer(&readiness).await
}

/// The answer of `/readyz`, at a gateway and at the endpoint for operators of any process.
pub(crate) async fn ready_answer(readiness: &Readiness) -> Response {
    let missing = readiness.missing_parts().await;
    let ready = missing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let out = ReadyOut { status: if ready { "ok" } else { "unavailable" }, missing };
    (status, Json(out)).into_response()
}

/// Name and version.
#[utoipa::path(get, path = "/api/info", tag = "health", operation_id = "info", responses((status = 200, body = InfoOut)))]
pub(crate) async fn info() -> Json<InfoOut> {
    Json(InfoOut { name: "Signalbox", version: env!("CARGO_PKG_VERSION"), docs: "/api/docs" })
}

impl From<Fault> for FaultOut {
    fn from(fault: Fault) -> Self {
        Self { part: fault.part, since: fault.since }
    }
}

impl HealthOut {
    fn new(bus: &Bus, database: bool, faults: &[Fault]) -> Self {
        let broker = bus.is_connected();
        Self {
            status: if database && broker && faults.is_empty() { "ok" } else { "degraded" },
            version: env!("CARGO_PKG_VERSION"),
            components: ComponentsOut { database: word(database), api: "ok", broker: word(broker) },
        }
    }
}

fn word(works: bool) -> &'static str {
    if works { "ok" } else { "error" }
}

fn status_code(database: bool) -> StatusCode {
    if database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn database_answers(database: &Database) -> bool {
    let asked = on_behalf((), answers(&database.primary));
    matches!(timeout(PROBE_TIMEOUT, asked).await, Ok(Ok(_)))
}
