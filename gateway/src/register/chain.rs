use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_event_store::{chain_head, head_position};
use utoipa::ToSchema;

use crate::{
    auth::Admin,
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// The end of the hash chain. Kept elsewhere, it proves later that the log up to there is still the same.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChainHeadOut {
    /// Newest position of the log. Events that are not chained yet will be in a moment.
    head: i64,
    /// Position up to which the log is chained; 0 when nothing is.
    position: i64,
    /// SHA-256 of the event there and of all before it; null when nothing is chained.
    hash: Option<String>,
    /// When it was chained.
    written_at: Option<DateTime<Utc>>,
}

/// The end of the hash chain over the log.
#[utoipa::path(get, path = "/api/v1/log/chain", tag = "log", security(("jwt" = [])), operation_id = "get_log_chain",
    responses((status = 200, body = ChainHeadOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut)))]
pub(crate) async fn get(State(database): State<Database>, _: Admin) -> Result<Json<ChainHeadOut>, Problem> {
    let chained = chain_head(&database.primary).await?;
    Ok(Json(ChainHeadOut {
        head: head_position(&database.primary).await?,
        position: chained.map_or(0, |head| head.position),
        hash: chained.map(|head| head.hash.to_string()),
        written_at: chained.map(|head| head.written_at),
    }))
}
