use chrono::NaiveDate;
use signalbox_datapoint_log::{drop_days, drop_table_days};
use sqlx::PgPool;

use super::{
    SeriesError,
    fold::renew_latest,
    snapshot::{Progress, begin_fold},
};

/// Drops the days before `oldest` from log and chunks; gives back how many partitions. Days that are not folded yet stay.
///
/// # Errors
/// [`SeriesError`].
pub async fn drop_old_days(pool: &PgPool, oldest: NaiveDate) -> Result<i32, SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    begin_fold(&mut transaction).await?;
    let progress = Progress::read(&mut transaction, "series").await?;
    let oldest = oldest.min(progress.day);
    let dropped = drop_table_days(&mut *transaction, "series.chunks", oldest).await?;
    let channels: Vec<i32> = sqlx::query_scalar("DELETE FROM series.latest WHERE day < $1 RETURNING channel")
        .bind(oldest)
        .fetch_all(&mut *transaction)
        .await?;
    renew_latest(&mut transaction, "series", &channels).await?;
    transaction.commit().await?;
    // The log last: should this fail, the chunks have gone first, and the next attempt takes the rest.
    Ok(dropped + drop_days(pool, oldest).await?)
}
