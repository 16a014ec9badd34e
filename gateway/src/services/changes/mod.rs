//! The newest changes, for all live streams of this gateway.
//!
//! Follows the event log while a stream is open. Wake-ups make it quick, polling makes it sure. Changes are read once and
//! shared; a stream that lags behind the kept changes reads the log itself. Nothing is queued for a stream.

mod audience;
mod resources;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use signalbox_event_store::{ChangedStream, changed_between, head_position};
use signalbox_projections::context_of;
use sqlx::PgPool;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{sleep, timeout},
};

use self::audience::{Audience, name};
pub(crate) use self::resources::CHANGED_RESOURCES;
use super::consistency::ReadGate;
use crate::http::problem::Problem;

/// Positions of the log that are read at a time.
const BATCH: i64 = 500;
/// Changes that are kept for streams that resume.
const KEPT: usize = 10_000;
/// How long changes are gathered, so that many of one resource become one.
const GATHER: Duration = Duration::from_millis(100);
/// How long a wake-up may be missing.
const POLL: Duration = Duration::from_secs(1);
/// How long changes wait for the read models, and for those that did not show earlier ones in time.
const READ_MODEL_TIMEOUT: Duration = Duration::from_secs(2);
const LATE_READ_MODEL_TIMEOUT: Duration = Duration::from_millis(100);
/// Streams of one gateway that read the log themselves at the same time.
const CATCHING_UP: usize = 4;

/// A resource that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Position of the newest of its events in the batch.
    pub(crate) position: i64,
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    /// Its version after that event.
    pub(crate) version: i64,
    /// Whether the read models did not show it in time.
    pub(crate) is_eventual: bool,
    pub(crate) audience: Audience,
}

/// The changes of a range of the log.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Last position of the range.
    pub(crate) last: i64,
    /// In the order of their positions.
    pub(crate) changes: Vec<Change>,
}

/// The changes that a stream has not yet sent.
#[derive(Debug)]
pub(crate) enum Missing {
    Nothing,
    /// All of it.
    Kept(Vec<Arc<Batch>>),
    /// More than is kept: from this position on, the rest is.
    UpTo(i64),
}

#[derive(Debug, Default)]
struct Inner {
    /// Position after which the kept batches begin; `None` while no stream is open.
    start: Option<i64>,
    reached: i64,
    batches: VecDeque<Arc<Batch>>,
    kept: usize,
}

/// The changes that this gateway keeps.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    inner: Mutex<Inner>,
    /// How far the log is read; its receivers are the streams.
    moved: watch::Sender<i64>,
    opened: Notify,
    catching_up: Semaphore,
}

/// The services that changes are read by.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) pool: &'a PgPool,
    pub(crate) gate: &'a ReadGate,
    /// The newest position of the log that this gateway knows.
    pub(crate) log_moved: &'a watch::Sender<i64>,
}

impl Default for ChangeFeed {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            moved: watch::Sender::default(),
            opened: Notify::new(),
            catching_up: Semaphore::new(CATCHING_UP),
        }
    }
}

impl ChangeFeed {
    /// Notifies of new batches. While a receiver exists, the log is followed.
    pub(crate) fn open(&self) -> watch::Receiver<i64> {
        let moved = self.moved.subscribe();
        self.opened.notify_one();
        moved
    }

    /// The changes after `seen`.
    pub(crate) fn after(&self, seen: i64) -> Missing {
        let inner = self.inner();
        match inner.start {
            Some(start) if seen < start => Missing::UpTo(start),
            Some(_) if seen < inner.reached => {
                let first = inner.batches.partition_point(|batch| batch.last <= seen);
                Missing::Kept(inner.batches.iter().skip(first).cloned().collect())
            }
            _ => Missing::Nothing,
        }
    }

    fn begin(&self, head: i64) -> i64 {
        let mut inner = self.inner();
        if inner.start.is_none() {
            *inner = Inner { start: Some(head), reached: head, ..Inner::default() };
        }
        inner.reached
    }

    fn keep(&self, batch: Batch) {
        let mut inner = self.inner();
        inner.reached = batch.last;
        inner.kept += batch.changes.len();
        inner.batches.push_back(Arc::new(batch));
        // Batches without a change take room, too.
        while (inner.kept > KEPT || inner.batches.len() > KEPT)
            && let Some(oldest) = inner.batches.pop_front()
        {
            inner.kept -= oldest.changes.len();
            inner.start = Some(oldest.last);
        }
        self.moved.send_replace(inner.reached);
    }

    fn forget(&self) {
        *self.inner() = Inner::default();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the log until the gateway stops.
pub(crate) async fn follow(feed: &ChangeFeed, source: Source<'_>) {
    let mut moved = source.log_moved.subscribe();
    let mut late = HashSet::new();
    loop {
        if feed.moved.receiver_count() == 0 {
            feed.forget();
            let _ = timeout(POLL, feed.opened.notified()).await;
            continue;
        }
        moved.mark_unchanged();
        match follow_once(feed, source, &mut late).await {
            Ok(true) => {}
            Ok(false) => drop(timeout(POLL, moved.changed()).await),
            Err(error) => {
                tracing::warn!(%error, "the live streams stand still: the log cannot be read; it is tried again");
                sleep(POLL).await;
            }
        }
        sleep(GATHER).await;
    }
}

/// Takes the next batch; false when there is none.
async fn follow_once(
    feed: &ChangeFeed,
    source: Source<'_>,
    late: &mut HashSet<&'static str>,
) -> Result<bool, sqlx::Error> {
    let head = head_position(source.pool).await?;
    let reached = feed.begin(head);
    if head <= reached {
        return Ok(false);
    }
    let batch = read(source, reached, head, late).await?;
    let is_all = batch.last == head;
    feed.keep(batch);
    Ok(!is_all)
}

/// The changes after `after`, for a stream that lags behind the kept ones.
pub(crate) async fn catch_up(
    feed: &ChangeFeed,
    source: Source<'_>,
    after: i64,
    last: i64,
) -> Result<Batch, Problem> {
    let _turn = feed.catching_up.acquire().await.map_err(|error| Problem::internal(&error))?;
    Ok(read(source, after, last, &mut HashSet::new()).await?)
}

/// Reads the changes after `after`, at most up to `last`, and waits until the read models show them. Those in `late` did not
/// show earlier ones in time, and are not waited for as long.
async fn read(
    source: Source<'_>,
    after: i64,
    last: i64,
    late: &mut HashSet<&'static str>,
) -> Result<Batch, sqlx::Error> {
    let last = last.min(after + BATCH);
    let streams = changed_between(source.pool, (after, last), &CHANGED_RESOURCES).await?;
    let mut newest = HashMap::new();
    for stream in &streams {
        newest.insert(context_of(&stream.aggregate_type), stream.position);
    }
    let waits = newest.into_iter().map(async |(context, position)| {
        let limit = if late.contains(context) { LATE_READ_MODEL_TIMEOUT } else { READ_MODEL_TIMEOUT };
        (context, source.gate.wait_at_most(context, position, limit).await)
    });
    for (context, is_shown) in join_all(waits).await {
        if is_shown {
            late.remove(context)
        } else {
            late.insert(context)
        };
    }
    let changes = streams.iter().filter_map(|stream| change(stream, late)).collect();
    Ok(Batch { last, changes })
}

fn change(stream: &ChangedStream, late: &HashSet<&'static str>) -> Option<Change> {
    let (kind, id) = name(stream)?;
    Some(Change {
        position: stream.position,
        kind,
        id,
        version: stream.version,
        is_eventual: late.contains(context_of(&stream.aggregate_type)),
        audience: Audience::of(stream),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(last: i64, changes: usize) -> Batch {
        let change = Change {
            position: last,
            kind: "rule",
            id: String::new(),
            version: 1,
            is_eventual: false,
            audience: Audience::Everyone,
        };
        Batch { last, changes: vec![change; changes] }
    }

    fn lasts(missing: Missing) -> Vec<i64> {
        let Missing::Kept(batches) = missing else { panic!("{missing:?}") };
        batches.iter().map(|batch| batch.last).collect()
    }

    #[test]
    fn a_stream_gets_the_batches_after_what_it_has_seen() {
        let feed = ChangeFeed::default();
        assert!(matches!(feed.after(0), Missing::Nothing), "nothing is followed yet");
        assert_eq!(feed.begin(10), 10);
        feed.keep(batch(12, 1));
        feed.keep(batch(20, 2));
        assert_eq!(feed.begin(30), 20, "it has begun already");
        assert_eq!(lasts(feed.after(10)), [12, 20]);
        assert_eq!(lasts(feed.after(11)), [12, 20]);
        assert_eq!(lasts(feed.after(12)), [20]);
        assert!(matches!(feed.after(20), Missing::Nothing));
        assert!(matches!(feed.after(25), Missing::Nothing), "another gateway is ahead");
        assert!(matches!(feed.after(9), Missing::UpTo(10)));
    }

    #[test]
    fn the_number_of_kept_changes_is_bounded() {
        let feed = ChangeFeed::default();
        feed.begin(0);
        for position in 1..=30 {
            feed.keep(batch(position, KEPT / 10));
        }
        assert_eq!(feed.inner().kept, KEPT);
        assert!(matches!(feed.after(19), Missing::UpTo(20)));
        assert_eq!(lasts(feed.after(20)).len(), 10);
    }
}
