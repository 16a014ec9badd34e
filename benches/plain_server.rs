//! The peer of the command and datapoint benches: a plain service without an event log. One handler, one
//! `INSERT … RETURNING` each.

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgPool, postgres::PgPoolOptions};
use tokio::net::TcpListener;
use uuid::Uuid;

/// The first argument of this program when it is to be the peer.
pub const ARGUMENT: &str = "plain-server";

const CONNECTIONS: u32 = 16;

const TABLE: &str = "CREATE TABLE jobs (
    id bigserial PRIMARY KEY, name text NOT NULL, job_type text NOT NULL, enabled boolean NOT NULL,
    source_agent_id bigint NOT NULL, destination_agent_id bigint NOT NULL,
    source_path text NOT NULL, destination_path text NOT NULL, schedule text, timezone text NOT NULL,
    max_attempts int NOT NULL, backoff_seconds int NOT NULL, overlap text NOT NULL, description text,
    last_run timestamptz, next_run timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now())";

const POINTS: &str = "CREATE TABLE points (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), event_public_id uuid NOT NULL, timestamp timestamptz NOT NULL DEFAULT now(),
    value float8 NOT NULL);
    CREATE INDEX points_event_time ON points (event_public_id, timestamp)";

const INSERT: &str =
    "INSERT INTO jobs (name, job_type, enabled, source_agent_id, destination_agent_id, source_path,
    destination_path, schedule, timezone, max_attempts, backoff_seconds, overlap, description)
    VALUES ($1, 'push', true, $2, $3, $4, $5, $6, 'UTC', 3, 5, 'skip', $7) RETURNING *";

#[derive(Deserialize)]
struct JobIn {
    name: String,
    source_agent_id: i64,
    destination_agent_id: i64,
    source_path: String,
    destination_path: String,
    schedule: Option<String>,
    description: Option<String>,
}

#[derive(Serialize, FromRow)]
struct JobOut {
    id: i64,
    name: String,
    job_type: String,
    enabled: bool,
    source_agent_id: i64,
    destination_agent_id: i64,
    source_path: String,
    destination_path: String,
    schedule: Option<String>,
    timezone: String,
    max_attempts: i32,
    backoff_seconds: i32,
    overlap: String,
    description: Option<String>,
    last_run: Option<DateTime<Utc>>,
    next_run: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// Serves on `address` with the empty database at `url`.
pub async fn serve(address: &str, url: &str) -> anyhow::Result<()> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
    pool.execute(TABLE).await?;
    pool.execute(POINTS).await?;
    let router = Router::new()
        .route("/api/jobs", post(create))
        .route("/api/v1/datapoints", post(create_point))
        .with_state(pool);
    axum::serve(TcpListener::bind(address).await?, router).await?;
    Ok(())
}

async fn create(
    State(pool): State<PgPool>,
    Json(job): Json<JobIn>,
) -> Result<(StatusCode, Json<JobOut>), StatusCode> {
    let row = sqlx::query_as(INSERT)
        .bind(job.name)
        .bind(job.source_agent_id)
        .bind(job.destination_agent_id)
        .bind(job.source_path)
        .bind(job.destination_path)
        .bind(job.schedule)
        .bind(job.description)
        .fetch_one(&pool)
        .await;
    row.map(|row| (StatusCode::CREATED, Json(row))).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

#[derive(Deserialize)]
struct PointIn {
    value: f64,
    event_public_id: Uuid,
}

#[derive(Serialize, FromRow)]
struct PointOut {
    public_id: Uuid,
    event_public_id: Uuid,
    timestamp: DateTime<Utc>,
    value: f64,
}

async fn create_point(
    State(pool): State<PgPool>,
    Json(point): Json<PointIn>,
) -> Result<(StatusCode, Json<PointOut>), StatusCode> {
    let row = sqlx::query_as("INSERT INTO points (event_public_id, value) VALUES ($1, $2) RETURNING id AS public_id, event_public_id, timestamp, value")
        .bind(point.event_public_id)
        .bind(point.value)
        .fetch_one(&pool)
        .await;
    row.map(|row| (StatusCode::CREATED, Json(row))).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
