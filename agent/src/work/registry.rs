//! Running attempts and recently finished ones, so that a repeated message does its work once.

use crate::{
    protocol::{Direction, Report, TransferId, TransferRequest},
    transfer::{Interrupt, Parts, Reason},
};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// More work than this waits at the gateway: it is not acknowledged.
const MAX_RUNNING: usize = 4096;

/// Limit of kept results; the oldest are dropped.
const MAX_ENDED: usize = 4096;

/// The reaction to a request.
#[derive(Debug)]
pub enum Admission {
    /// It is new.
    Start(Ticket),
    /// It runs already, or a later attempt took its place.
    Known,
    /// It ended; this is its result.
    Ended(Report),
    /// There is too much work.
    Full,
}

/// The right to do one attempt.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub interrupt: Interrupt,
    /// Temporary files of this and of earlier attempts.
    pub parts: Arc<Parts>,
    /// An earlier attempt that was stopped; it uses the same temporary files until it has finished.
    pub before: Option<CancellationToken>,
    done: CancellationToken,
}

/// Outcome of an attempt.
#[derive(Debug)]
pub enum Ending {
    Reported(Report),
    /// The agent no longer owns it; no report is sent.
    Silent,
    /// Stopped from outside: as if it had never been.
    Forgotten,
}

/// The memory of this agent's work.
#[derive(Debug)]
pub struct Registry {
    state: Mutex<State>,
    remember: Duration,
}

type Key = (TransferId, Direction);

#[derive(Debug, Default)]
struct State {
    running: HashMap<Key, (Option<u32>, Ticket)>,
    ended: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    at: Instant,
    key: Key,
    attempt: Option<u32>,
    report: Option<Report>,
    parts: Arc<Parts>,
}

impl Registry {
    /// Remembers results for `remember`.
    pub fn new(remember: Duration) -> Self {
        Self { state: Mutex::default(), remember }
    }

    /// Decides how to treat a request.
    pub fn admit(&self, request: &TransferRequest) -> Admission {
        let mut state = self.lock();
        let key = key(request);
        if state.running.get(&key).is_some_and(|(attempt, _)| *attempt >= request.attempt) {
            return Admission::Known;
        }
        let same = |ended: &&Ended| ended.key == key && ended.attempt == request.attempt;
        // An attempt without a report was not this agent's at that time; it is again when the gateway repeats the
        // request.
        if let Some(report) = state.ended.iter().find(same).and_then(|ended| ended.report.clone()) {
            return Admission::Ended(report);
        }
        if state.running.len() >= MAX_RUNNING {
            return Admission::Full;
        }
        Admission::Start(state.start(key, request.attempt))
    }

    /// Notes the end of an attempt.
    pub fn end(&self, request: &TransferRequest, ticket: Ticket, ending: Ending) {
        let mut state = self.lock();
        let (key, attempt) = (key(request), request.attempt);
        if state.running.get(&key).is_some_and(|(running, _)| *running == attempt) {
            state.running.remove(&key);
        }
        let report = match ending {
            Ending::Reported(report) => Some(Some(report)),
            Ending::Silent => Some(None),
            Ending::Forgotten => None,
        };
        if let Some(report) = report {
            state.ended.push_back(Ended { at: Instant::now(), key, attempt, report, parts: ticket.parts });
        }
        ticket.done.cancel();
    }

    /// Stops the work on a transfer and drops its results. Returns the temporary files to delete.
    pub fn cancel(&self, id: TransferId) -> Vec<Arc<Parts>> {
        let mut state = self.lock();
        for ((running, _), (_, ticket)) in &state.running {
            if *running == id {
                ticket.interrupt.set(Reason::Cancelled);
            }
        }
        state.drop_ended(|ended| ended.key.0 == id)
    }

    /// Stops everything.
    pub fn stop(&self) {
        for (_, ticket) in self.lock().running.values() {
            ticket.interrupt.set(Reason::Stopping);
        }
    }

    /// Drops results that are too old or too many. Returns the temporary files to delete.
    pub fn sweep(&self) -> Vec<Arc<Parts>> {
        let mut state = self.lock();
        let mut surplus = state.ended.len().saturating_sub(MAX_ENDED);
        state.drop_ended(|ended| {
            let is_surplus = surplus > 0;
            surplus = surplus.saturating_sub(1);
            is_surplus || ended.at.elapsed() >= self.remember
        })
    }

    /// The transfers that are worked on now.
    pub fn active(&self) -> Vec<TransferId> {
        let ids: BTreeSet<_> = self.lock().running.keys().map(|(id, _)| *id).collect();
        ids.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn start(&mut self, key: Key, attempt: Option<u32>) -> Ticket {
        let before = self.running.remove(&key).map(|(_, ticket)| ticket);
        if let Some(before) = &before {
            before.interrupt.set(Reason::Superseded);
        }
        let ticket = Ticket {
            interrupt: Interrupt::default(),
            parts: before.as_ref().map_or_else(|| self.inherit(key), |before| before.parts.clone()),
            before: before.map(|before| before.done),
            done: CancellationToken::new(),
        };
        self.running.insert(key, (attempt, ticket.clone()));
        ticket
    }

    /// Takes over the temporary files of earlier attempts, so that forgetting those does not delete them.
    fn inherit(&mut self, key: Key) -> Arc<Parts> {
        let mut newest = Arc::default();
        for ended in self.ended.iter_mut().filter(|ended| ended.key == key) {
            newest = std::mem::take(&mut ended.parts);
        }
        newest
    }

    fn drop_ended(&mut self, mut drops: impl FnMut(&Ended) -> bool) -> Vec<Arc<Parts>> {
        let (dropped, kept) = std::mem::take(&mut self.ended).into_iter().partition(|ended| drops(ended));
        self.ended = kept;
        let dropped: VecDeque<Ended> = dropped;
        dropped.into_iter().map(|ended| ended.parts).collect()
    }
}

fn key(request: &TransferRequest) -> Key {
    (request.id, request.direction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Outcome;

    fn request(attempt: u32) -> TransferRequest {
        let text = format!(r#"{{"id": "3", "transfer_type": "upload", "attempt": {attempt}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn report(attempt: u32) -> Report {
        let outcome = Outcome::Failed { error: "x".into(), retryable: true };
        Report { id: TransferId(3), direction: Direction::Upload, attempt: Some(attempt), outcome }
    }

    fn start(registry: &Registry, attempt: u32) -> Ticket {
        match registry.admit(&request(attempt)) {
            Admission::Start(ticket) => ticket,
            other => panic!("not started: {other:?}"),
        }
    }

    fn registry() -> Registry {
        Registry::new(Duration::from_secs(600))
    }

    #[test]
    fn a_running_attempt_is_not_started_again_and_an_ended_one_gives_its_result() {
        let registry = registry();
        let ticket = start(&registry, 1);
        assert!(matches!(registry.admit(&request(1)), Admission::Known));
        assert_eq!(registry.active(), [TransferId(3)]);
        registry.end(&request(1), ticket, Ending::Reported(report(1)));
        assert!(matches!(registry.admit(&request(1)), Admission::Ended(known) if known == report(1)));
        assert!(registry.active().is_empty());
    }

    #[test]
    fn a_later_attempt_stops_the_earlier_one_and_waits_for_it() {
        let registry = registry();
        let first = start(&registry, 1);
        let second = start(&registry, 2);
        assert_eq!(first.interrupt.check(), Err(Reason::Superseded));
        assert!(Arc::ptr_eq(&first.parts, &second.parts));
        let before = second.before.clone().unwrap();
        assert!(!before.is_cancelled());
        registry.end(&request(1), first, Ending::Forgotten);
        assert!(before.is_cancelled());
        assert!(matches!(registry.admit(&request(1)), Admission::Known));
        assert_eq!(registry.active(), [TransferId(3)]);
    }

    #[test]
    fn an_attempt_takes_over_the_temporary_files_of_the_one_before() {
        let registry = registry();
        let first = start(&registry, 1);
        let parts = first.parts.clone();
        registry.end(&request(1), first, Ending::Reported(report(1)));
        assert!(Arc::ptr_eq(&start(&registry, 2).parts, &parts));
        assert!(!registry.cancel(TransferId(3)).iter().any(|left| Arc::ptr_eq(left, &parts)));
    }

    #[test]
    fn a_cancelled_transfer_is_stopped_and_forgotten() {
        let registry = registry();
        let ticket = start(&registry, 1);
        registry.end(&request(1), ticket, Ending::Reported(report(1)));
        let running = start(&registry, 2);
        assert_eq!(registry.cancel(TransferId(3)).len(), 1);
        assert_eq!(running.interrupt.check(), Err(Reason::Cancelled));
        registry.end(&request(2), running, Ending::Forgotten);
        assert!(matches!(registry.admit(&request(1)), Admission::Start(_)));
    }

    #[test]
    fn what_ended_in_silence_is_done_when_it_is_asked_for_again() {
        let registry = registry();
        let ticket = start(&registry, 1);
        registry.end(&request(1), ticket, Ending::Silent);
        assert!(matches!(registry.admit(&request(1)), Admission::Start(_)));
    }

    #[test]
    fn results_are_forgotten_after_their_time() {
        let registry = Registry::new(Duration::ZERO);
        let ticket = start(&registry, 1);
        registry.end(&request(1), ticket, Ending::Reported(report(1)));
        assert!(matches!(registry.admit(&request(1)), Admission::Ended(_)));
        assert_eq!(registry.sweep().len(), 1);
        assert!(matches!(registry.admit(&request(1)), Admission::Start(_)));
    }
}
