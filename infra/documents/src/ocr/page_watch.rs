//! The pages that threads recognise, and for how long. A page that takes too long is left out of its document; its thread
//! cannot be stopped, so another one takes its place.
//!
//! The time that the thread was on a processor counts: on a busy machine a page of seconds takes minutes, and is fine.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

/// A page may take so many times its limit on the clock, so that one whose thread does not get to work ends too.
pub(super) const STALLED: u32 = 4;

/// The time that a thread was on a processor since it began a page.
pub(super) type Worked = Box<dyn Fn() -> Duration + Send>;

/// A page that a thread works on.
struct Running {
    begun: Instant,
    worked: Worked,
    /// Before this its time cannot be over.
    look: Instant,
}

/// Keeps account of pages and threads; starts and ends nothing itself.
pub(super) struct PageWatch {
    /// Time on a processor for one page.
    limit: Duration,
    next_ticket: u64,
    /// Pages whose text is awaited, by ticket.
    awaited: BTreeMap<u64, usize>,
    /// Pages that a thread works on, by ticket.
    running: HashMap<u64, Running>,
    /// Tickets whose time is over, on which a thread still works.
    stuck: HashSet<u64>,
    /// Threads that are not stuck.
    live: usize,
    /// Threads that may still be started in place of stuck ones.
    spares: usize,
    left_out: Vec<usize>,
}

impl PageWatch {
    /// With as many spare threads as `threads`, so that pages at the same time, and their memory, stay bounded.
    pub(super) fn new(limit: Duration, threads: usize) -> Self {
        Self {
            limit,
            next_ticket: 0,
            awaited: BTreeMap::new(),
            running: HashMap::new(),
            stuck: HashSet::new(),
            live: threads,
            spares: threads,
            left_out: Vec::new(),
        }
    }

    pub(super) fn forbid_spares(&mut self) {
        self.spares = 0;
    }

    /// A ticket for `page`; none if it is left out, because every thread is stuck.
    pub(super) fn admit(&mut self, page: usize) -> Option<u64> {
        if self.live == 0 {
            self.left_out.push(page);
            return None;
        }
        self.next_ticket += 1;
        self.awaited.insert(self.next_ticket, page);
        Some(self.next_ticket)
    }

    pub(super) fn start(&mut self, ticket: u64, begun: Instant, worked: Worked) {
        self.running.insert(ticket, Running { begun, worked, look: begun + self.limit });
    }

    /// Whether the page is still awaited.
    pub(super) fn end(&mut self, ticket: u64) -> bool {
        self.running.remove(&ticket);
        if self.stuck.remove(&ticket) {
            self.live += 1;
        }
        self.awaited.remove(&ticket).is_some()
    }

    /// When the time of a page may be over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.running.values().map(|page| page.look).min()
    }

    /// Leaves out the pages whose time is over; `replace` starts a thread in place of a stuck one, if it can.
    pub(super) fn expire(&mut self, now: Instant, mut replace: impl FnMut() -> bool) {
        let limit = self.limit;
        let over =
            self.running.iter_mut().filter_map(|(ticket, page)| page.is_over(limit, now).then_some(*ticket));
        for ticket in over.collect::<Vec<u64>>() {
            self.running.remove(&ticket);
            self.stuck.insert(ticket);
            self.left_out.extend(self.awaited.remove(&ticket));
            self.live = self.live.saturating_sub(1);
            if self.spares > 0 && replace() {
                self.spares -= 1;
                self.live += 1;
            }
        }
        if self.live == 0 {
            self.left_out.extend(std::mem::take(&mut self.awaited).into_values());
        }
    }

    pub(super) fn awaits(&self, ticket: u64) -> bool {
        self.awaited.contains_key(&ticket)
    }

    pub(super) fn is_done(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Awaits no page any more.
    pub(super) fn forget(&mut self) {
        self.awaited.clear();
        self.left_out.clear();
    }

    /// The pages that were left out since the last call.
    pub(super) fn take_left_out(&mut self) -> Vec<usize> {
        let mut pages = std::mem::take(&mut self.left_out);
        pages.sort_unstable();
        pages
    }
}

impl Running {
    /// Whether its time is over; if not, says when to look again.
    fn is_over(&mut self, limit: Duration, now: Instant) -> bool {
        if now < self.look {
            return false;
        }
        let (worked, latest) = ((self.worked)(), self.begun + STALLED * limit);
        // A thread works no faster than the clock.
        self.look = (now + limit.saturating_sub(worked)).min(latest);
        self.look <= now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A thread that never waits.
    fn busy() -> Worked {
        Box::new(|| Duration::MAX)
    }

    /// A thread that has worked for as many seconds as are set.
    fn counted() -> (Arc<AtomicU64>, Worked) {
        let seconds = Arc::new(AtomicU64::new(0));
        let read = seconds.clone();
        (seconds, Box::new(move || Duration::from_secs(read.load(Ordering::Relaxed))))
    }

    #[test]
    fn page_whose_thread_waited_for_a_processor_is_not_left_out() {
        let (begun, mut watch) = (Instant::now(), PageWatch::new(LIMIT, 1));
        let (seconds, worked) = counted();
        let page = watch.admit(7).unwrap();
        watch.start(page, begun, worked);
        seconds.store(12, Ordering::Relaxed);
        watch.expire(begun + LIMIT, || unreachable!("18 s of work are left"));
        assert_eq!(watch.due(), Some(begun + LIMIT + Duration::from_secs(18)));
        seconds.store(30, Ordering::Relaxed);
        watch.expire(begun + LIMIT + Duration::from_secs(17), || unreachable!("it is not looked at yet"));
        watch.expire(begun + LIMIT + Duration::from_secs(18), || true);
        assert_eq!(watch.take_left_out(), [7]);
    }

    #[test]
    fn page_whose_thread_never_works_is_left_out_in_the_end() {
        let (begun, mut watch) = (Instant::now(), PageWatch::new(LIMIT, 1));
        let (_, worked) = counted();
        let page = watch.admit(2).unwrap();
        watch.start(page, begun, worked);
        let mut looks = 0;
        while let Some(due) = watch.due() {
            looks += 1;
            assert!(watch.left_out.is_empty() && due <= begun + STALLED * LIMIT);
            watch.expire(due, || true);
        }
        assert_eq!((looks, watch.take_left_out()), (STALLED, vec![2]));
    }

    #[test]
    fn page_over_its_time_is_left_out_and_its_thread_replaced() {
        let (begun, mut watch) = (Instant::now(), PageWatch::new(LIMIT, 1));
        let (slow, next) = (watch.admit(4).unwrap(), watch.admit(5).unwrap());
        watch.start(slow, begun, busy());
        assert_eq!(watch.due(), Some(begun + LIMIT));
        let mut started = 0;
        watch.expire(begun + LIMIT / 2, || unreachable!("no time is over"));
        watch.expire(begun + LIMIT, || {
            started += 1;
            true
        });
        assert_eq!((started, watch.take_left_out()), (1, vec![4]));
        watch.start(next, begun + LIMIT, busy());
        assert!(watch.end(next) && watch.is_done());
        assert!(!watch.end(slow), "its text is too late");
        assert_eq!(watch.take_left_out(), Vec::<usize>::new());
    }

    #[test]
    fn pages_without_a_thread_are_left_out_until_one_returns() {
        let (begun, mut watch) = (Instant::now(), PageWatch::new(LIMIT, 1));
        watch.forbid_spares();
        let (slow, waiting) = (watch.admit(1).unwrap(), watch.admit(2).unwrap());
        watch.start(slow, begun, busy());
        watch.expire(begun + LIMIT, || unreachable!("no spare thread is left"));
        assert!(watch.is_done() && !watch.awaits(waiting));
        assert_eq!(watch.admit(3), None);
        assert_eq!(watch.take_left_out(), [1, 2, 3]);
        watch.end(slow);
        assert!(watch.admit(4).is_some());
    }
}
