use signalbox_boxed::boxed;
use sqlx::PgPool;

/// Those of `keys` that are claimed now. Claims change together with the events that make them, so a deletion that was
/// answered is seen.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn claimed(pool: &PgPool, kind: &str, keys: &[String]) -> Result<Vec<String>, sqlx::Error> {
    // A join: `= ANY` would compare each claim of the kind with each key, one after the other.
    sqlx::query_scalar(
        "SELECT c.key FROM unnest($2::text[]) AS given (key) JOIN claims c ON c.kind = $1 AND c.key = given.key",
    )
        .bind(kind)
        .bind(keys)
        .fetch_all(pool)
        .await
}
