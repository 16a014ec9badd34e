//! Whether the service works.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::state::{AppState, State as Gateway};

/// Health never waits longer.
const PATIENCE: Duration = Duration::from_secs(1);

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
    let broker = state.bus.is_connected();
    let word = |works: bool| if works { "ok" } else { "error" };
    let out = HealthOut {
        status: if database && broker { "ok" } else { "degraded" },
        version: env!("CARGO_PKG_VERSION"),
        components: ComponentsOut { database: word(database), api: "ok", broker: word(broker) },
    };
    let status = if database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(out)).into_response()
}

/// Whether the service works, at the root.
#[utoipa::path(get, path = "/health", tag = "health", operation_id = "health",
    responses((status = 200, body = HealthOut), (status = 503, body = HealthOut)))]
pub(crate) async fn root_health(state: State<AppState>) -> Response {
    health(state).await
}

/// Whether the process runs.
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez", responses((status = 200)))]
pub(crate) async fn live() -> Json<serde_json::Value> {
    Json(json!({"status": "ok"}))
}

/// Whether requests can be served: database and broker answer.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", responses((status = 200), (status = 503)))]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    let ready = state.bus.is_connected() && database_answers(&state).await && !state.stop.is_cancelled();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"status": if ready { "ok" } else { "unavailable" }}))).into_response()
}

/// Name and version.
#[utoipa::path(get, path = "/api/info", tag = "health", operation_id = "info", responses((status = 200, body = InfoOut)))]
pub(crate) async fn info() -> Json<InfoOut> {
    Json(InfoOut { name: "Signalbox", version: env!("CARGO_PKG_VERSION"), docs: "/api/docs" })
}

async fn database_answers(state: &Gateway) -> bool {
    let asked = sqlx::query("SELECT 1").execute(&state.pool);
    matches!(timeout(PATIENCE, asked).await, Ok(Ok(_)))
}
