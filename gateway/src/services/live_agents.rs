//! The agents that are connected to this gateway.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signalbox_domain::{
    kernel::AgentId,
    transfer::{AgentSystem, TransportMode},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A polling agent that has not asked for this long is no longer ours to report; the longest poll takes 120 s.
const FORGET: Duration = Duration::from_secs(150);
/// Progress of one transfer is passed on at most this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(1000);
/// Transfers whose last progress is remembered at most; then all are forgotten.
const MAX_PROGRESS: usize = 100_000;

/// Descriptions of one agent are recorded at most this often; of several in between only the last one.
pub(crate) const DESCRIBE_EVERY: Duration = Duration::from_secs(1);
/// Agents whose last description is remembered at most; then all are forgotten.
const MAX_DESCRIBED: usize = 100_000;
/// A session that lasted this long shows that nothing else uses the agent's token any more.
const STEADY: Duration = Duration::from_secs(300);
/// Within this time overlapping polls and sockets count together.
const OVERLAP_WINDOW: Duration = Duration::from_secs(120);
/// Overlaps that show two processes. One or two occur when an agent changes its transport or its network.
const OVERLAPS: u32 = 3;

/// A session of an agent on this gateway.
#[derive(Debug)]
struct Live {
    session: Uuid,
    /// Version of the agent in the log when the session was recorded: the order of sessions, whatever the clocks say.
    version: i64,
    since: Instant,
    token: Uuid,
    transport: TransportMode,
    /// By the clock's monotonic time, as all times here that the gateway gives.
    last_seen: Duration,
    /// Polls under way.
    polls: usize,
    close: CancellationToken,
}

/// All sessions of this gateway.
#[derive(Debug, Default)]
pub(crate) struct LiveAgents {
    sessions: Mutex<HashMap<AgentId, Live>>,
    /// When progress of a transfer was passed on last, by agent and the transfer's integer.
    progress: Mutex<HashMap<(AgentId, i64), Duration>>,
    described: Mutex<HashMap<AgentId, Described>>,
    /// When two processes with one token were last noticed.
    doubles: Mutex<HashMap<AgentId, Instant>>,
    overlaps: Mutex<HashMap<AgentId, Overlaps>>,
}

/// Overlapping polls and sockets of an agent.
#[derive(Debug)]
struct Overlaps {
    since: Instant,
    count: u32,
}

/// An agent's description of its machine.
#[derive(Debug)]
struct Described {
    /// The last recorded description, and its time.
    recorded: Option<(AgentSystem, Instant)>,
    /// Counts the descriptions that wait, so that only the last one is recorded.
    waiting: u64,
}

/// The treatment of a description.
enum Turn {
    Record,
    Skip,
    Wait { until: Instant, number: u64 },
}

/// A session that a void token has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedSession {
    pub(crate) agent: AgentId,
    pub(crate) session: Uuid,
    pub(crate) transport: TransportMode,
}

/// A sign of life, to be noted beside the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presence {
    pub(crate) agent: AgentId,
    pub(crate) session: Uuid,
    /// How long ago the agent was heard.
    pub(crate) silence: Duration,
}

impl LiveAgents {
    /// Starts a session and ends an earlier one of the same agent. The returned token is cancelled when the session
    /// has to end, which is at once if a later session of the agent exists already.
    pub(crate) fn open(
        &self,
        agent: AgentId,
        (session, version): (Uuid, i64),
        token: Uuid,
        transport: TransportMode,
        now: Duration,
    ) -> CancellationToken {
        let close = CancellationToken::new();
        let since = Instant::now();
        let live = Live {
            session,
            version,
            since,
            token,
            transport,
            last_seen: now,
            polls: 0,
            close: close.clone(),
        };
        let mut sessions = self.sessions();
        if sessions.get(&agent).is_some_and(|present| present.version > version) {
            close.cancel();
        } else if let Some(old) = sessions.insert(agent, live) {
            old.close.cancel();
        }
        close
    }

    /// Ends `session`; a newer one of the agent stays.
    pub(crate) fn close(&self, agent: AgentId, session: Uuid) {
        let mut sessions = self.sessions();
        if sessions.get(&agent).is_some_and(|live| live.session == session) {
            sessions.remove(&agent);
        }
    }

    /// The end of `session`, if it is here and a polling one.
    pub(crate) fn polling(&self, agent: AgentId, session: Uuid) -> Option<CancellationToken> {
        let sessions = self.sessions();
        let live = sessions.get(&agent).filter(|live| live.session == session)?;
        (live.transport == TransportMode::Polling).then(|| live.close.clone())
    }

    /// The agent has been heard.
    pub(crate) fn touch(&self, agent: AgentId, now: Duration) {
        if let Some(live) = self.sessions().get_mut(&agent) {
            live.last_seen = now;
        }
    }

    /// A poll starts (`1`) or ends (`-1`). Returns whether it starts beside another one, or beside a WebSocket.
    pub(crate) fn count_poll(&self, agent: AgentId, change: isize, now: Duration) -> bool {
        let mut sessions = self.sessions();
        let Some(live) = sessions.get_mut(&agent) else { return false };
        live.polls = live.polls.saturating_add_signed(change);
        live.last_seen = now;
        change > 0 && (live.polls > 1 || live.transport == TransportMode::Websocket)
    }

    /// Counts a poll that overlapped another one, or a socket that was replaced while it was open. Returns whether there
    /// were so many that two processes must be at work.
    pub(crate) fn note_overlap(&self, agent: AgentId, now: Instant) -> bool {
        let mut overlaps = lock(&self.overlaps);
        overlaps.retain(|_, overlaps| now - overlaps.since < OVERLAP_WINDOW);
        let entry = overlaps.entry(agent).or_insert(Overlaps { since: now, count: 0 });
        entry.count += 1;
        let is_double = entry.count >= OVERLAPS;
        if is_double {
            overlaps.remove(&agent);
        }
        is_double
    }

    /// Two processes with the token of `agent` were noticed.
    pub(crate) fn note_double(&self, agent: AgentId) {
        let now = Instant::now();
        let mut doubles = lock(&self.doubles);
        doubles.retain(|_, noticed| now - *noticed < STEADY);
        doubles.insert(agent, now);
    }

    /// Agents whose session has lasted, without a second process.
    pub(crate) fn steady(&self) -> Vec<AgentId> {
        let now = Instant::now();
        let doubles = lock(&self.doubles);
        let is_double = |agent: &AgentId| doubles.get(agent).is_some_and(|noticed| now - *noticed < STEADY);
        let sessions = self.sessions();
        let steady = sessions.iter().filter(|(agent, live)| now - live.since >= STEADY && !is_double(agent));
        steady.map(|(agent, _)| *agent).collect()
    }

    /// Waits until a description of `agent` may be recorded. `false`: it says nothing new, or a later one takes its
    /// place.
    pub(crate) async fn may_describe(&self, agent: AgentId, system: &AgentSystem) -> bool {
        match self.turn(agent, system) {
            Turn::Record => true,
            Turn::Skip => false,
            Turn::Wait { until, number } => {
                sleep_until(until).await;
                let mut described = lock(&self.described);
                let entry = described.get_mut(&agent).filter(|entry| entry.waiting == number);
                let is_last = entry.is_some();
                if let Some(entry) = entry {
                    entry.recorded = Some((system.clone(), Instant::now()));
                    entry.waiting += 1;
                }
                is_last
            }
        }
    }

    fn turn(&self, agent: AgentId, system: &AgentSystem) -> Turn {
        let now = Instant::now();
        let mut described = lock(&self.described);
        if described.len() >= MAX_DESCRIBED {
            described.clear();
        }
        let entry = described.entry(agent).or_insert(Described { recorded: None, waiting: 0 });
        entry.waiting += 1;
        match &entry.recorded {
            Some((known, _)) if known == system => Turn::Skip,
            Some((_, at)) if now - *at < DESCRIBE_EVERY => {
                Turn::Wait { until: *at + DESCRIBE_EVERY, number: entry.waiting }
            }
            _ => {
                entry.recorded = Some((system.clone(), now));
                Turn::Record
            }
        }
    }

    /// The description of `agent` was not recorded, or another gateway may have recorded another one.
    pub(crate) fn forget_description(&self, agent: AgentId) {
        lock(&self.described).remove(&agent);
    }

    /// A gateway has begun `session` of `agent`: an older one here ends. Late notifications end nothing newer.
    pub(crate) fn replaced(&self, agent: AgentId, session: Uuid, version: i64) {
        let mut sessions = self.sessions();
        if sessions.get(&agent).is_some_and(|live| live.session != session && live.version < version)
            && let Some(old) = sessions.remove(&agent)
        {
            old.close.cancel();
        }
    }

    /// The tokens that sessions were opened with.
    pub(crate) fn tokens(&self) -> Vec<Uuid> {
        self.sessions().values().map(|live| live.token).collect()
    }

    /// Ends all sessions whose token is among `void`, and returns them.
    pub(crate) fn end_tokens(&self, void: &[Uuid]) -> Vec<EndedSession> {
        let mut ended = Vec::new();
        self.sessions().retain(|agent, live| {
            let ends = void.contains(&live.token);
            if ends {
                live.close.cancel();
                ended.push(EndedSession { agent: *agent, session: live.session, transport: live.transport });
            }
            !ends
        });
        ended
    }

    /// Signs of life of all sessions; forgets polling agents that have gone silent.
    pub(crate) fn presences(&self, now: Duration) -> Vec<Presence> {
        let mut sessions = self.sessions();
        sessions.retain(|_, live| {
            live.transport == TransportMode::Websocket
                || live.polls > 0
                || now.saturating_sub(live.last_seen) < FORGET
        });
        sessions
            .iter()
            .map(|(agent, live)| Presence {
                agent: *agent,
                session: live.session,
                silence: if live.polls > 0 { Duration::ZERO } else { now.saturating_sub(live.last_seen) },
            })
            .collect()
    }

    /// Whether progress of `transfer` may be passed on now: at most once a second.
    pub(crate) fn may_report(&self, agent: AgentId, transfer: i64, now: Duration) -> bool {
        let mut progress = lock(&self.progress);
        if progress.get(&(agent, transfer)).is_some_and(|last| now.saturating_sub(*last) < PROGRESS_EVERY) {
            return false;
        }
        if progress.len() >= MAX_PROGRESS {
            progress.clear();
        }
        progress.insert((agent, transfer), now);
        true
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<AgentId, Live>> {
        lock(&self.sessions)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: AgentId = AgentId(Uuid::from_u128(1));
    const NOW: Duration = Duration::from_secs(1000);

    /// The session's version is its number, whatever its key.
    fn open(agents: &LiveAgents, number: i64) -> CancellationToken {
        let session = Uuid::from_u128(u128::MAX - number.unsigned_abs() as u128);
        agents.open(AGENT, (session, number), Uuid::from_u128(9), TransportMode::Websocket, NOW)
    }

    fn key(number: i64) -> Uuid {
        Uuid::from_u128(u128::MAX - number.unsigned_abs() as u128)
    }

    #[test]
    fn the_end_of_an_old_session_leaves_the_new_one() {
        let agents = LiveAgents::default();
        let old = open(&agents, 1);
        let new = open(&agents, 2);
        agents.close(AGENT, key(1));
        assert!(old.is_cancelled() && !new.is_cancelled());
        assert_eq!(agents.presences(NOW).len(), 1);
    }

    #[test]
    fn a_session_elsewhere_ends_the_one_here() {
        let agents = LiveAgents::default();
        let here = open(&agents, 1);
        agents.replaced(AGENT, key(0), 0);
        agents.replaced(AGENT, key(1), 1);
        assert!(!here.is_cancelled());
        agents.replaced(AGENT, key(2), 2);
        assert!(here.is_cancelled());
    }

    /// The older one won when its task was slower, and when its gateway's clock was ahead.
    #[test]
    fn the_session_recorded_last_wins_in_whatever_order_they_open() {
        let agents = LiveAgents::default();
        let newer = open(&agents, 2);
        let older = open(&agents, 1);
        assert!(older.is_cancelled() && !newer.is_cancelled());
        agents.close(AGENT, key(1));
        assert_eq!(agents.presences(NOW)[0].session, key(2));
    }

    #[tokio::test]
    async fn descriptions_are_recorded_when_they_differ_and_once_a_second() {
        let agents = LiveAgents::default();
        let named = |name: &str| AgentSystem { hostname: Some(name.to_owned()), ..AgentSystem::default() };
        assert!(agents.may_describe(AGENT, &named("a")).await);
        assert!(!agents.may_describe(AGENT, &named("a")).await);
        let (begun, b, c, d) = (Instant::now(), named("b"), named("c"), named("d"));
        let recorded = tokio::join!(
            agents.may_describe(AGENT, &b),
            agents.may_describe(AGENT, &c),
            agents.may_describe(AGENT, &d),
        );
        assert_eq!(recorded, (false, false, true));
        assert!(begun.elapsed() >= DESCRIBE_EVERY);
        assert!(!agents.may_describe(AGENT, &named("d")).await);
    }

    #[test]
    fn a_few_overlapping_polls_are_no_second_process() {
        let (agents, now) = (LiveAgents::default(), Instant::now());
        assert!(!agents.note_overlap(AGENT, now) && !agents.note_overlap(AGENT, now));
        let later = now + OVERLAP_WINDOW;
        assert!(!agents.note_overlap(AGENT, later) && !agents.note_overlap(AGENT, later));
        assert!(agents.note_overlap(AGENT, later));
    }

    #[test]
    fn a_revoked_token_ends_its_session() {
        let agents = LiveAgents::default();
        let here = open(&agents, 1);
        agents.end_tokens(&[Uuid::from_u128(8)]);
        assert!(!here.is_cancelled());
        let ended = agents.end_tokens(&[Uuid::from_u128(9)]);
        assert_eq!(ended.iter().map(|ended| ended.session).collect::<Vec<_>>(), [key(1)]);
        assert!(here.is_cancelled());
    }
}
