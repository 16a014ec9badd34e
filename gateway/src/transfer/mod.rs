//! Agents, their tokens, jobs and transfers; the bytes of transfers; the agents' sessions.

mod agents;
mod content;
pub(crate) mod doubles;
mod download;
mod job_history;
mod jobs;
mod legs;
mod manifest;
pub(crate) mod messages;
mod pace;
pub(crate) mod peer;
mod polling;
mod progress;
pub(crate) mod requests;
pub(crate) mod services;
mod socket;
mod staged_tree;
mod tokens;
mod transfers;
mod upload;

use axum::routing::get;
use utoipa_axum::routes;

use crate::{
    policy::{Policy, RateClass},
    routes::Routes,
};

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::{tokens::MAX_DAYS as MAX_TOKEN_DAYS, transfers::FILES_OF_ONE};
}

/// The routes of service 1, logins apart.
pub(crate) fn routes() -> Routes {
    // Agents are counted by their token, in the extractor that knows it.
    const AGENT: Policy = Policy::SERVICE_1.rate(RateClass::Uncounted);
    Routes::new(Policy::SERVICE_1)
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
        .routes(routes!(transfers::get, transfers::delete))
        .routes(routes!(transfers::cancel))
        .routes(routes!(content::upload_content))
        .with(AGENT, routes!(upload::upload))
        .with(AGENT, routes!(download::download))
        .with(AGENT, routes!(manifest::manifest))
        .with(AGENT, routes!(polling::connect))
        .with(AGENT, routes!(polling::poll))
        .with(AGENT, routes!(polling::send))
        .with(AGENT, routes!(polling::acknowledge))
        .socket("/ws/agent", get(socket::open))
        .socket("/api/agent/ws", get(socket::open))
}
