//! Several files of one transfer at the same time.

use super::{Interrupt, TransferError};
use futures::{StreamExt, stream};

/// Runs `moves`, at most `parallel` at once. After an error the others are stopped and awaited, so that no part of
/// this attempt is still running when the error is reported.
pub async fn together<T, F>(
    group: &Interrupt,
    parallel: usize,
    moves: impl Iterator<Item = F>,
) -> Result<Vec<T>, TransferError>
where
    F: Future<Output = Result<T, TransferError>>,
{
    let mut running = stream::iter(moves).buffer_unordered(parallel);
    let mut done = Vec::new();
    let mut first_error = None;
    while let Some(moved) = running.next().await {
        match moved {
            Ok(value) => done.push(value),
            Err(error) => {
                group.stop_group();
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(done), Err)
}
