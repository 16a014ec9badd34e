//! Whether the service works.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use serde_json::json;
use signalbox_documents::Offer;
use signalbox_projections::{identity::queries::has_users, monitoring::series::last_time};
use tokio::{sync::Mutex, time::timeout};
use utoipa::ToSchema;

use crate::state::{AppState, State as Gateway};

/// Health never waits longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the time of the newest datapoint is remembered.
const MEMORY: TimeDelta = TimeDelta::milliseconds(800);

/// Whether the service works.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthOut {
    /// `ok` or `degraded`.
    status: &'static str,
    version: &'static str,
    components: ComponentsOut,
}

/// Whether its parts work: `ok` or `error` each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ComponentsOut {
    database: &'static str,
    api: &'static str,
    broker: &'static str,
}

/// Whether the service works, since when, and when the last datapoint was measured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FullHealthOut {
    #[serde(flatten)]
    health: HealthOut,
    /// `ok` or `error`.
    database: &'static str,
    /// Time of the newest datapoint, at most a second old; null when there is none, or while it cannot be found out.
    last_datapoint: Option<DateTime<Utc>>,
    /// Since this process began to serve.
    uptime_seconds: f64,
}

/// What health remembers: it is asked by everybody, without limits, and must cost next to nothing.
#[derive(Debug)]
pub(crate) struct Pulse {
    started: DateTime<Utc>,
    /// Whoever comes while it is being looked up waits for the answer.
    newest: Mutex<Option<Newest>>,
}

/// The time of the newest datapoint, and when it was looked up.
#[derive(Debug, Clone, Copy)]
struct Newest {
    time: Option<DateTime<Utc>>,
    at: DateTime<Utc>,
}

impl Pulse {
    /// The pulse of a gateway that starts at `started`.
    pub(crate) fn new(started: DateTime<Utc>) -> Self {
        Self { started, newest: Mutex::default() }
    }

    async fn last_datapoint(&self, state: &Gateway) -> Option<DateTime<Utc>> {
        timeout(PATIENCE, self.look_up(state)).await.ok().flatten()
    }

    async fn look_up(&self, state: &Gateway) -> Option<DateTime<Utc>> {
        let mut newest = self.newest.lock().await;
        let now = state.clock.now();
        if let Some(known) = newest.filter(|known| now - known.at < MEMORY) {
            return known.time;
        }
        let time = last_time(&state.pool).await.ok()?;
        *newest = Some(Newest { time, at: now });
        time
    }
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
pub(crate) async fn health(State(state): State<AppState>) -> Response {
    let database = database_answers(&state).await;
    (status_code(database), Json(HealthOut::new(&state, database))).into_response()
}

/// Whether the service works, since when, and when the last datapoint was measured.
#[utoipa::path(get, path = "/health", tag = "health", operation_id = "health",
    responses((status = 200, body = FullHealthOut), (status = 503, body = FullHealthOut)))]
pub(crate) async fn root_health(State(state): State<AppState>) -> Response {
    let (database, out) = full_health(&state).await;
    (status_code(database), Json(out)).into_response()
}

/// Whether the database answers, and the whole record.
async fn full_health(state: &Gateway) -> (bool, FullHealthOut) {
    let (database, last_datapoint) = tokio::join!(database_answers(state), state.pulse.last_datapoint(state));
    let up = state.clock.now() - state.pulse.started;
    let out = FullHealthOut {
        health: HealthOut::new(state, database),
        database: word(database),
        last_datapoint,
        uptime_seconds: (up.num_milliseconds() / 100) as f64 / 10.0,
    };
    (database, out)
}

/// The same, and who reads documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct V1HealthOut {
    #[serde(flatten)]
    health: FullHealthOut,
    /// Engines that work.
    extractors: Vec<&'static str>,
    /// Whether text in pictures can be recognised.
    ocr_available: bool,
}

/// Whether the service works, since when, when the last datapoint was measured, and who reads documents.
#[utoipa::path(get, path = "/api/v1/health", tag = "health", operation_id = "api_v1_health",
    responses((status = 200, body = V1HealthOut), (status = 503, body = V1HealthOut)))]
pub(crate) async fn v1_health(State(state): State<AppState>) -> Response {
    let offer = async {
        match &state.documents {
            Some(documents) => timeout(PATIENCE, documents.offer()).await.unwrap_or_default(),
            None => Offer::default(),
        }
    };
    let ((database, health), offer) = tokio::join!(full_health(&state), offer);
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

/// Whether requests can be served: database and broker answer, and there is somebody who can log in.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", responses((status = 200), (status = 503)))]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    let users = timeout(PATIENCE, has_users(&state.pool)).await;
    let ready = state.bus.is_connected() && matches!(users, Ok(Ok(true))) && !state.stop.is_cancelled();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"status": if ready { "ok" } else { "unavailable" }}))).into_response()
}

/// Name and version.
#[utoipa::path(get, path = "/api/info", tag = "health", operation_id = "info", responses((status = 200, body = InfoOut)))]
pub(crate) async fn info() -> Json<InfoOut> {
    Json(InfoOut { name: "Signalbox", version: env!("CARGO_PKG_VERSION"), docs: "/api/docs" })
}

impl HealthOut {
    fn new(state: &Gateway, database: bool) -> Self {
        let broker = state.bus.is_connected();
        Self {
            status: if database && broker { "ok" } else { "degraded" },
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

async fn database_answers(state: &Gateway) -> bool {
    let asked = sqlx::query("SELECT 1").execute(&state.pool);
    matches!(timeout(PATIENCE, asked).await, Ok(Ok(_)))
}
