use cqrs_es::AggregateError;
use signalbox_domain::kernel::Decider;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    execute::{ExecuteError, translate},
    store::load,
};

/// Claims of one kind that are compared with their owners.
const CLAIMS: i64 = 100;

/// Whether there is a claim of `kind`.
///
/// # Errors
/// The database's error.
pub async fn is_any_claimed(pool: &PgPool, kind: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM claims WHERE kind = $1)").bind(kind).fetch_one(pool).await
}

/// Releases claims of `kind` that their owners, aggregates `D`, do not hold by their own state: a process of an earlier release, which
/// did not know the kind, has changed them. Of a hundred of them at most, and none from the first on that its owner holds; returns how
/// many.
///
/// # Errors
/// [`ExecuteError`]; some may be released then. It is [`ExecuteError::Unreadable`] if it is unknown whether an owner holds its claim.
pub async fn release_unheld<D: Decider>(
    pool: &PgPool,
    kind: &str,
    holds: impl Fn(&D) -> bool,
) -> Result<u64, ExecuteError> {
    let owners: Vec<String> =
        sqlx::query_scalar("SELECT owner FROM claims WHERE kind = $1 ORDER BY key LIMIT $2")
            .bind(kind)
            .bind(CLAIMS)
            .fetch_all(pool)
            .await
            .map_err(unavailable)?;
    let mut released = 0;
    for owner in owners {
        let id = owner.parse::<Uuid>().map_err(|error| ExecuteError::Unreadable(error.to_string()))?;
        let loaded = load::<D>(pool, id).await.map_err(|error| translate(AggregateError::from(error)))?;
        if holds(&loaded.root.0) {
            break;
        }
        released += release(pool, kind, (D::TYPE, &owner), loaded.version).await.map_err(unavailable)?;
    }
    Ok(released)
}

/// Releases the claims of `kind` of a stream that is at `version`.
async fn release(
    pool: &PgPool,
    kind: &str,
    (aggregate_type, owner): (&str, &str),
    version: i64,
) -> Result<u64, sqlx::Error> {
    // Under the lock of the head row, as in an append: no event of the stream is appended between the look at its version and the release.
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    sqlx::query("SELECT FROM log_head WHERE log = 'events' FOR UPDATE").execute(&mut *transaction).await?;
    let released = sqlx::query(
        "DELETE FROM claims WHERE kind = $1 AND owner = $3
            AND (SELECT max(sequence) FROM events e WHERE e.aggregate_type = $2 AND e.aggregate_id = $3) = $4",
    )
    .bind(kind)
    .bind(aggregate_type)
    .bind(owner)
    .bind(version)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(released.rows_affected())
}

fn unavailable(error: sqlx::Error) -> ExecuteError {
    ExecuteError::Unavailable(error.to_string())
}
