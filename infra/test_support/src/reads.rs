use sqlx::PgPool;

use crate::{eventually, seconds};

/// The number of rows and index entries that `work` made PostgreSQL read, in the database of `pool`. A backend
/// reports its statistics when it ends, so `work` closes its connections.
pub async fn rows_read(pool: &PgPool, work: impl AsyncFnOnce()) -> i64 {
    until_others_have_ended(pool).await;
    let before = read_so_far(pool).await;
    work().await;
    until_others_have_ended(pool).await;
    read_so_far(pool).await - before
}

async fn until_others_have_ended(pool: &PgPool) {
    eventually(seconds(30), async || {
        let others = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        others.fetch_one(pool).await.expect("pg_stat_activity is readable") == 0
    })
    .await;
}

async fn read_so_far(pool: &PgPool) -> i64 {
    sqlx::query_scalar(
        "SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)::bigint
              + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)::bigint",
    )
    .fetch_one(pool)
    .await
    .expect("the statistics are readable")
}
