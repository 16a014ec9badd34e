use signalbox_boxed::boxed;
use sqlx::PgPool;

/// The next `count` numbers of `sequence`, the largest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn next_numbers(pool: &PgPool, sequence: &str, count: i32) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT nextval($1::regclass) AS n FROM generate_series(1, $2) ORDER BY n DESC")
        .bind(sequence)
        .bind(count)
        .fetch_all(pool)
        .await
}
