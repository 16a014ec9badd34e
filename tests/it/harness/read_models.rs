use std::time::Duration;

use signalbox_test_support::{TestServers, time_limit};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use super::seconds;

/// Where gateways read: the database, and its replica if this run has one.
#[derive(Debug, Clone)]
pub struct ReadModels(Vec<PgPool>);

impl ReadModels {
    pub fn of(servers: &TestServers) -> Self {
        let replica = servers.replica_url.iter().map(|url| PgPool::connect_lazy(url).unwrap());
        Self(std::iter::once(servers.pool.clone()).chain(replica).collect())
    }

    /// Waits until they show what the log holds now.
    pub async fn show_all(&self) {
        let head = sqlx::query_scalar("SELECT position FROM log_head WHERE log = 'events'");
        self.show(head.fetch_one(&self.0[0]).await.unwrap()).await;
    }

    /// Waits until they show the log up to `position`.
    pub async fn show(&self, position: i64) {
        for pool in &self.0 {
            let begun = Instant::now();
            while !shows(pool, position).await {
                assert!(begun.elapsed() < time_limit(seconds(20)), "the read models do not show {position}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Whether they show the log up to `position`; false if the database does not answer.
async fn shows(pool: &PgPool, position: i64) -> bool {
    let shown = sqlx::query_scalar("SELECT min(position) >= $1 FROM read.checkpoints");
    shown.bind(position).fetch_one(pool).await.unwrap_or(false)
}
