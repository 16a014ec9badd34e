//! A gateway's notes about the bodies of legs, for the worker that judges legs whose agent does not report.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Version, header, request::Parts},
};
use signalbox_config::Config;
use signalbox_domain::{kernel::TransferId, transfer::Leg};
use signalbox_projections::transfer::{TransferRow, queries};
use sqlx::PgPool;
use tokio::{
    runtime::Handle,
    time::{Duration, Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    connections::{Connection, Delivery, Exchange},
    network::is_proxied,
    problem::Problem,
    services::replica::Database,
    state::Services,
};

/// How long an agent may keep a connection before it uses it again or closes it; clients of Go close after 90 s.
const ARRIVAL: Duration = Duration::from_secs(600);
/// How long the gateway that serves a download may take to note the end of its body, and how often that is looked up.
const NOTED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// A body that carries a single file; noted as ended when it is dropped.
#[derive(Debug)]
pub(super) struct OpenBody {
    pool: PgPool,
    transfer: TransferId,
    leg: Leg,
    attempt: i32,
    served: Option<Part>,
}

/// The content of a download's body.
#[derive(Debug)]
struct Part {
    sha256: String,
    start: u64,
    /// Place in the file behind what was sent.
    sent: Arc<AtomicU64>,
}

impl OpenBody {
    pub(super) async fn begin(pool: &PgPool, row: &TransferRow, leg: Leg) -> Result<Self, Problem> {
        let agent = match leg {
            // An owner has no session.
            Leg::Upload => row.source_agent_id,
            Leg::Download => Some(row.destination_agent_id),
        };
        queries::note_body_begun(pool, row.id, leg, row.attempts, agent).await?;
        Ok(Self { pool: pool.clone(), transfer: row.id, leg, attempt: row.attempts, served: None })
    }

    /// Counts what is sent of the file with this digest, from `start` on.
    pub(super) fn counting(mut self, sha256: &str, start: u64, sent: Arc<AtomicU64>) -> Self {
        self.served = Some(Part { sha256: sha256.to_owned(), start, sent });
        self
    }
}

impl Drop for OpenBody {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (pool, transfer, leg, attempt) = (self.pool.clone(), self.transfer, self.leg, self.attempt);
        let served = self.served.take().map(|part| queries::Served {
            sha256: part.sha256,
            start: part.start.cast_signed(),
            end: part.sent.load(Ordering::Relaxed).cast_signed(),
        });
        runtime.spawn(async move {
            if let Err(error) = queries::note_body_ended(&pool, transfer, leg, attempt, served).await {
                tracing::warn!(%error, %transfer, "the end of a body was not noted");
            }
        });
    }
}

/// How a download was asked for.
pub(super) struct Asked {
    connection: Option<Connection>,
    version: Version,
    pub(super) headers: HeaderMap,
}

impl FromRequestParts<Services> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Services) -> Result<Self, Infallible> {
        let connection = parts.extensions.get::<Connection>().cloned();
        Ok(Self { connection, version: parts.version, headers: parts.headers.clone() })
    }
}

impl Asked {
    /// The request and its answer, to be ended with the connection.
    pub(super) fn exchange(&self) -> Option<Exchange> {
        self.connection.as_ref().map(Connection::exchange)
    }

    /// The connection, if it leads to the agent and stays open after the answer.
    fn direct_connection(&self, config: &Config) -> Option<&Connection> {
        let connection = self.connection.as_ref()?;
        // Bytes that a proxy has acknowledged may not have reached the agent.
        let is_proxied = is_proxied(connection.peer(), &self.headers, &config.server.trusted_proxies);
        let close = self.headers.get(header::CONNECTION).and_then(|value| value.to_str().ok());
        let closes = close.is_some_and(|value| value.to_ascii_lowercase().contains("close"));
        (self.version == Version::HTTP_11 && !is_proxied && !closes).then_some(connection)
    }
}

/// Watches whether the whole file reaches an agent that polls and may never report, and notes it. `None` for other agents:
/// their reports, or the ends of their sessions, are awaited.
pub(super) async fn watch_arrival(
    database: &Database,
    config: &Config,
    stop: &CancellationToken,
    row: &TransferRow,
    asked: &Asked,
) -> Result<Option<Delivery>, Problem> {
    let Some(connection) = asked.direct_connection(config) else { return Ok(None) };
    let agent = queries::agent_by_id(&database.primary, row.destination_agent_id).await?;
    let agent = agent.filter(|agent| agent.capabilities.is_empty() && agent.polls());
    let Some(session) = agent.and_then(|agent| agent.session) else { return Ok(None) };
    let Some(delivery) = connection.follow() else { return Ok(None) };
    let (handed, pool, stop) = (delivery.clone(), database.primary.clone(), stop.clone());
    let (transfer, attempt, agent) = (row.id, row.attempts, row.destination_agent_id);
    tokio::spawn(async move {
        let arrived = tokio::select! {
            arrived = timeout(ARRIVAL, delivery.arrives()) => arrived.unwrap_or(false),
            () = stop.cancelled() => false,
        };
        if arrived && let Err(error) = queries::note_arrival(&pool, transfer, attempt, agent, session).await {
            tracing::warn!(%error, %transfer, "the arrival of a file was not noted; it is sent again");
        }
    });
    Ok(Some(handed))
}

/// Why a report without a digest cannot mean that the destination has the file; `None` if it can.
///
/// # Errors
/// Whether the file was served is not known yet: the agent has to say it again.
pub(super) async fn contradiction(
    database: &Database,
    row: &TransferRow,
    promises_digest: bool,
) -> Result<Option<String>, Problem> {
    if promises_digest {
        return Ok(Some("reported the end of the download without the digest that it promises".to_owned()));
    }
    if row.is_tree() {
        return Ok(None);
    }
    let size = row.size.unwrap_or_default();
    let deadline = Instant::now() + NOTED;
    loop {
        let leg = queries::leg(&database.primary, row.id, Leg::Download, row.attempts).await?;
        let served = leg.as_ref().filter(|leg| leg.served_of == row.sha256).map_or(0, |leg| leg.served_to);
        match leg {
            Some(leg) if served >= size && (leg.served_of.is_some() || size == 0) => return Ok(None),
            // It still runs, or its end is being noted.
            Some(leg) if !leg.body_ended && Instant::now() < deadline => sleep(LOOK).await,
            Some(leg) if !leg.body_ended => {
                return Err(Problem::unavailable("The download has not ended yet: report its end again."));
            }
            _ => {
                return Ok(Some(format!(
                    "reported the end of the download without a digest, but was sent {served} of {size} bytes"
                )));
            }
        }
    }
}
