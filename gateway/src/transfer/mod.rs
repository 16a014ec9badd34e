//! Agents, their tokens, jobs and transfers; the bytes of transfers; the agents' sessions.

pub(crate) mod agent_keys;
mod agents;
mod download;
mod job_history;
mod jobs;
pub(crate) mod live;
mod manifest;
mod messages;
mod polling;
mod socket;
mod tokens;
mod transfers;
mod upload;

use axum::routing::get;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// The routes of service 1, logins apart.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(agents::list, agents::create))
        .routes(routes!(agents::get, agents::update, agents::delete))
        .routes(routes!(agents::test))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(jobs::list, jobs::create))
        .routes(routes!(jobs::get, jobs::update, jobs::delete))
        .routes(routes!(jobs::run))
        .routes(routes!(job_history::history))
        .routes(routes!(job_history::restore))
        .routes(routes!(transfers::list, transfers::create))
        .routes(routes!(transfers::get))
        .routes(routes!(transfers::cancel))
        .routes(routes!(upload::upload))
        .routes(routes!(download::download))
        .routes(routes!(manifest::manifest))
        .routes(routes!(polling::connect))
        .routes(routes!(polling::poll))
        .routes(routes!(polling::send))
        .routes(routes!(polling::acknowledge))
        .route("/ws/agent", get(socket::open))
        .route("/api/agent/ws", get(socket::open))
}
