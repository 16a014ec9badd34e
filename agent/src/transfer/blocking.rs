//! Work on files happens on threads of its own, off the async ones.

use super::TransferError;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs `work` on a blocking thread and waits for it.
pub async fn blocking<T, F>(work: F) -> Result<T, TransferError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, TransferError> + Send + 'static,
{
    join(spawn_blocking(work)).await
}

/// Waits for work that was started before.
pub async fn join<T>(handle: JoinHandle<Result<T, TransferError>>) -> Result<T, TransferError> {
    handle.await.unwrap_or(Err(TransferError::Internal))
}
