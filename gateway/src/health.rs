//! Whether the service works.

use std::{sync::PoisonError, time::Duration};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use signalbox_database::{faults, on_behalf};
use signalbox_documents::Offer;
use signalbox_projections::monitoring::series::last_time;
use sqlx::PgPool;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use utoipa::ToSchema;

use crate::{
    readiness::ReadyOut,
    state::{AppState, State as Gateway},
};

/// Health never waits longer. What it asked the database ends with it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the time of the newest datapoint is remembered.
const MEMORY: Duration = Duration::from_millis(800);
/// How long the list of faults is remembered.
const FAULTS_MEMORY: Duration = Duration::from_millis(800);

/// Whether the service works.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthOut {
    /// `ok`, or `degraded` while a part does not work.
    #[schema(value_type = crate::openapi::HealthStatus)]
    status: &'static str,
    version: &'static str,
    components: ComponentsOut,
}

/// Whether its parts work: `ok` or `error` each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ComponentsOut {
    #[schema(value_type = crate::openapi::PartStatus)]
    database: &'static str,
    #[schema(value_type = crate::openapi::PartStatus)]
    api: &'static str,
    #[schema(value_type = crate::openapi::PartStatus)]
    broker: &'static str,
}

/// Whether the service works, since when, and when the last datapoint was measured.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FullHealthOut {
    #[serde(flatten)]
    health: HealthOut,
    /// `ok` or `error`.
    #[schema(value_type = crate::openapi::PartStatus)]
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

/// What health remembers: it is asked by everybody, without limits, and must cost next to nothing.
#[derive(Debug)]
pub(crate) struct Pulse {
    started: Duration,
    /// Whoever comes while it is being looked up waits for the answer.
    newest: Mutex<Option<Newest>>,
    faults_read_at: Mutex<Option<Instant>>,
    /// Those known last; none before the first answer.
    faults: std::sync::Mutex<Vec<FaultOut>>,
}

/// The time of the newest datapoint, and when it was looked up.
#[derive(Debug, Clone, Copy)]
struct Newest {
    time: Option<DateTime<Utc>>,
    at: Duration,
}

impl Pulse {
    /// The pulse of a gateway that starts at `started`, by the clock's monotonic time.
    pub(crate) fn new(started: Duration) -> Self {
        Self {
            started,
            newest: Mutex::default(),
            faults_read_at: Mutex::default(),
            faults: std::sync::Mutex::default(),
        }
    }

    async fn last_datapoint(&self, state: &Gateway) -> Option<DateTime<Utc>> {
        timeout(PROBE_TIMEOUT, on_behalf((), self.look_up(state))).await.ok().flatten()
    }

    /// The parts that do not work; those known last while the database does not answer.
    async fn faults(&self, state: &Gateway) -> Vec<FaultOut> {
        match timeout(PROBE_TIMEOUT, on_behalf((), self.look_up_faults(&state.pool))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the faults known last are shown"),
            Err(_) => tracing::debug!("the faults known last are shown: the database is slow"),
        }
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Callers that arrive while the list is read wait for it.
    async fn look_up_faults(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut read_at = self.faults_read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < FAULTS_MEMORY) {
            return Ok(());
        }
        let found = faults(pool).await?.into_iter();
        let found = found.map(|fault| FaultOut { part: fault.part, since: fault.since }).collect();
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = found;
        *read_at = Some(Instant::now());
        Ok(())
    }

    async fn look_up(&self, state: &Gateway) -> Option<DateTime<Utc>> {
        let mut newest = self.newest.lock().await;
        let now = state.clock.monotonic();
        if let Some(known) = newest.filter(|known| now.saturating_sub(known.at) < MEMORY) {
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
    let (database, faults) = tokio::join!(database_answers(&state), state.pulse.faults(&state));
    (status_code(database), Json(HealthOut::new(&state, database, &faults))).into_response()
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
    let pulse = &state.pulse;
    let (database, last_datapoint, faults) =
        tokio::join!(database_answers(state), pulse.last_datapoint(state), pulse.faults(state));
    let up = state.clock.monotonic().saturating_sub(state.pulse.started);
    let out = FullHealthOut {
        health: HealthOut::new(state, database, &faults),
        database: word(database),
        last_datapoint,
        uptime_seconds: (up.as_millis() / 100) as f64 / 10.0,
        faults,
    };
    (database, out)
}

/// The same, and who reads documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct V1HealthOut {
    #[serde(flatten)]
    health: FullHealthOut,
    /// Engines that work.
    #[schema(value_type = Vec<crate::openapi::ExtractionEngine>)]
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
            Some(documents) => timeout(PROBE_TIMEOUT, documents.offer()).await.unwrap_or_default(),
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

/// Whether requests can be served: within 10 s a command was answered, a read model moved or none had work, and the database
/// answered; the broker is connected, and there is somebody who can log in. A single part that does not work shows in `/health`
/// instead.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", responses((status = 200, body = ReadyOut), (status = 503, body = ReadyOut)))]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    state.readiness().answer().await
}

/// Name and version.
#[utoipa::path(get, path = "/api/info", tag = "health", operation_id = "info", responses((status = 200, body = InfoOut)))]
pub(crate) async fn info() -> Json<InfoOut> {
    Json(InfoOut { name: "Signalbox", version: env!("CARGO_PKG_VERSION"), docs: "/api/docs" })
}

impl HealthOut {
    fn new(state: &Gateway, database: bool, faults: &[FaultOut]) -> Self {
        let broker = state.bus.is_connected();
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

async fn database_answers(state: &Gateway) -> bool {
    let asked = on_behalf((), sqlx::query("SELECT 1").execute(&state.pool));
    matches!(timeout(PROBE_TIMEOUT, asked).await, Ok(Ok(_)))
}
