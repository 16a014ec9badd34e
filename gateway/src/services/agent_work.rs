//! Work that is done for agents at this moment: sockets, held polls, bodies. It ends within a second after its token was
//! revoked or has expired, whichever token opened the agent's session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signalbox_domain::kernel::AgentId;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::auth::AgentAuth;
use crate::http::problem::Problem;

/// The tokens under which this gateway works now.
#[derive(Debug, Default, Clone)]
pub(crate) struct AgentWork(Arc<Mutex<HashMap<Uuid, Running>>>);

#[derive(Debug)]
struct Running {
    agent: AgentId,
    count: usize,
    void: CancellationToken,
}

/// One piece of work, until it is dropped.
pub(crate) struct Work {
    all: AgentWork,
    token: Uuid,
    /// Cancelled when the token is void.
    pub(crate) void: CancellationToken,
}

impl AgentWork {
    /// Registers work under the token of `auth`.
    pub(crate) fn begin(&self, auth: &AgentAuth) -> Work {
        let mut running = self.lock();
        let entry = running.entry(auth.token).or_insert_with(|| Running {
            agent: auth.agent,
            count: 0,
            void: CancellationToken::new(),
        });
        entry.count += 1;
        Work { all: self.clone(), token: auth.token, void: entry.void.clone() }
    }

    /// The tokens of all work.
    pub(crate) fn tokens(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }

    /// Ends all work under the tokens `void`.
    pub(crate) fn end_tokens(&self, void: &[Uuid]) {
        self.lock().retain(|token, running| {
            let ends = void.contains(token);
            if ends {
                running.void.cancel();
            }
            !ends
        });
    }

    /// Whether work for `agent` is in progress.
    pub(crate) fn serves(&self, agent: AgentId) -> bool {
        self.lock().values().any(|running| running.agent == agent)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// The answer to a call whose token became void in the middle of it.
    pub(crate) fn refusal() -> Problem {
        Problem::unauthenticated("the agent token was revoked or has expired")
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut running = self.all.lock();
        // An entry that was ended is no longer this work's: a later one may have taken its place.
        if let Some(entry) = running.get_mut(&self.token)
            && !self.void.is_cancelled()
        {
            entry.count -= 1;
            if entry.count == 0 {
                running.remove(&self.token);
            }
        }
    }
}
