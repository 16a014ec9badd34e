//! Credentials of open sockets. They are looked at again and again, each once however many sockets it opened; one that is
//! void, or whose user may no longer do what the socket does, closes its sockets.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use signalbox_domain::identity::Role;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::identify,
    problem::ProblemKind,
    state::{AppState, State},
};

/// A credential, and the least role that its sockets need.
type Key = (String, Role);

/// The credentials of this gateway's open sockets.
#[derive(Debug, Default)]
pub(crate) struct OpenSockets(Mutex<HashMap<Key, Open>>);

#[derive(Debug)]
struct Open {
    sockets: usize,
    void: CancellationToken,
}

/// An open socket; dropped when it closes.
pub(crate) struct OpenSocket {
    state: AppState,
    key: Key,
    /// Cancelled when the credential is void.
    pub(crate) void: CancellationToken,
}

impl OpenSockets {
    /// Notes a socket that `token` has opened.
    pub(crate) fn open(state: &AppState, token: String, least: Role) -> OpenSocket {
        let key = (token, least);
        let mut open = state.open_sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry =
            open.entry(key.clone()).or_insert_with(|| Open { sockets: 0, void: CancellationToken::new() });
        entry.sockets += 1;
        OpenSocket { state: Arc::clone(state), key, void: entry.void.clone() }
    }

    fn keys(&self) -> Vec<Key> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn end(&self, key: &Key) {
        if let Some(open) = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key) {
            open.void.cancel();
        }
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let mut open = self.state.open_sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was ended and opened again is another one.
        if let Some(entry) = open.get_mut(&self.key)
            && !self.void.is_cancelled()
        {
            entry.sockets -= 1;
            if entry.sockets == 0 {
                open.remove(&self.key);
            }
        }
    }
}

/// Closes the sockets whose credential is void.
pub(crate) async fn end_void(state: &AppState) -> Result<(), sqlx::Error> {
    let sockets: &State = state;
    for key in sockets.open_sockets.keys() {
        let is_void = match identify(&key.0, state).await {
            Ok(who) => who.role < key.1,
            Err(problem) => problem.kind() == ProblemKind::Unauthenticated,
        };
        if is_void {
            sockets.open_sockets.end(&key);
        }
    }
    Ok(())
}
