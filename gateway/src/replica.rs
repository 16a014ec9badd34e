//! Requests and the replica of the database: those that only read may ask it, and answers to others wait for it.

use axum::{
    extract::{Request, State as Shared},
    middleware::Next,
    response::Response,
};

use crate::{
    answer::{CONSISTENCY, EVENTUAL},
    policy::Policy,
    services::replica::only_reading,
    state::Services,
};

/// Lets requests that only read ask the replica, and answers to others wait for it.
pub(crate) async fn settle(Shared(state): Shared<Services>, request: Request, next: Next) -> Response {
    let Some(replica) = &state.database.replica else { return next.run(request).await };
    if Policy::of(request.extensions()).is_read {
        return only_reading(next.run(request)).await;
    }
    let mut response = next.run(request).await;
    if response.status().is_success() && !replica.shows_all().await {
        response.headers_mut().insert(CONSISTENCY, EVENTUAL);
    }
    response
}
