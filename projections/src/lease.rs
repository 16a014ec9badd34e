//! One active process per piece of work: a lease is a session lock in PostgreSQL, which the server releases the
//! moment its holder's connection ends. It is for economy; correctness never depends on it.

use std::time::Duration;

use sqlx::{Connection, PgConnection, PgPool};
use tokio::time::sleep;

/// How often a waiting process asks for the lease: the longest pause after its holder has died.
const RETRY: Duration = Duration::from_secs(1);

/// The right to be the active one, as long as it is held and [`Lease::holds`].
#[derive(Debug)]
pub struct Lease(PgConnection);

impl Lease {
    /// Waits until the lease `name` is free and takes it.
    pub async fn acquire(pool: &PgPool, name: &str) -> Self {
        loop {
            match Self::attempt(pool, name).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, lease = name, "a lease cannot be asked for"),
            }
            sleep(RETRY).await;
        }
    }

    async fn attempt(pool: &PgPool, name: &str) -> Result<Option<Self>, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
        let taken: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtextextended($1, 0))")
            .bind(name)
            .fetch_one(&mut connection)
            .await?;
        Ok(taken.then_some(Self(connection)))
    }

    /// Whether the connection that holds the lease still lives.
    pub async fn holds(&mut self) -> bool {
        self.0.ping().await.is_ok()
    }
}
