use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use uuid::Uuid;

/// Commands for one aggregate wait for each other within a process, which spares them conflicts. An economy:
/// between processes the log's optimistic lock decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(Arc<Mutex<HashMap<Uuid, Arc<AsyncMutex<()>>>>>);

/// Held while a command runs.
pub(crate) struct Alone {
    locks: Locks,
    id: Uuid,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Locks {
    pub(crate) async fn lock(&self, id: Uuid) -> Alone {
        let lock = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default().clone();
        Alone { locks: self.clone(), id, guard: Some(lock.lock_owned().await) }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let mut locks = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.guard.take());
        // Only the map holds it: no command waits for it.
        if locks.get(&self.id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_without_waiters_is_removed() {
        let locks = Locks::default();
        let id = Uuid::from_u128(1);
        let held = locks.lock(id).await;
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { drop(locks.lock(id).await) }
        });
        drop(held);
        waiting.await.unwrap();
        assert!(locks.0.lock().unwrap().is_empty());
    }
}
