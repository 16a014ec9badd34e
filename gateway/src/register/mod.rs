//! The log as admins read it: lists, single events, streams as they were, what led to what, and what comes in.

mod chain;
mod correlations;
mod events;
mod follow;
mod streams;

use utoipa_axum::routes;

pub use self::events::LogEventOut;
pub(crate) use self::follow::FOLLOWERS;
use crate::{policy::Policy, routes::Routes};

/// The routes of the log.
pub(crate) fn routes() -> Routes {
    Routes::new(Policy::PROBLEMS)
        .routes(routes!(events::list))
        .routes(routes!(follow::follow))
        .routes(routes!(chain::get))
        .routes(routes!(correlations::get))
        .routes(routes!(events::get))
        .routes(routes!(streams::get))
}
