use signalbox_boxed::boxed;
use std::borrow::Cow;

use sqlx::{PgPool, Postgres, Transaction};

use crate::{Class, caller, watch};

/// Starts a transaction on a connection of `pool` by `statement`, such as `BEGIN`.
///
/// It is started in a task of its own, because the caller may be dropped meanwhile, as requests are whose client
/// hangs up: sqlx 0.8 counts a transaction only when the server has answered, and returns the connection without a
/// rollback if the future was dropped before. The next user of the connection would write into a transaction that is
/// never committed.
///
/// # Errors
/// The database's error.
pub async fn begin(
    pool: &PgPool,
    statement: impl Into<Cow<'static, str>>,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let (pool, statement, using) = (pool.clone(), statement.into(), caller::present());
    #[expect(clippy::disallowed_methods, reason = "this is the one place that cannot be cancelled")]
    let begun = tokio::spawn(caller::continued(using, async move { pool.begin_with(statement).await }));
    begun.await.map_err(|_| sqlx::Error::WorkerCrashed)?
}

/// Like [`begin`], for statements of `class`, unless those of the pool may take longer.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn begin_as(
    pool: &PgPool,
    class: Class,
    statement: &str,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let class = class.max(Class::of(&pool.connect_options()));
    let transaction = begin(pool, format!("{statement}; {}", class.set_local())).await?;
    watch::take(&transaction, class);
    Ok(transaction)
}
