//! Resources as they were: at a moment that is asked for, or after a write that the read models do not show yet.

use axum::{extract::FromRequestParts, http::request::Parts};
use serde::Deserialize;
use signalbox_event_store::Moment;
use signalbox_projections::register::{At, AtError, Past};
use utoipa::IntoParams;

use crate::{
    extract::Params,
    problem::{Problem, ProblemKind},
    state::Services,
};

/// Which moment is meant.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AtParams {
    /// A time, RFC 3339, or a position of the log: the answer is what there was then, also of what was deleted since. Now, if
    /// absent.
    at: Option<String>,
}

/// The moment that is asked for; none for now.
pub(crate) struct AsOf(pub(crate) Option<At>);

impl FromRequestParts<Services> for AsOf {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        let Params(AtParams { at }) = Params::from_request_parts(parts, state).await?;
        let Some(text) = at else { return Ok(Self(None)) };
        let moment: Moment = text.parse()?;
        let at = At::find(&state.pool, moment, state.server_clock.now()).await;
        at.map(Some).map(Self).map_err(|error| match error {
            AtError::Future => Problem::invalid(error.to_string()).about("at"),
            AtError::Database(error) => error.into(),
        })
    }
}

/// The resource that there was; `what` names it to people.
pub(crate) fn there<T>(what: &str, past: Past<T>) -> Result<T, Problem> {
    let why = match past {
        Past::Present(found) => return Ok(found),
        Past::Deleted => "it had been deleted by then",
        Past::NotYetCreated => "it had not been made by then",
        Past::Unknown => return Err(Problem::not_found(what)),
    };
    Err(Problem::new(ProblemKind::NotFound, "not_found", format!("{what} not found: {why}")))
}
