use std::{sync::Arc, time::Duration};

use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_datapoint_log::IdKey;
use signalbox_documents::Documents;
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

use crate::{
    auth::{AgentTokens, ApiTokens, Keys, Passwords, Sessions},
    consistency::ReadGate,
    health::Pulse,
    identity::sso::SingleSignOn,
    limits::Limiter,
    monitoring::{catalog::Catalogs, live::LiveValues, open_sockets::OpenSockets},
    replica::Replica,
    transfer::{agent_keys::AgentKeys, live::LiveAgents},
};

/// How long a write waits for a bus that is away.
const BUS_PATIENCE: Duration = Duration::from_secs(5);

/// What every handler of a gateway shares.
pub(crate) type AppState = Arc<State>;

/// The parts of a gateway.
pub(crate) struct State {
    /// The primary database.
    pub(crate) pool: PgPool,
    /// Its replica, if there is one.
    pub(crate) replica: Option<Replica>,
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) passwords: Passwords,
    pub(crate) sessions: Sessions,
    /// Logins at an OpenID provider; none where that is not set up.
    pub(crate) sso: Option<SingleSignOn>,
    pub(crate) api_tokens: ApiTokens,
    pub(crate) agent_tokens: AgentTokens,
    pub(crate) limiter: Limiter,
    pub(crate) pulse: Pulse,
    pub(crate) gate: ReadGate,
    pub(crate) jobs: Lookup<JobRow>,
    pub(crate) transfers: Lookup<TransferRow>,
    pub(crate) mailbox: Mailbox,
    pub(crate) blobs: BlobStore,
    /// What documents gave.
    pub(crate) texts: Texts,
    pub(crate) agent_keys: AgentKeys,
    pub(crate) live_agents: LiveAgents,
    pub(crate) catalogs: Catalogs,
    pub(crate) datapoint_ids: IdKey,
    pub(crate) sealer: Sealer,
    pub(crate) live_values: LiveValues,
    pub(crate) open_sockets: OpenSockets,
    /// Places of exports.
    pub(crate) exports: Arc<Semaphore>,
    /// Places of followers of the log.
    pub(crate) followers: Arc<Semaphore>,
    /// The newest position of the log that this gateway was told of.
    pub(crate) log_moved: watch::Sender<i64>,
    /// Who reads documents; none where that cannot be started.
    pub(crate) documents: Option<Documents>,
    /// Who looks at packages of plugins.
    pub(crate) plugins: Plugins,
    /// The wheels of installed packages.
    pub(crate) wheels: BlobStore,
    /// Places of documents that are being received.
    pub(crate) uploads: Semaphore,
    /// Places of texts that are being remembered.
    pub(crate) remembering: Arc<Semaphore>,
    /// Every wake-up that reaches this gateway.
    pub(crate) wakeups: broadcast::Sender<Wakeup>,
    /// Cancelled when the gateway stops, so that long waits end.
    pub(crate) stop: CancellationToken,
}

/// A write that has been carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// Its place in the log, while the read models do not show it.
    pub(crate) unseen: Option<At>,
    /// Whether it had been carried out before.
    pub(crate) repeated: bool,
}

impl State {
    /// Sends a command and waits until the read models show its effect.
    pub(crate) async fn write<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<Written, Rejection> {
        self.reach_bus().await?;
        let outcome = self.bus.send::<D>(id, expected_version, metadata, command).await?;
        Ok(Written { unseen: self.unseen::<D>(outcome).await, repeated: outcome.repeated })
    }

    /// Waits for the bus. What is sent without it lies in the client until the bus is back, and would be carried out
    /// long after its sender was told to try again.
    pub(crate) async fn reach_bus(&self) -> Result<(), Rejection> {
        let mut connections = self.bus.connections();
        let deadline = Instant::now() + BUS_PATIENCE;
        while !self.bus.is_connected() {
            if timeout_at(deadline, connections.changed()).await.is_err() {
                let message = "The service cannot take changes now: try again in a moment.";
                return Err(Rejection::unavailable(message));
            }
        }
        Ok(())
    }

    async fn unseen<D: Decider>(&self, outcome: CommandOutcome) -> Option<At> {
        let position = outcome.position?;
        let is_seen = self.gate.wait(D::CONTEXT, position).await;
        (!is_seen).then(|| At { position, time: self.clock.now() })
    }
}
