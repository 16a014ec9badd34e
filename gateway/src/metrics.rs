//! Numbers about the service, for Prometheus.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use signalbox_config::Server;
use signalbox_database::on_behalf;
use signalbox_messaging::Mailbox;
use signalbox_metrics::{MEDIA_TYPE, Standing, metrics};
use signalbox_projections::standing;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use utoipa_axum::routes;

use crate::{
    auth::Admin,
    connections::{Connections, accept},
    health,
    policy::{Policy, RateClass},
    problem::{Problem, ProblemOut},
    readiness::Readiness,
    routes::Routes,
    services::replica::Database,
};

/// A scrape never waits longer for the database, nor for the bus.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Routes that serve orchestrators, which poll them.
pub(crate) fn routes() -> Routes {
    const PROBE: Policy = Policy::PROBLEMS.rate(RateClass::Uncounted).untraced();
    const SERVICE_1: Policy = Policy::SERVICE_1;
    Routes::new(PROBE)
        .with(SERVICE_1.rate(RateClass::Uncounted).untraced(), routes!(health::health))
        .routes(routes!(health::root_health))
        .routes(routes!(health::v1_health))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .with(SERVICE_1, routes!(health::info))
        .with(Policy::PROBLEMS.untraced(), routes!(show))
}

/// Numbers about this process and about the whole installation, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "health", security(("jwt" = [])), operation_id = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut)))]
pub(crate) async fn show(
    State(database): State<Database>,
    State(clock): State<Clock>,
    State(mailbox): State<Mailbox>,
    _: Admin,
) -> Result<Response, Problem> {
    let asked = on_behalf((), standing(&database.primary, clock.now()));
    let (standing, mailboxes) =
        tokio::join!(timeout(QUERY_TIMEOUT, asked), timeout(QUERY_TIMEOUT, mailbox.size()));
    let late = || Problem::unavailable("The database does not answer: try again in a moment.");
    let standing = standing.map_err(|_| late())??;
    // The rest is worth showing while the bus is away.
    text(Some(&Standing { mailboxes: mailboxes.ok().and_then(Result::ok), ..standing }))
}

/// The parts of a process that its operators' endpoint reports on.
#[derive(Debug, Clone)]
pub struct Operations {
    /// Whether the process can serve requests.
    pub readiness: Readiness,
    /// Cancelled when the process stops.
    pub stop: CancellationToken,
}

/// Serves `/livez`, `/readyz` and the numbers of this process on `listener`, without authentication, until the process
/// stops. Its connections are apart from those of clients: it answers while all of theirs are taken.
#[boxed]
pub async fn serve_operations(listener: TcpListener, settings: &Server, operations: Operations) {
    let connections = Arc::new(Connections::for_operators(settings));
    let stop = operations.stop.clone();
    let router = Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(async |State(at): State<Operations>| health::ready_answer(&at.readiness).await))
        .route("/metrics", get(async || text(None)))
        .with_state(operations);
    accept(listener, router, connections, stop, Duration::ZERO).await;
}

fn text(standing: Option<&Standing>) -> Result<Response, Problem> {
    let text = metrics().text(standing).map_err(|error| Problem::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}
