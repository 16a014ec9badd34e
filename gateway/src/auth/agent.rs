use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};

use super::charge::Charge;
use crate::{
    connections::Connection, limits::Rate, problem::Problem, services::auth::AgentAuth, state::Services,
};

impl FromRequestParts<Services> for AgentAuth {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        if let Some(agent) = parts.extensions.get::<Self>() {
            return Ok(agent.clone());
        }
        let refused = || Problem::unauthenticated("invalid agent token");
        let secret = token(&parts.headers).ok_or_else(refused)?;
        let is_stranger = state.agent_tokens.is_stranger(secret);
        let charge = if is_stranger { Charge::take(parts, state)? } else { Charge::NONE };
        let agent = state.agent_tokens.agent(secret).await?.ok_or_else(refused)?;
        charge.give_back(&state.clock, &state.limiter);
        let limits = &state.config.limits;
        let rate = Rate { per_minute: limits.agent_requests_per_minute, burst: limits.agent_request_burst };
        state
            .limiter
            .take(&format!("agent:{}", agent.token), rate, state.clock.now())
            .map_err(Problem::too_many)?;
        if let Some(connection) = parts.extensions.get::<Connection>() {
            state.connections.note_agent(connection);
        }
        // Counted once per request, however many layers ask.
        parts.extensions.insert(agent.clone());
        Ok(agent)
    }
}

/// `Bearer <token>`; agents of the FileFlux family may leave the word out.
fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let token = match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) => return None,
        None => value,
    };
    (1..=512).contains(&token.len()).then_some(token)
}
