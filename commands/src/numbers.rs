use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tokio::sync::Mutex;

/// Numbers fetched at once; what a process does not use before it ends is left out.
const BLOCK: i32 = 32;
/// Numbers fetched at once while they are used up quickly.
const MAX_BLOCK: i32 = 1024;
/// A block that does not last so long is followed by one of twice its size.
const QUICK: Duration = Duration::from_secs(1);

/// The integers that service 1 shows, drawn in blocks from sequences. Clones share the blocks.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pool: PgPool,
    blocks: Arc<Mutex<HashMap<&'static str, Block>>>,
}

#[derive(Debug)]
struct Block {
    size: i32,
    fetched: Instant,
    /// The next one last.
    left: Vec<i64>,
}

impl Block {
    fn new() -> Self {
        Self { size: BLOCK / 2, fetched: Instant::now(), left: Vec::new() }
    }

    fn next_size(&self) -> i32 {
        if self.fetched.elapsed() < QUICK { (self.size * 2).min(MAX_BLOCK) } else { BLOCK }
    }
}

impl Numbers {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, blocks: Arc::default() }
    }

    /// The next number of `sequence`.
    pub(crate) async fn next(&self, sequence: &'static str) -> Result<i64, sqlx::Error> {
        let mut blocks = self.blocks.lock().await;
        let block = blocks.entry(sequence).or_insert_with(Block::new);
        if block.left.is_empty() {
            let size = block.next_size();
            let left = sqlx::query_scalar(
                "SELECT nextval($1::regclass) AS n FROM generate_series(1, $2) ORDER BY n DESC",
            )
            .bind(sequence)
            .bind(size)
            .fetch_all(&self.pool)
            .await?;
            *block = Block { size, fetched: Instant::now(), left };
        }
        block.left.pop().ok_or(sqlx::Error::RowNotFound)
    }
}
