//! The roles of the service, put together as the command line does it.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_documents::Documents;
use signalbox_egress::{Egress, Policy};
use signalbox_firmware::Updates;
use signalbox_gateway::{Gateway, SandboxedParsers};
use signalbox_mail::Mailer;
use signalbox_messaging::{Bus, Mailbox};
use signalbox_plugins::Plugins;
use signalbox_sealing::Sealer;
use signalbox_texts::Texts;
use signalbox_workers::{Context, Parts, Senders};
use sqlx::PgPool;
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use super::seconds;

/// Of each pool of a process. A service that starts uses all that it may have, and PostgreSQL starts a process for each.
const CONNECTIONS: u32 = 4;

/// The parts of one process of the service.
pub struct Process {
    pub pool: PgPool,
    pub bus: Bus,
    pub clock: Clock,
    pub config: Config,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Process {
    /// A process with connections of its own, which does nothing yet.
    pub async fn new(config: &Config, clock: &Clock) -> Self {
        let pool = signalbox_database::connect(config.database.url.expose(), CONNECTIONS).await.unwrap();
        let bus = Bus::connect(config.nats.url.expose()).await.unwrap();
        let bus = bus.with_replicas(config.nats.replicas);
        let (clock, config) = (clock.clone(), config.clone());
        Self { pool, bus, clock, config, stop: CancellationToken::new(), tasks: JoinSet::new() }
    }

    /// Takes all roles but that of a gateway, and that of the workers only if `works`.
    pub async fn take_inner_roles(&mut self, works: bool) {
        self.handle_commands();
        self.project();
        if works {
            self.work().await;
        }
    }

    /// Takes the role of the command handlers.
    pub fn handle_commands(&mut self) {
        let (pool, bus, clock, stop) = self.parts();
        self.tasks.spawn(async move { signalbox_commands::run(pool, bus, clock, stop).await.unwrap() });
    }

    /// Takes the role of the projections.
    pub fn project(&mut self) {
        let (pool, bus, _, stop) = self.parts();
        self.tasks.spawn(async move {
            signalbox_projections::keep_up(pool, bus, stop).await;
        });
    }

    /// Takes the role of the workers.
    pub async fn work(&mut self) {
        let parts = self.worker_parts().await;
        self.tasks.spawn(signalbox_workers::run(parts, self.stop.clone()));
    }

    /// The parts that the workers of this process have, for one that a test steps by hand.
    pub async fn worker_parts(&self) -> Parts {
        let (pool, bus, clock, _) = self.parts();
        let mailbox = Mailbox::open(&bus).await.unwrap();
        let (blobs, config) = (blobs(&self.config), self.config.clone());
        let policy = Policy::allowing(&config.egress.allowed_networks).unwrap();
        let senders = Senders {
            sealer: Sealer::open(&pool, &clock).await.unwrap(),
            egress: Egress::new(policy.clone()).unwrap(),
            egress_without_loopback: Egress::new(policy.without_loopback()).unwrap(),
            mailer: Mailer::new(&config.mail).unwrap().map(Arc::new),
        };
        let firmware = Updates::new(config.storage.folder.join("updates"), &config.firmware).unwrap();
        let documents = self.documents().await;
        let texts = Texts::new(pool.clone(), blobs.clone(), clock.clone(), &config.extraction);
        let context = Context::new(pool, bus, clock);
        Parts { context, mailbox, blobs, documents, texts, firmware, senders, config }
    }

    /// Takes the role of a gateway on a free port; returns its address.
    pub async fn serve(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve_on(listener).await;
        address
    }

    /// Takes the role of a gateway that `listener` hears.
    pub async fn serve_on(&mut self, listener: TcpListener) {
        let (pool, bus, clock, stop) = self.parts();
        let blobs = blobs(&self.config);
        let documents = self.documents().await;
        let config = self.config.clone();
        let (program, allow_unconfined) = (self.program(), config.sandbox.allow_unconfined);
        let folder = config.storage.folder.join("plugins");
        let plugins = Plugins::new(folder, program, config.plugins.python.clone(), allow_unconfined);
        let parsers = SandboxedParsers { documents, plugins };
        let gateway = Gateway::open(pool, bus, blobs, clock, config, parsers, stop).await.unwrap();
        self.tasks.spawn(async move { gateway.serve(listener).await.unwrap() });
    }

    /// The program that parses documents and plugins: the service's, or a replacement that the test has put into the
    /// storage folder.
    fn program(&self) -> PathBuf {
        let other = self.config.storage.folder.join("program");
        if other.exists() { other } else { PathBuf::from(env!("CARGO_BIN_EXE_signalbox")) }
    }

    /// Extraction for tests that set a number of parsers: starting them takes time.
    async fn documents(&self) -> Option<Documents> {
        if self.config.extraction.parsers == 0 {
            return None;
        }
        let documents = Documents::start(&self.config.extraction, self.program()).await.unwrap();
        Some(documents.allow_unconfined(self.config.sandbox.allow_unconfined))
    }

    /// Stops all roles and waits for their end.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let ended = timeout(seconds(20), async {
            while let Some(role) = self.tasks.join_next().await {
                role.unwrap()
            }
        });
        ended.await.expect("a role did not stop within 20 s");
    }

    fn parts(&self) -> (PgPool, Bus, Clock, CancellationToken) {
        (self.pool.clone(), self.bus.clone(), self.clock.clone(), self.stop.clone())
    }
}

fn blobs(config: &Config) -> BlobStore {
    BlobStore::configured(&config.storage, "blobs").unwrap()
}
