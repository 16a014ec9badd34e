use std::{collections::HashMap, sync::Arc};

use sqlx::PgPool;
use tokio::sync::Mutex;

/// Numbers fetched at once; what a process does not use before it ends is left out.
const BLOCK: i32 = 32;

/// The integers that service 1 shows, drawn in blocks from sequences. Clones share the blocks.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pool: PgPool,
    blocks: Arc<Mutex<HashMap<&'static str, Vec<i64>>>>,
}

impl Numbers {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, blocks: Arc::default() }
    }

    /// The next number of `sequence`.
    pub(crate) async fn next(&self, sequence: &'static str) -> Result<i64, sqlx::Error> {
        let mut blocks = self.blocks.lock().await;
        let block = blocks.entry(sequence).or_default();
        if block.is_empty() {
            *block = sqlx::query_scalar(
                "SELECT nextval($1::regclass) AS n FROM generate_series(1, $2) ORDER BY n DESC",
            )
            .bind(sequence)
            .bind(BLOCK)
            .fetch_all(&self.pool)
            .await?;
        }
        block.pop().ok_or(sqlx::Error::RowNotFound)
    }
}
