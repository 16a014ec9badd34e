//! Connects to PostgreSQL, checks that it is new enough, and migrates it forward.
//!
//! Three schemas: `public` holds the truth (the log and the rows appended with it), `read` the read models, which can
//! be dropped and rebuilt, `ops` the state of running processes (keys, presence, idempotency).

mod batches;
mod begin;
mod caller;
mod class;
mod concurrent_index;
mod functions;
mod host;
mod migrating;
pub mod ops;
mod own;
mod pool;
mod refusal;
mod sequence;
mod server;
mod server_time;
mod steps;
mod watch;

use signalbox_boxed::boxed;
use std::{str::FromStr, sync::Arc, time::Duration};

use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};

pub use batches::{BATCH, delete_batch, delete_in_batches};
pub use begin::{begin, begin_as};
pub use caller::on_behalf;
pub use class::Class;
pub use functions::{SqlFunction, sql_functions};
pub use host::{Host, clock_difference, least_space};
pub use migrating::migrate_by;
pub use ops::{
    Fault, LEAP, LEAP_INTERVAL, MAX_DIFFERENCE, StagedFile, clear_fault, fault_entries, faults,
    forget_fault_entry, forget_staged, give_up_staged, newest_recorded, note_check, note_fault_entry,
    note_staged, offer_staged, postpone_staged, report_fault, sweep_time,
};
pub use own::{BY_KEY, OwnConnection, within};
pub use refusal::{is_disk_full, is_lock_conflict, is_refusal};
pub use sequence::next_numbers;
pub use server::{
    ReplicaState, answers, create_database, has_replayed, replica_state, server_version,
    settings_that_lose_commits, wal_writer_delay, written_position,
};
pub use server_time::{CachedServerClock, ServerClock, SharedServerClock, server_time};
pub use steps::{RunningStep, StepWatch, Steps};

use functions::pending_functions;
use migrating::MIGRATOR;
use pool::Limits;

/// Oldest supported server, as `server_version_num`.
const MIN_VERSION: i32 = 140_000;
/// A connection that has just been used is taken as it is: to ask it first would double the round trips of every query.
/// A server that was started again was away for longer than this.
const RESTED: Duration = Duration::from_millis(100);
/// A connection that does not answer a ping within this is closed.
const PING: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(5);
/// How long a caller waits for a connection of a pool.
const ACQUIRE: Duration = Duration::from_secs(10);

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
    /// Another process does it, and does not finish.
    #[error(
        "another process has been bringing the database schema up to date for an hour: see what it does, or end it"
    )]
    MigratedElsewhere,
    /// A migration failed, or the schema is newer than this program.
    #[error("the database schema cannot be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Opens a pool of at most `max_connections` for requests and checks the server's version.
///
/// # Errors
/// [`DatabaseError`] distinguishes faults of the address, the connection and the version.
#[boxed]
pub async fn connect(url: &str, max_connections: u32) -> Result<PgPool, DatabaseError> {
    connect_as(url, max_connections, Class::Interactive).await
}

/// Like [`connect`], for statements of `class`.
///
/// # Errors
/// [`DatabaseError`].
#[boxed]
pub async fn connect_as(url: &str, max_connections: u32, class: Class) -> Result<PgPool, DatabaseError> {
    let options = PgConnectOptions::from_str(url).map_err(DatabaseError::Address)?;
    let limits = Limits { max_connections, acquire: ACQUIRE, one_server: true };
    let pool = pool::lazy(class.apply(options), limits);
    pool.acquire().await.map_err(DatabaseError::Connect)?;
    check_version(&pool).await?;
    Ok(pool)
}

/// Another pool to the server of `pool`, as large, for statements of `class`. It connects when it is first used.
pub fn pool_of(pool: &PgPool, class: Class) -> PgPool {
    let options = PgConnectOptions::clone(&pool.connect_options());
    let max_connections = pool.options().get_max_connections();
    pool::lazy(class.apply(options), Limits { max_connections, acquire: ACQUIRE, one_server: true })
}

/// A connection of its own to the server of `pool`, for statements of `class`.
///
/// # Errors
/// The server cannot be reached within 5 s.
#[boxed]
pub async fn connection_of(pool: &PgPool, class: Class) -> Result<PgConnection, sqlx::Error> {
    let options = Arc::new(class.apply(PgConnectOptions::clone(&pool.connect_options())));
    within(CONNECT, open(&options)).await
}

/// A pool on a replica, which may be away: it is connected to when it is first asked. Nothing can be written through it.
///
/// # Errors
/// [`DatabaseError::Address`].
pub fn replica(url: &str, max_connections: u32) -> Result<PgPool, DatabaseError> {
    let options = PgConnectOptions::from_str(url).map_err(DatabaseError::Address)?;
    let options = Class::Interactive.apply(options).options([("default_transaction_read_only", "on")]);
    // Several replicas may be behind one address.
    let limits = Limits { max_connections, acquire: Duration::from_secs(2), one_server: false };
    Ok(pool::lazy(options, limits))
}

/// Brings the schema up to date. Safe to call from several processes at once.
///
/// # Errors
/// [`DatabaseError::Migrate`] when a migration fails or the schema is newer than this program.
#[boxed]
pub async fn migrate(pool: &PgPool) -> Result<(), DatabaseError> {
    migrate_by(pool, &MIGRATOR, &sql_functions()).await
}

/// How many migrations and functions of this program have not been applied.
///
/// # Errors
/// [`DatabaseError::Query`].
#[boxed]
pub async fn pending(pool: &PgPool) -> Result<usize, DatabaseError> {
    let begun: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(pool).await?;
    let applied: Vec<i64> = match begun {
        true => {
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success").fetch_all(pool).await?
        }
        false => Vec::new(),
    };
    match MIGRATOR.iter().filter(|migration| !applied.contains(&migration.version)).count() {
        0 => Ok(pending_functions(&mut *pool.acquire().await?, &sql_functions()).await?.len()),
        missing => Ok(missing),
    }
}

async fn open(options: &Arc<PgConnectOptions>) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    watch::register(&mut connection, options, true).await?;
    Ok(connection)
}

async fn ping(connection: &mut PgConnection, limit: Duration) -> Result<(), sqlx::Error> {
    within(limit, connection.ping()).await
}

async fn check_version(pool: &PgPool) -> Result<(), DatabaseError> {
    let (number, text): (i32, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')",
    )
    .fetch_one(pool)
    .await?;
    if number < MIN_VERSION { Err(DatabaseError::TooOld(text)) } else { Ok(()) }
}
