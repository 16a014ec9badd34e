//! Credentials of open sockets. They are checked again and again, each once however many sockets it opened; one that is void,
//! or whose user may no longer do what the socket does, closes its sockets. A user has a limited number of sockets.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{identity::Role, kernel::UserId};
use tokio_util::sync::CancellationToken;

use super::auth::Credentials;
use crate::http::problem::{Problem, ProblemKind};

const REVOKED: &str = "Token has been revoked";
const EXPIRED: &str = "Token has expired";
pub(crate) const DEMOTED: &str = "The role of the user no longer allows this";
/// Credentials that are checked at the same time; far fewer than the pool has connections.
const CHECKS: usize = 8;
/// Seconds after which a user with too many sockets may try again.
const RETRY_AFTER: u64 = 5;

/// A credential, and the least role that its sockets need.
type Key = (String, Role);

/// The credentials of this gateway's open sockets, and how many sockets each user has.
/// Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct OpenSockets {
    per_user: u32,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    credentials: HashMap<Key, Open>,
    users: HashMap<UserId, u32>,
}

#[derive(Debug)]
struct Open {
    sockets: usize,
    void: Arc<Void>,
}

#[derive(Debug, Default)]
struct Void {
    token: CancellationToken,
    reason: OnceLock<&'static str>,
}

/// An open socket; dropped when it closes.
pub(crate) struct OpenSocket {
    all: OpenSockets,
    /// The user that the socket counts for.
    user: Option<UserId>,
    key: Key,
    void: Arc<Void>,
}

impl OpenSockets {
    /// At most `per_user` sockets of each user.
    pub(crate) fn new(per_user: u32) -> Self {
        Self { per_user, inner: Arc::default() }
    }

    /// Counts a socket that `token` of `user` has opened.
    ///
    /// # Errors
    /// The user has as many sockets as one may have.
    pub(crate) fn open(&self, user: UserId, token: String, least: Role) -> Result<OpenSocket, Problem> {
        let mut open = self.inner();
        let count = open.users.entry(user).or_default();
        if *count >= self.per_user {
            return Err(Problem::too_many(RETRY_AFTER));
        }
        *count += 1;
        Ok(self.enter(open, Some(user), (token, least)))
    }

    /// Watches the credential of a request or an answer whose body moves, which counts as no socket.
    pub(crate) fn watch(&self, token: String, least: Role) -> OpenSocket {
        self.enter(self.inner(), None, (token, least))
    }

    fn enter(&self, mut open: MutexGuard<'_, Inner>, user: Option<UserId>, key: Key) -> OpenSocket {
        let new = || Open { sockets: 0, void: Arc::default() };
        let entry = open.credentials.entry(key.clone()).or_insert_with(new);
        entry.sockets += 1;
        OpenSocket { all: self.clone(), user, key, void: entry.void.clone() }
    }

    /// Closes the sockets whose credential is void.
    pub(crate) async fn end_void(&self, credentials: &Credentials) -> Result<(), sqlx::Error> {
        check_each(self.keys(), |key| self.end_if_void(credentials, key)).await
    }

    async fn end_if_void(&self, credentials: &Credentials, key: Key) -> Result<(), sqlx::Error> {
        let reason = match credentials.identify(&key.0).await {
            Ok(current) if current.role < key.1 => DEMOTED,
            Err(problem) if problem.kind() == ProblemKind::Unauthenticated => {
                if credentials.has_expired(&key.0).await? { EXPIRED } else { REVOKED }
            }
            _ => return Ok(()),
        };
        self.end(&key, reason);
        Ok(())
    }

    fn keys(&self) -> Vec<Key> {
        self.inner().credentials.keys().cloned().collect()
    }

    fn end(&self, key: &Key, reason: &'static str) {
        if let Some(open) = self.inner().credentials.remove(key) {
            open.void.reason.get_or_init(|| reason);
            open.void.token.cancel();
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSocket {
    /// Waits until the credential is void; returns why it is.
    pub(crate) async fn void(&self) -> &'static str {
        self.void.token.cancelled().await;
        self.void.reason.get().copied().unwrap_or(REVOKED)
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let mut open = self.all.inner();
        if let Some(user) = self.user
            && let Some(count) = open.users.get_mut(&user)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.users.remove(&user);
            }
        }
        // A credential that was ended and opened again has another entry.
        if let Some(entry) = open.credentials.get_mut(&self.key)
            && Arc::ptr_eq(&entry.void, &self.void)
        {
            entry.sockets -= 1;
            if entry.sockets == 0 {
                open.credentials.remove(&self.key);
            }
        }
    }
}

/// Checks several of `keys` at the same time, because a revocation is in force within a second however many there are.
async fn check_each<K, F: Future<Output = Result<(), sqlx::Error>>>(
    keys: Vec<K>,
    check: impl Fn(K) -> F,
) -> Result<(), sqlx::Error> {
    stream::iter(keys).map(check).buffer_unordered(CHECKS).try_collect().await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::Barrier, time::timeout};

    use super::*;

    #[tokio::test]
    async fn credentials_do_not_wait_for_each_other() {
        let all_checked = &Barrier::new(CHECKS);
        let check = |_: usize| async move {
            all_checked.wait().await;
            Ok(())
        };
        let keys = (0..2 * CHECKS).collect();
        timeout(Duration::from_secs(20), check_each(keys, check)).await.unwrap().unwrap();
    }
}
