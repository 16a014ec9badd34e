use signalbox_clock::Clock;
use signalbox_messaging::Bus;
use sqlx::PgPool;

use crate::{TestNats, fresh_database, leftovers, seconds};

/// Connections of a test's own pool.
const CONNECTIONS: u32 = 16;

/// What one test works with.
#[derive(Debug)]
pub struct TestServers {
    /// A pool on the test's database.
    pub pool: PgPool,
    /// Address of the test's database.
    pub database_url: String,
    /// The test's nats-server.
    pub nats: TestNats,
    /// Its address.
    pub nats_url: String,
    /// A connection to it.
    pub bus: Bus,
    /// The machine's clock.
    pub clock: Clock,
}

impl TestServers {
    /// A fresh, migrated database and a fresh nats-server.
    pub async fn start() -> Self {
        let (database_url, nats) = tokio::join!(fresh_database(), TestNats::start());
        let pool = signalbox_database::connect(&database_url, CONNECTIONS).await.expect("reach the database");
        let nats_url = nats.url().to_owned();
        let bus = Bus::connect(&nats_url).await.expect("reach nats-server");
        Self { pool, database_url, nats, nats_url, bus, clock: Clock::system() }
    }

    /// A second connection to the bus, as another process would have it.
    pub async fn another_bus(&self) -> Bus {
        Bus::connect(&self.nats_url).await.expect("reach nats-server")
    }

    /// Ends the test: fails it when it leaves work behind that nobody has done within 5 s.
    ///
    /// Work is an event that a projection has not applied or has set aside, a half-done rebuild, an open transaction,
    /// and a message that waits in a JetStream stream (the relayed log excepted, which keeps its messages).
    pub async fn finish(self) {
        leftovers::none_within(seconds(5), &self).await;
        self.pool.close().await;
    }
}
