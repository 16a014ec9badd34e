use std::{
    fmt::Display,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::extract::{FromRef, ws::Utf8Bytes};
use chrono::{DateTime, Utc};
use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{SharedServerClock, server_time};
use signalbox_datapoint_log::IdKey;
use signalbox_documents::{Documents, FairPlaces};
use signalbox_domain::kernel::{CommandOutcome, Decider, Metadata, Rejection};
use signalbox_messaging::{Bus, Mailbox, Wakeup};
use signalbox_plugins::Plugins;
use signalbox_projections::{
    Lookup,
    register::At,
    transfer::{JobRow, TransferRow},
};
use signalbox_sealing::Sealer;
use signalbox_texts::Texts;
use sqlx::PgPool;
use tokio::{
    sync::{Semaphore, broadcast, watch},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use crate::http::answer::Written;
use crate::http::{client_address::TrustedProxies, connections::Connections};
use crate::services::{
    agent_keys::AgentKeys,
    agent_work::AgentWork,
    auth::{AgentTokens, ApiTokens, Credentials, Keys, Passwords, Sessions},
    backtests::Backtests,
    catalog::Catalogs,
    changes::{self, ChangeFeed},
    consistency::ReadGate,
    failed_logins::FailedLogins,
    limits::Limiter,
    live_agents::LiveAgents,
    live_values::{self, LiveValues},
    living_channels::LivingChannels,
    open_sockets::OpenSockets,
    pulse::Pulse,
    readiness::Readiness,
    replica::Database,
    shares::Shares,
    sso::SingleSignOn,
};

/// How long a write waits for a bus that is away.
const BUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that all handlers of a gateway share.
pub(crate) type AppState = Arc<State>;

/// The parts of a gateway.
pub(crate) struct State {
    /// The primary database.
    pub(crate) pool: PgPool,
    /// That of its process; of its own if it is alone.
    pub(crate) readiness: OnceLock<Readiness>,
    /// It, and its replica, if there is one.
    pub(crate) database: Database,
    pub(crate) bus: Bus,
    /// The machine's clock; for lengths of time, and where it is compared with PostgreSQL's.
    pub(crate) clock: Clock,
    /// PostgreSQL's clock, for times that are recorded, shown, or compared with those of another process.
    pub(crate) server_clock: SharedServerClock,
    pub(crate) config: Config,
    pub(crate) keys: Arc<Keys>,
    pub(crate) passwords: Passwords,
    pub(crate) sessions: Arc<Sessions>,
    /// Logins at an OpenID provider; none where that is not set up.
    pub(crate) sso: Option<SingleSignOn>,
    pub(crate) failed_logins: FailedLogins,
    pub(crate) api_tokens: Arc<ApiTokens>,
    pub(crate) credentials: Credentials,
    pub(crate) agent_tokens: AgentTokens,
    pub(crate) limiter: Limiter,
    /// Connections of clients.
    pub(crate) connections: Arc<Connections>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) pulse: Pulse,
    pub(crate) gate: Arc<ReadGate>,
    pub(crate) jobs: Lookup<JobRow>,
    pub(crate) transfers: Lookup<TransferRow>,
    pub(crate) mailbox: Mailbox,
    pub(crate) blobs: BlobStore,
    /// Extracted texts.
    pub(crate) texts: Texts,
    pub(crate) agent_keys: AgentKeys,
    pub(crate) live_agents: LiveAgents,
    pub(crate) agent_work: AgentWork,
    pub(crate) catalogs: Catalogs,
    pub(crate) living_channels: LivingChannels,
    pub(crate) datapoint_ids: IdKey,
    pub(crate) sealer: Sealer,
    pub(crate) live_values: LiveValues<Utf8Bytes>,
    pub(crate) open_sockets: OpenSockets,
    pub(crate) backtests: Backtests,
    /// The latest changes, for live streams.
    pub(crate) changes: ChangeFeed,
    /// Places of exports.
    pub(crate) exports: Shares,
    /// Places of queries.
    pub(crate) reads: Shares,
    /// Places of followers of the log.
    pub(crate) followers: Arc<Semaphore>,
    /// The newest position of the log that this gateway knows.
    pub(crate) log_moved: watch::Sender<i64>,
    /// Extracts documents; `None` if the sandbox cannot be started.
    pub(crate) documents: Option<Documents>,
    /// Describes plugin packages.
    pub(crate) plugins: Plugins,
    /// The wheels of installed packages.
    pub(crate) wheels: BlobStore,
    /// Places of documents that are being received.
    pub(crate) uploads: FairPlaces,
    /// Places of texts that are being remembered.
    pub(crate) remembering: Arc<Semaphore>,
    /// Every wake-up that reaches this gateway.
    pub(crate) wakeups: broadcast::Sender<Wakeup>,
    /// Cancelled when the gateway stops, so that long waits end.
    pub(crate) stop: CancellationToken,
}

impl FromRef<AppState> for TrustedProxies {
    fn from_ref(state: &AppState) -> Self {
        state.trusted_proxies.clone()
    }
}

impl FromRef<AppState> for Database {
    fn from_ref(state: &AppState) -> Self {
        state.database.clone()
    }
}

impl State {
    /// The result of `query`, by the replica where that may be asked; see [`Database::read`].
    pub(crate) async fn read<'a, T, E: Display, Q>(&'a self, query: impl Fn(&'a PgPool) -> Q) -> Result<T, E>
    where
        Q: Future<Output = Result<T, E>>,
    {
        self.database.read(query).await
    }

    /// The services that changes for live streams are read by.
    pub(crate) fn change_source(&self) -> changes::Source<'_> {
        changes::Source { pool: &self.pool, gate: &self.gate, log_moved: &self.log_moved }
    }

    /// The services that live values are read by.
    pub(crate) fn live_source(&self) -> live_values::Source<'_> {
        let Self { pool, bus, server_clock: clock, catalogs, .. } = self;
        live_values::Source { pool, bus, clock, catalogs }
    }

    /// Whether requests can be served.
    pub(crate) fn readiness(&self) -> &Readiness {
        self.readiness.get_or_init(|| {
            let (pool, bus, clock) = (self.pool.clone(), self.bus.clone(), self.clock.clone());
            Readiness::new(pool, Vec::new(), bus, clock, self.stop.clone())
        })
    }

    /// Sends a command and waits until the read models show its effect.
    pub(crate) async fn write<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<Written, Rejection> {
        self.write_versioned::<D>(id, expected_version, metadata, command).await.map(|(written, _)| written)
    }

    /// Like [`Self::write`]; also the aggregate's version after the command, which orders the commands of one aggregate
    /// as the database recorded them.
    pub(crate) async fn write_versioned<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<(Written, Option<i64>), Rejection> {
        self.reach_bus().await?;
        let outcome = self.bus.send::<D>(id, expected_version, metadata, command).await?;
        let unseen = self.unseen::<D>(id, outcome).await;
        let written = Written { unseen, repeated: outcome.repeated, ..Written::default() };
        Ok((written, outcome.version))
    }

    /// Waits for the bus. A message sent without it would stay in the client until the bus is back, and be carried
    /// out long after its sender was told to retry.
    pub(crate) async fn reach_bus(&self) -> Result<(), Rejection> {
        let mut connections = self.bus.connections();
        let deadline = Instant::now() + BUS_TIMEOUT;
        while !self.bus.is_connected() {
            if timeout_at(deadline, connections.changed()).await.is_err() {
                let message = "The service cannot take changes now: try again in a moment.";
                return Err(Rejection::unavailable(message));
            }
        }
        Ok(())
    }

    /// The time by PostgreSQL's clock, for what another gateway compares.
    pub(crate) async fn server_time(&self) -> Result<DateTime<Utc>, sqlx::Error> {
        server_time(&self.pool, &self.clock).await
    }

    async fn unseen<D: Decider>(&self, id: Uuid, outcome: CommandOutcome) -> Option<At> {
        let position = outcome.position?;
        let is_seen = self.gate.wait_for::<D>(id, position).await;
        (!is_seen).then(|| At { position, time: self.server_clock.now() })
    }
}
