//! Connects to PostgreSQL, checks that it is new enough, and migrates it forward.
//!
//! Three schemas: `public` holds the truth (the log and what is appended with it), `read` the read models,
//! which can be thrown away and rebuilt, `ops` what serves the running processes (keys, presence, idempotency).

mod begin;
mod own;

use std::{str::FromStr, time::Duration};

use sqlx::{
    Connection, PgConnection, PgPool,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolOptions},
};

pub use begin::begin;
pub use own::{BY_KEY, OwnConnection, within};

static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// Oldest supported server, as `server_version_num`.
const MIN_VERSION: i32 = 140_000;
/// A connection that has just been used is taken as it is: to ask it first would double the round trips of every query.
/// A server that was started again was away for longer than this.
const RESTED: Duration = Duration::from_millis(100);

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The address does not parse.
    #[error(
        "DATABASE_URL is not a PostgreSQL address; it looks like postgres://user:password@host:5432/name"
    )]
    Address(#[source] sqlx::Error),
    /// No connection.
    #[error("PostgreSQL cannot be reached: {0}; check that it runs and that DATABASE_URL is right")]
    Connect(#[source] sqlx::Error),
    /// Too old.
    #[error("PostgreSQL {0} is too old: Signalbox needs version 14 or newer")]
    TooOld(String),
    /// A query failed.
    #[error("a query on PostgreSQL failed: {0}")]
    Query(#[from] sqlx::Error),
    /// A migration failed, or the schema is newer than this program.
    #[error("the database schema cannot be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Opens a pool of at most `max_connections` and checks the server's version.
///
/// # Errors
/// [`DatabaseError`] says whether the address, the connection or the version is the problem.
pub async fn connect(url: &str, max_connections: u32) -> Result<PgPool, DatabaseError> {
    let options =
        PgConnectOptions::from_str(url).map_err(DatabaseError::Address)?.application_name("signalbox");
    let pool = PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(Duration::from_secs(10))
        .test_before_acquire(false)
        .before_acquire(|connection, meta| Box::pin(check_rested(connection, meta.idle_for)))
        .connect_with(options)
        .await
        .map_err(DatabaseError::Connect)?;
    check_version(&pool).await?;
    Ok(pool)
}

/// A pool on a replica, which may be away: it is connected to when it is first asked. Nothing can be written through it.
///
/// # Errors
/// [`DatabaseError::Address`].
pub fn replica(url: &str, max_connections: u32) -> Result<PgPool, DatabaseError> {
    let options = PgConnectOptions::from_str(url).map_err(DatabaseError::Address)?;
    let options = options.application_name("signalbox").options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new()
        .max_connections(max_connections)
        .acquire_timeout(Duration::from_secs(2))
        .test_before_acquire(false)
        .before_acquire(|connection, meta| Box::pin(check_rested(connection, meta.idle_for)));
    Ok(pool.connect_lazy_with(options))
}

/// Brings the schema up to date. Safe to call from several processes at once.
///
/// # Errors
/// [`DatabaseError::Migrate`] when a migration fails or the schema is newer than this program.
pub async fn migrate(pool: &PgPool) -> Result<(), DatabaseError> {
    Ok(MIGRATOR.run(pool).await?)
}

/// How many migrations of this program have not been applied.
///
/// # Errors
/// [`DatabaseError::Query`].
pub async fn pending(pool: &PgPool) -> Result<usize, DatabaseError> {
    let begun: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(pool).await?;
    let applied: Vec<i64> = match begun {
        true => {
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success").fetch_all(pool).await?
        }
        false => Vec::new(),
    };
    Ok(MIGRATOR.iter().filter(|migration| !applied.contains(&migration.version)).count())
}

async fn check_rested(connection: &mut PgConnection, idle_for: Duration) -> Result<bool, sqlx::Error> {
    if idle_for >= RESTED {
        connection.ping().await?;
    }
    Ok(true)
}

async fn check_version(pool: &PgPool) -> Result<(), DatabaseError> {
    let (number, text): (i32, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')",
    )
    .fetch_one(pool)
    .await?;
    if number < MIN_VERSION { Err(DatabaseError::TooOld(text)) } else { Ok(()) }
}
