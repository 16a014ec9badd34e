use signalbox_boxed::boxed;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

use crate::{CONNECT, Class, PING, RESTED, open, ping, watch};

/// For statements that find rows by key, and are the same every time: planned once. The plan may be made while a table is
/// still empty; a scan of it would stay when it has grown.
pub const BY_KEY: [(&str, &str); 2] = [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")];

/// A connection for one task that uses it continuously. The pool checks every returned connection, which doubles the
/// round trips of short statements.
#[derive(Debug)]
pub struct OwnConnection {
    options: Arc<PgConnectOptions>,
    kept: Option<(PgConnection, Instant)>,
}

impl OwnConnection {
    /// One to the server of `pool`, of the pool's class and with these settings of PostgreSQL; it is opened when it is
    /// first taken.
    pub fn new(pool: &PgPool, settings: &[(&str, &str)]) -> Self {
        let options = PgConnectOptions::clone(&pool.connect_options());
        Self { options: Arc::new(options.options(settings.iter().copied())), kept: None }
    }

    /// The connection, a new one if the last was not kept, was closed, or does not answer within 2 s.
    ///
    /// # Errors
    /// The server cannot be reached within 5 s.
    #[boxed]
    pub async fn take(&mut self) -> Result<PgConnection, sqlx::Error> {
        if let Some((mut connection, since)) = self.kept.take()
            && (since.elapsed() < RESTED || ping(&mut connection, PING).await.is_ok())
        {
            watch::take(&connection, Class::of(&self.options));
            return Ok(connection);
        }
        within(CONNECT, open(&self.options)).await
    }

    /// Keeps `connection` for the next [`OwnConnection::take`]. One that is dropped instead, after an error, is
    /// closed, and the server rolls back its transaction.
    pub fn keep(&mut self, connection: PgConnection) {
        watch::rest(&connection);
        self.kept = Some((connection, Instant::now()));
    }
}

/// The server's answer to `asked` within `limit`; the connection is unusable after an error.
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
