//! Numbers about the service, for Prometheus.

use std::time::Duration;

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use signalbox_metrics::{MEDIA_TYPE, Standing, metrics};
use signalbox_projections::standing;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Admin,
    problem::{Problem, ProblemOut},
    state::AppState,
};

/// A scrape never waits longer for the database, nor for the bus.
const PATIENCE: Duration = Duration::from_secs(2);

/// Numbers about this process and about the whole installation, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "health", security(("jwt" = [])), operation_id = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut)))]
pub(crate) async fn show(State(state): State<AppState>, _: Admin) -> Result<Response, Problem> {
    let asked = standing(&state.pool, state.clock.now());
    let (standing, mailboxes) =
        tokio::join!(timeout(PATIENCE, asked), timeout(PATIENCE, state.mailbox.size()));
    let late = || Problem::unavailable("The database does not answer: try again in a moment.");
    let standing = standing.map_err(|_| late())??;
    // The rest is worth showing while the bus is away.
    text(Some(&Standing { mailboxes: mailboxes.ok().and_then(Result::ok), ..standing }))
}

/// Tells the numbers of this process on `listener`, to whoever asks, until `stop`: for processes without a gateway.
///
/// # Errors
/// The socket's error.
pub async fn serve_metrics(listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
    let router = Router::new().route("/metrics", get(|| async { text(None) }));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn text(standing: Option<&Standing>) -> Result<Response, Problem> {
    let text = metrics().text(standing).map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}
