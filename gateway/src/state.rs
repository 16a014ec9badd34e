use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use axum::extract::{FromRef, ws::Utf8Bytes};
use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::IdKey;
use signalbox_documents::{Documents, Extraction, FairPlaces, Searchable};
use signalbox_messaging::{Bus, Mailbox, Wakeup};
use signalbox_plugins::Plugins;
use signalbox_projections::{
    Lookup,
    transfer::{JobRow, TransferRow},
};
use signalbox_sealing::Sealer;
use signalbox_texts::Texts;
use sqlx::PgPool;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use crate::http::answer::Written;
use crate::http::{client_address::TrustedProxies, connections::Connections};
use crate::services::{
    agent_keys::AgentKeys,
    agent_work::AgentWork,
    auth::{AgentTokens, ApiTokens, Credentials, Keys, Passwords, Sessions},
    backtests::Backtests,
    catalog::Catalogs,
    changes::{self, ChangeFeed},
    commands::Commands,
    consistency::ReadGate,
    failed_logins::FailedLogins,
    known_series::KnownSeries,
    limits::Limiter,
    live_agents::LiveAgents,
    live_values::{self, LiveValues},
    living_channels::LivingChannels,
    open_sockets::OpenSockets,
    pulse::Pulse,
    readiness::Readiness,
    replica::Database,
    shared_work::SharedWork,
    shares::{Exports, Shares},
    sso::SingleSignOn,
    wheels::Wheels,
};

/// The services of a gateway. Clones share them.
#[derive(Clone)]
pub(crate) struct Services(Arc<Parts>);

/// The parts of [`Services`].
pub(crate) struct Parts {
    /// The primary database.
    pub(crate) pool: PgPool,
    /// That of its process; of its own if it is alone.
    pub(crate) readiness: OnceLock<Readiness>,
    /// It, and its replica, if there is one.
    pub(crate) database: Database,
    pub(crate) bus: Bus,
    pub(crate) commands: Commands,
    /// The machine's clock; for lengths of time, and where it is compared with PostgreSQL's.
    pub(crate) clock: Clock,
    /// PostgreSQL's clock, for times that are recorded, shown, or compared with those of another process.
    pub(crate) server_clock: SharedServerClock,
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) passwords: Passwords,
    pub(crate) sessions: Arc<Sessions>,
    /// Logins at an OpenID provider; none where that is not set up.
    pub(crate) sso: Option<Arc<SingleSignOn>>,
    pub(crate) failed_logins: Arc<FailedLogins>,
    pub(crate) api_tokens: Arc<ApiTokens>,
    pub(crate) credentials: Credentials,
    pub(crate) agent_tokens: AgentTokens,
    pub(crate) limiter: Arc<Limiter>,
    /// Connections of clients.
    pub(crate) connections: Arc<Connections>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) gate: Arc<ReadGate>,
    pub(crate) jobs: Lookup<JobRow>,
    pub(crate) transfers: Lookup<TransferRow>,
    pub(crate) mailbox: Mailbox,
    pub(crate) blobs: BlobStore,
    /// Extracted texts.
    pub(crate) texts: Texts,
    pub(crate) agent_keys: Arc<AgentKeys>,
    pub(crate) live_agents: Arc<LiveAgents>,
    pub(crate) agent_work: AgentWork,
    pub(crate) catalogs: Arc<Catalogs>,
    pub(crate) living_channels: Arc<LivingChannels>,
    pub(crate) known_series: Arc<KnownSeries>,
    pub(crate) datapoint_ids: IdKey,
    pub(crate) sealer: Sealer,
    pub(crate) live_values: Arc<LiveValues<Utf8Bytes>>,
    pub(crate) open_sockets: OpenSockets,
    pub(crate) backtests: Arc<Backtests>,
    /// The latest changes, for live streams.
    pub(crate) changes: Arc<ChangeFeed>,
    pub(crate) exports: Exports,
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
    pub(crate) wheels: Wheels,
    /// Places of documents that are being received.
    pub(crate) uploads: FairPlaces,
    /// Documents that quick calls wait for.
    pub(crate) reading: SharedWork<Extraction>,
    /// PDFs that are being made.
    pub(crate) making: SharedWork<Searchable>,
    /// Places of texts that are being remembered.
    pub(crate) remembering: Arc<Semaphore>,
    /// Every wake-up that reaches this gateway.
    pub(crate) wakeups: broadcast::Sender<Wakeup>,
    /// Cancelled when the gateway stops, so that long waits end.
    pub(crate) stop: CancellationToken,
}

/// Lets handlers ask for a part of the services by its type.
macro_rules! parts {
    ($($part:ident: $type:ty),+ $(,)?) => {$(
        impl FromRef<Services> for $type {
            fn from_ref(services: &Services) -> Self {
                services.$part.clone()
            }
        }
    )+};
}

parts! {
    agent_keys: Arc<AgentKeys>,
    agent_work: AgentWork,
    api_tokens: Arc<ApiTokens>,
    backtests: Arc<Backtests>,
    blobs: BlobStore,
    bus: Bus,
    catalogs: Arc<Catalogs>,
    clock: Clock,
    commands: Commands,
    config: Arc<Config>,
    connections: Arc<Connections>,
    database: Database,
    datapoint_ids: IdKey,
    documents: Option<Documents>,
    exports: Exports,
    failed_logins: Arc<FailedLogins>,
    gate: Arc<ReadGate>,
    jobs: Lookup<JobRow>,
    keys: Arc<Keys>,
    limiter: Arc<Limiter>,
    live_agents: Arc<LiveAgents>,
    mailbox: Mailbox,
    open_sockets: OpenSockets,
    passwords: Passwords,
    plugins: Plugins,
    pulse: Arc<Pulse>,
    sealer: Sealer,
    server_clock: SharedServerClock,
    sessions: Arc<Sessions>,
    sso: Option<Arc<SingleSignOn>>,
    texts: Texts,
    transfers: Lookup<TransferRow>,
    trusted_proxies: TrustedProxies,
    uploads: FairPlaces,
    wakeups: broadcast::Sender<Wakeup>,
    wheels: Wheels,
}

impl FromRef<Services> for Readiness {
    fn from_ref(services: &Services) -> Self {
        services.readiness().clone()
    }
}

impl Deref for Services {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Services {
    /// Shares `parts`.
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The services that changes for live streams are read by.
    pub(crate) fn change_source(&self) -> changes::Source<'_> {
        changes::Source { pool: &self.pool, gate: &self.gate, log_moved: &self.log_moved }
    }

    /// The services that live values are read by.
    pub(crate) fn live_source(&self) -> live_values::Source<'_> {
        let Parts { pool, bus, server_clock: clock, catalogs, .. } = &**self;
        live_values::Source { pool, bus, clock, catalogs }
    }

    /// Whether requests can be served.
    pub(crate) fn readiness(&self) -> &Readiness {
        self.readiness.get_or_init(|| {
            let (pool, bus, clock) = (self.pool.clone(), self.bus.clone(), self.clock.clone());
            Readiness::new(pool, Vec::new(), bus, clock, self.stop.clone())
        })
    }
}
