//! Which resources change, for clients that show them: `GET /api/v1/live`.

mod stream;

use utoipa_axum::routes;

use crate::{policy::Policy, routes::Routes};

/// The route of the live stream.
pub(crate) fn routes() -> Routes {
    Routes::new(Policy::PROBLEMS).routes(routes!(stream::live))
}
