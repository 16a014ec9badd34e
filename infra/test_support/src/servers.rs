use signalbox_clock::Clock;
use signalbox_messaging::Bus;
use sqlx::PgPool;

use crate::{
    TestNats, leftovers,
    postgres::{self, fresh_database_and_replica},
    seconds,
    setup::Setup,
};

/// Connections of a test's own pool.
const CONNECTIONS: u32 = 16;

/// The servers of one test.
#[derive(Debug)]
pub struct TestServers {
    /// A pool on the test's database.
    pub pool: PgPool,
    /// Address of the test's database.
    pub database_url: String,
    /// Address of a replica of it, if this run has one.
    pub replica_url: Option<String>,
    /// The test's nats-server, or cluster of them.
    pub nats: TestNats,
    /// Its address.
    pub nats_url: String,
    /// A connection to it.
    pub bus: Bus,
    /// The machine's clock.
    pub clock: Clock,
}

impl TestServers {
    /// A fresh, migrated database and a fresh nats-server, or several of each.
    pub async fn start() -> Self {
        match Setup::of_this_run() {
            Setup::Plain => Self::with(TestNats::start()).await,
            Setup::Scaled { kills: None } => Self::with(TestNats::start_cluster()).await,
            Setup::Scaled { kills: Some(period) } => {
                Self::with(async { TestNats::start_cluster().await.killed_every(period) }).await
            }
        }
    }

    /// Like [`TestServers::start`], but only the test itself kills the nats-servers.
    pub async fn start_with_own_nats() -> Self {
        match Setup::of_this_run() {
            Setup::Plain => Self::with(TestNats::start()).await,
            Setup::Scaled { .. } => Self::with(TestNats::start_cluster()).await,
        }
    }

    /// A fresh database and a cluster of three nats-servers, whatever the other tests of this run have.
    pub async fn start_with_cluster() -> Self {
        Self::with(TestNats::start_cluster()).await
    }

    async fn with(nats: impl Future<Output = TestNats>) -> Self {
        let ((database_url, replica_url), nats) = tokio::join!(fresh_database_and_replica(), nats);
        let pool = signalbox_database::connect(&database_url, CONNECTIONS).await.expect("reach the database");
        let nats_url = nats.url().to_owned();
        let bus = Bus::connect(&nats_url).await.expect("reach nats-server").with_replicas(nats.size());
        Self { pool, database_url, replica_url, nats, nats_url, bus, clock: Clock::system() }
    }

    /// A second connection to the bus, as another process would have it.
    pub async fn another_bus(&self) -> Bus {
        let bus = Bus::connect(&self.nats_url).await.expect("reach nats-server");
        bus.with_replicas(self.nats.size())
    }

    /// Ends the test: fails it if it leaves work that is still pending after 5 s.
    ///
    /// Work is an event that a projection has not applied or has set aside, a half-done rebuild, an open transaction,
    /// and a message that waits in a JetStream stream (the relayed log excepted, which keeps its messages).
    pub async fn finish(self) {
        // A cluster takes its time to choose a leader.
        let bound = if self.nats.size() > 1 { seconds(30) } else { seconds(5) };
        leftovers::none_within(bound, &self).await;
        self.nats.assert_killer_lives();
        postgres::assert_killer_lives();
        self.pool.close().await;
    }
}
