use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use signalbox_domain::{identity::Role, kernel::Actor};

use super::Who;
use crate::{problem::Problem, state::AppState};

/// Any user: may read.
pub(crate) struct Reader(pub(crate) Who);

/// An operator or admin: may write.
pub(crate) struct Writer(pub(crate) Who);

/// An admin.
pub(crate) struct Admin(pub(crate) Who);

impl Who {
    pub(crate) fn actor(&self) -> Actor {
        Actor::User(self.user)
    }
}

impl FromRequestParts<AppState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        remember(parts, state).await.map(Self)
    }
}

impl FromRequestParts<AppState> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        with_role(parts, state, Role::Operator).await.map(Self)
    }
}

impl FromRequestParts<AppState> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        with_role(parts, state, Role::Admin).await.map(Self)
    }
}

/// Checks the credential once per request, however many layers ask.
async fn remember(parts: &mut Parts, state: &AppState) -> Result<Who, Problem> {
    if let Some(who) = parts.extensions.get::<Who>() {
        return Ok(who.clone());
    }
    let who = authenticate(&parts.headers, state).await?;
    parts.extensions.insert(who.clone());
    Ok(who)
}

async fn with_role(parts: &mut Parts, state: &AppState, least: Role) -> Result<Who, Problem> {
    let who = remember(parts, state).await?;
    if who.role >= least { Ok(who) } else { Err(Problem::forbidden()) }
}

/// The user whose valid JWT the request carries.
pub(crate) async fn authenticate(headers: &HeaderMap, state: &AppState) -> Result<Who, Problem> {
    let token = bearer(headers)
        .ok_or_else(|| Problem::unauthenticated("missing credentials: send Authorization: Bearer <token>"))?;
    let refused = || Problem::unauthenticated("invalid or expired token");
    let claims = state.keys.verify(token).ok_or_else(refused)?;
    state.sessions.who(claims.sid).await?.filter(|who| who.user.0 == claims.sub).ok_or_else(refused)
}

/// The credential of `Authorization: Bearer …`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
