use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use signalbox_database::next_numbers;
use sqlx::PgPool;
use tokio::sync::Mutex;

/// Numbers fetched at once; those that a process does not use before it ends are skipped.
const MIN_BLOCK: i32 = 32;
/// Numbers fetched at once while they are used up quickly.
const MAX_BLOCK: i32 = 1024;
/// A block that lasts less than this is followed by one of twice its size.
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
    /// Fetches the numbers that follow those of `last`.
    async fn fetch(pool: &PgPool, sequence: &str, last: Option<&Self>) -> Result<Self, sqlx::Error> {
        let size = match last {
            Some(last) if last.fetched.elapsed() < QUICK => (last.size * 2).min(MAX_BLOCK),
            _ => MIN_BLOCK,
        };
        let left = next_numbers(pool, sequence, size).await?;
        Ok(Self { size, fetched: Instant::now(), left })
    }
}

impl Numbers {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, blocks: Arc::default() }
    }

    /// The next number of `sequence`.
    pub(crate) async fn next(&self, sequence: &'static str) -> Result<i64, sqlx::Error> {
        let mut blocks = self.blocks.lock().await;
        if let Some(number) = blocks.get_mut(sequence).and_then(|block| block.left.pop()) {
            return Ok(number);
        }
        let mut block = Block::fetch(&self.pool, sequence, blocks.get(sequence)).await?;
        let number = block.left.pop().ok_or(sqlx::Error::RowNotFound)?;
        blocks.insert(sequence, block);
        Ok(number)
    }
}
