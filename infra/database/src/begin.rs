use std::borrow::Cow;

use sqlx::{PgPool, Postgres, Transaction};

/// Begins a transaction on a connection of `pool` by `statement`, such as `BEGIN`.
///
/// It is begun in a task of its own, because the caller may go away meanwhile, as requests do whose client hangs up: sqlx 0.8
/// counts a transaction only when the server has answered, and gives the connection back without a rollback if nobody
/// waits for that any more. Whoever got it next would write into a transaction that is never committed.
///
/// # Errors
/// The database's error.
pub async fn begin(
    pool: &PgPool,
    statement: impl Into<Cow<'static, str>>,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let (pool, statement) = (pool.clone(), statement.into());
    #[expect(clippy::disallowed_methods, reason = "this is the one place that cannot be cancelled")]
    let begun = tokio::spawn(async move { pool.begin_with(statement).await });
    begun.await.map_err(|_| sqlx::Error::WorkerCrashed)?
}
