//! Pools whose connections are pinged before use within a limit, and watched while in use.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Class, PING, RESTED, caller, ping, watch};

/// How a pool behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_connections: u32,
    pub(crate) acquire: Duration,
    /// Whether the address always leads to the same server.
    pub(crate) one_server: bool,
}

/// A pool that connects by `options` when it is first used.
pub(crate) fn lazy(options: PgConnectOptions, limits: Limits) -> PgPool {
    let class = Class::of(&options);
    let shared = Arc::new(options.clone());
    // The last ping without an answer: connections that rested then are most likely silent too.
    let silence: Arc<Mutex<Option<Instant>>> = Arc::default();
    PgPoolOptions::new()
        .max_connections(limits.max_connections)
        .acquire_timeout(limits.acquire)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let options = shared.clone();
            Box::pin(async move {
                watch::register(connection, &options, limits.one_server).await?;
                caller::note(connection);
                Ok(())
            })
        })
        .before_acquire(move |connection, meta| {
            let silence = silence.clone();
            Box::pin(async move { check(connection, class, meta.idle_for, &silence).await })
        })
        .after_release(|connection, _| {
            watch::put_back(connection);
            Box::pin(async { caller::settle(connection).await.map(|()| true) })
        })
        .connect_lazy_with(options)
}

/// A connection that has just been used is taken as it is: to ping it first would double the round trips of every query.
async fn check(
    connection: &mut PgConnection,
    class: Class,
    rested: Duration,
    silence: &Mutex<Option<Instant>>,
) -> Result<bool, sqlx::Error> {
    if rested >= RESTED {
        let silent_at = *silence.lock().unwrap_or_else(PoisonError::into_inner);
        if silent_at.is_some_and(|at| Instant::now().checked_sub(rested).is_some_and(|since| since < at)) {
            return Ok(false);
        }
        if let Err(error) = ping(connection, PING).await {
            if matches!(&error, sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::TimedOut) {
                *silence.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
            return Err(error);
        }
    }
    watch::take(connection, class);
    caller::note(connection);
    Ok(true)
}
