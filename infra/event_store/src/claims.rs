use signalbox_boxed::boxed;
use sqlx::PgPool;

/// Those of `keys` that are claimed now. Claims change together with the events that make them, so a deletion that was
/// answered is seen.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn claimed(pool: &PgPool, kind: &str, keys: &[String]) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT key FROM claims WHERE kind = $1 AND key = ANY($2)")
        .bind(kind)
        .bind(keys)
        .fetch_all(pool)
        .await
}
