//! The agents that are connected to this gateway.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{kernel::AgentId, transfer::TransportMode};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A polling agent that has not asked for this long is no longer ours to report; the longest poll takes 120 s.
const FORGET: TimeDelta = TimeDelta::seconds(150);
/// Progress of one transfer is passed on at most this often.
const PROGRESS_EVERY: TimeDelta = TimeDelta::milliseconds(1000);
/// Transfers whose last progress is remembered at most; then all are forgotten.
const MAX_PROGRESS: usize = 100_000;

/// A session of an agent on this gateway.
#[derive(Debug)]
struct Live {
    session: Uuid,
    token: Uuid,
    transport: TransportMode,
    last_seen: DateTime<Utc>,
    /// Polls under way.
    polls: usize,
    close: CancellationToken,
}

/// All sessions of this gateway.
#[derive(Debug, Default)]
pub(crate) struct LiveAgents {
    sessions: Mutex<HashMap<AgentId, Live>>,
    progress: Mutex<HashMap<Uuid, DateTime<Utc>>>,
}

/// A sign of life, to be noted beside the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presence {
    pub(crate) agent: AgentId,
    pub(crate) session: Uuid,
    pub(crate) last_seen: DateTime<Utc>,
}

impl LiveAgents {
    /// Begins a session and ends an earlier one of the same agent. The token given back is cancelled when the session
    /// has to end.
    pub(super) fn open(
        &self,
        agent: AgentId,
        session: Uuid,
        token: Uuid,
        transport: TransportMode,
        now: DateTime<Utc>,
    ) -> CancellationToken {
        let close = CancellationToken::new();
        let live = Live { session, token, transport, last_seen: now, polls: 0, close: close.clone() };
        if let Some(old) = self.sessions().insert(agent, live) {
            old.close.cancel();
        }
        close
    }

    /// Ends `session`; a newer one of the agent stays.
    pub(super) fn close(&self, agent: AgentId, session: Uuid) {
        let mut sessions = self.sessions();
        if sessions.get(&agent).is_some_and(|live| live.session == session) {
            sessions.remove(&agent);
        }
    }

    /// The polling session of `agent` on this gateway, with its end.
    pub(super) fn polling(&self, agent: AgentId) -> Option<CancellationToken> {
        let sessions = self.sessions();
        let live = sessions.get(&agent).filter(|live| live.transport == TransportMode::Polling)?;
        Some(live.close.clone())
    }

    /// The agent has been heard.
    pub(super) fn touch(&self, agent: AgentId, now: DateTime<Utc>) {
        if let Some(live) = self.sessions().get_mut(&agent) {
            live.last_seen = now;
        }
    }

    /// A poll begins (`1`) or ends (`-1`).
    pub(super) fn count_poll(&self, agent: AgentId, change: isize, now: DateTime<Utc>) {
        if let Some(live) = self.sessions().get_mut(&agent) {
            live.polls = live.polls.saturating_add_signed(change);
            live.last_seen = now;
        }
    }

    /// A gateway has begun `session` of `agent`: an older one here ends. Keys of sessions grow with time, so news that
    /// come late end nothing newer.
    pub(crate) fn replaced(&self, agent: AgentId, session: Uuid) {
        let mut sessions = self.sessions();
        if sessions.get(&agent).is_some_and(|live| live.session < session)
            && let Some(old) = sessions.remove(&agent)
        {
            old.close.cancel();
        }
    }

    /// The tokens that sessions were opened with.
    pub(crate) fn tokens(&self) -> Vec<Uuid> {
        self.sessions().values().map(|live| live.token).collect()
    }

    /// Ends all sessions whose token is among `void`.
    pub(crate) fn end_tokens(&self, void: &[Uuid]) {
        self.sessions().retain(|_, live| {
            let ends = void.contains(&live.token);
            if ends {
                live.close.cancel();
            }
            !ends
        });
    }

    /// Signs of life of all sessions; forgets polling agents that have gone silent.
    pub(crate) fn presences(&self, now: DateTime<Utc>) -> Vec<Presence> {
        let mut sessions = self.sessions();
        sessions.retain(|_, live| {
            live.transport == TransportMode::Websocket || live.polls > 0 || now - live.last_seen < FORGET
        });
        sessions
            .iter()
            .map(|(agent, live)| Presence {
                agent: *agent,
                session: live.session,
                last_seen: if live.polls > 0 { now } else { live.last_seen },
            })
            .collect()
    }

    /// Whether progress of `transfer` may be passed on now: at most once a second.
    pub(super) fn may_report(&self, transfer: Uuid, now: DateTime<Utc>) -> bool {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.get(&transfer).is_some_and(|last| now - *last < PROGRESS_EVERY) {
            return false;
        }
        if progress.len() >= MAX_PROGRESS {
            progress.clear();
        }
        progress.insert(transfer, now);
        true
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<AgentId, Live>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: AgentId = AgentId(Uuid::from_u128(1));
    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn open(agents: &LiveAgents, session: u128) -> CancellationToken {
        agents.open(AGENT, Uuid::from_u128(session), Uuid::from_u128(9), TransportMode::Websocket, NOW)
    }

    #[test]
    fn the_end_of_an_old_session_leaves_the_new_one() {
        let agents = LiveAgents::default();
        let old = open(&agents, 1);
        let new = open(&agents, 2);
        agents.close(AGENT, Uuid::from_u128(1));
        assert!(old.is_cancelled() && !new.is_cancelled());
        assert_eq!(agents.presences(NOW).len(), 1);
    }

    #[test]
    fn a_session_elsewhere_ends_the_one_here() {
        let agents = LiveAgents::default();
        let here = open(&agents, 1);
        agents.replaced(AGENT, Uuid::from_u128(0));
        agents.replaced(AGENT, Uuid::from_u128(1));
        assert!(!here.is_cancelled());
        agents.replaced(AGENT, Uuid::from_u128(2));
        assert!(here.is_cancelled());
    }

    #[test]
    fn a_revoked_token_ends_its_session() {
        let agents = LiveAgents::default();
        let here = open(&agents, 1);
        agents.end_tokens(&[Uuid::from_u128(8)]);
        assert!(!here.is_cancelled());
        agents.end_tokens(&[Uuid::from_u128(9)]);
        assert!(here.is_cancelled());
    }
}
