use std::{
    io,
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::RESTED;

/// For statements that find rows by key, and are the same every time: planned once. The plan may be made while a table is
/// still empty; a scan of it would stay when it has grown.
pub const BY_KEY: [(&str, &str); 2] = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")];

/// A connection for one task that works without pause. The pool asks every connection that is given back whether it
/// still lives, which doubles the round trips of short statements.
#[derive(Debug)]
pub struct OwnConnection {
    options: PgConnectOptions,
    kept: Option<(PgConnection, Instant)>,
}

impl OwnConnection {
    /// One to the server of `pool`, with these settings of PostgreSQL; it is opened when it is first taken.
    pub fn new(pool: &PgPool, settings: &[(&str, &str)]) -> Self {
        let options = PgConnectOptions::clone(&pool.connect_options());
        Self { options: options.options(settings.iter().copied()), kept: None }
    }

    /// The connection, a new one if the last was not kept or has died.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn take(&mut self) -> Result<PgConnection, sqlx::Error> {
        if let Some((mut connection, since)) = self.kept.take()
            && (since.elapsed() < RESTED || connection.ping().await.is_ok())
        {
            return Ok(connection);
        }
        PgConnection::connect_with(&self.options).await
    }

    /// Keeps `connection` for the next [`OwnConnection::take`]. One that is dropped instead, because something failed on
    /// it, is closed, and the server rolls back what it had begun.
    pub fn keep(&mut self, connection: PgConnection) {
        self.kept = Some((connection, Instant::now()));
    }
}

/// What the server answers to `asked` within `limit`; the connection is of no use after an error.
///
/// # Errors
/// The database's error; one of input and output that timed out when there was no answer.
pub async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let late = |_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()));
    timeout(limit, asked).await.unwrap_or_else(late)
}
