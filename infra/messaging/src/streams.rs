//! Creation and repair of JetStream's streams.

use signalbox_boxed::boxed;
use std::{
    hash::{BuildHasher, RandomState},
    sync::PoisonError,
    time::Duration,
};

use async_nats::jetstream::{
    ErrorCode,
    context::{GetStreamErrorKind, PublishError, PublishErrorKind},
    stream::{Config, Stream},
};
use tokio::time::{Instant, sleep};

use crate::{Bus, BusError};

/// How long a process that starts waits for a cluster that has no leader.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// A stream that answers, but has acknowledged nothing for this long, is recreated.
const STUCK: Duration = Duration::from_secs(10);

/// Longest time that a process waits before it recreates a stream.
const JITTER: Duration = Duration::from_secs(1);

/// A stream that does not store published messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stuck {
    /// When it was made, in nanoseconds since 1970: another process may make it again first.
    created: i128,
    since: Instant,
}

/// Messages that were published one after the other, of which none was stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unstored {
    first: Instant,
    newest: Instant,
}

impl Unstored {
    pub(crate) fn time(self) -> Duration {
        self.newest - self.first
    }

    /// The same after the result `stored` of another message at `now`.
    fn after<T>(
        known: Option<Self>,
        stored: &Result<T, PublishError>,
        is_connected: bool,
        now: Instant,
    ) -> Option<Self> {
        match stored.as_ref().map_err(PublishError::kind) {
            Err(PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound) if is_connected => {
                Some(Self { first: known.map_or(now, |known| known.first), newest: now })
            }
            // Refused: the stream is there, or the message did not reach the server.
            Err(_) => known,
            Ok(_) => None,
        }
    }
}

/// How the copies of a stream stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStanding {
    /// Its name.
    pub name: String,
    /// Copies that there ought to be.
    pub configured: usize,
    /// Copies that are up to date.
    pub current: usize,
}

impl Bus {
    /// The stream `config.name`, made if it is missing, with the number of copies that this connection asks for.
    ///
    /// An existing stream with another number of replicas is changed. If the cluster refuses, because it has too few
    /// servers at the moment, the stream is used unchanged.
    pub(crate) async fn open_stream(&self, config: Config) -> Result<Stream, BusError> {
        let config = Config { num_replicas: self.replicas, ..config };
        let made = self.jetstream.get_or_create_stream(&config).await;
        let stream = made.map_err(|error| BusError::Stream(self.explain(&error.to_string())))?;
        let kept = &stream.cached_info().config;
        if kept.num_replicas != self.replicas {
            let changed = Config { num_replicas: self.replicas, ..kept.clone() };
            match self.jetstream.update_stream(&changed).await {
                Ok(_) => tracing::info!(
                    stream = changed.name,
                    replicas = self.replicas,
                    "the number of copies of a stream is changed"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    stream = changed.name,
                    replicas = kept.num_replicas,
                    "a stream keeps its number of copies"
                ),
            }
        }
        Ok(stream)
    }

    /// Notes whether the stream of `config` has stored a message.
    ///
    /// After a full disk, nats-server may answer for a stream and store nothing in it until it is restarted. Our streams
    /// can be restored from the log, so such a stream is deleted and made again.
    pub(crate) async fn note_stored<T>(&self, config: Config, stored: &Result<T, PublishError>) {
        self.note_unstored(stored);
        let name = config.name.clone();
        let is_silent = matches!(stored, Err(error) if error.kind() == PublishErrorKind::TimedOut);
        if !is_silent || !self.is_connected() {
            self.stuck.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            return;
        }
        // Without an answer the whole server is silent, and there is nothing to delete.
        let Ok(stream) = self.jetstream.get_stream(&name).await else { return };
        let created = stream.cached_info().created.unix_timestamp_nanos();
        if !self.is_stuck(&name, created) {
            return;
        }
        // Other processes notice it at the same time, and JetStream deletes by name: each waits for another time and makes sure
        // that none was faster, because what was posted to the new stream would be lost.
        sleep(jitter()).await;
        match self.jetstream.get_stream(&name).await {
            Ok(stream) if stream.cached_info().created.unix_timestamp_nanos() != created => return,
            Ok(_) => {
                tracing::error!(stream = name, "a stream answers but stores nothing; it is made anew");
                if let Err(error) = self.jetstream.delete_stream(&name).await {
                    tracing::warn!(%error, stream = name, "a stream that stores nothing cannot be deleted");
                }
            }
            Err(error) => tracing::warn!(%error, stream = name, "a stream that stores nothing is gone"),
        }
        if let Err(error) = self.open_stream(config).await {
            tracing::warn!(%error, stream = name, "a stream cannot be made anew");
        }
    }

    /// The error of a message that was not stored.
    pub(crate) fn unstored(&self, error: &PublishError) -> BusError {
        BusError::Publish(match self.unstored_for() {
            Some(time) if time >= STUCK * 2 => format!(
                "{error}; nats-server has stored nothing for {} s: if its disk was full, free some space and restart it",
                time.as_secs()
            ),
            _ => error.to_string(),
        })
    }

    fn note_unstored<T>(&self, stored: &Result<T, PublishError>) {
        let is_connected = self.is_connected();
        let mut unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
        *unstored = Unstored::after(*unstored, stored, is_connected, Instant::now());
    }

    fn is_stuck(&self, name: &str, created: i128) -> bool {
        let mut known = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Stuck { created, since: Instant::now() };
        let stuck = known.entry(name.to_owned()).or_insert(new);
        if stuck.created != created {
            *stuck = new;
        }
        let is_over = stuck.since.elapsed() >= STUCK;
        if is_over {
            known.remove(name);
        }
        is_over
    }

    /// Like [`Bus::open_stream`], for a process that starts: it waits a while for a cluster that is choosing its leader.
    pub(crate) async fn open_stream_patiently(&self, config: Config) -> Result<Stream, BusError> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        loop {
            match self.open_stream(config.clone()).await {
                Err(error) if self.replicas > 1 && Instant::now() < deadline => {
                    tracing::warn!(%error, "JetStream is not ready; trying again");
                    sleep(RETRY_DELAY).await;
                }
                opened => return opened,
            }
        }
    }

    /// How the copies of every stream of this program stand that there is.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    #[boxed]
    pub async fn stream_standings(&self) -> Result<Vec<StreamStanding>, BusError> {
        let mut standings = Vec::new();
        for name in [crate::events::STREAM, crate::mailbox::STREAM] {
            let stream = match self.jetstream.get_stream(name).await {
                Ok(stream) => stream,
                // One that is missing is made when it is needed.
                Err(error) if is_missing(&error.kind()) => continue,
                Err(error) => return Err(BusError::Stream(error.to_string())),
            };
            let info = stream.cached_info();
            let followers = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
            standings.push(StreamStanding {
                name: name.to_owned(),
                configured: info.config.num_replicas,
                current: 1 + followers.filter(|replica| replica.current && !replica.offline).count(),
            });
        }
        Ok(standings)
    }

    fn explain(&self, reason: &str) -> String {
        let (configured, servers) = (self.replicas, self.servers());
        if configured > servers {
            format!(
                "{reason}; nats.replicas is {configured}, but {servers} servers are known: add servers or set it lower"
            )
        } else if reason.contains(NO_SPACE) {
            format!(
                "{reason}; the streams reserve 2 GiB, and nats-server gives out three quarters of what was free when it started, by default: \
                 free 3 GiB and restart nats-server, or set jetstream.max_file_store in its configuration"
            )
        } else {
            reason.to_owned()
        }
    }
}

/// A time up to [`JITTER`], different in each process.
fn jitter() -> Duration {
    let chance = RandomState::new().hash_one(JITTER);
    JITTER.mul_f64(chance as f64 / u64::MAX as f64)
}

/// JetStream's error for a stream that reserves more storage than available.
const NO_SPACE: &str = "insufficient storage resources";

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time for which nothing was stored after `results`, each of a message so many seconds after the first one.
    fn unstored(results: &[(u64, Result<(), PublishErrorKind>)]) -> Option<Duration> {
        let begun = Instant::now();
        let results = results.iter().map(|(at, stored)| (begun + Duration::from_secs(*at), stored));
        let known = results.fold(None, |known, (at, stored)| {
            Unstored::after(known, &stored.map_err(PublishError::new), true, at)
        });
        known.map(Unstored::time)
    }

    #[test]
    fn only_messages_that_follow_each_other_say_that_nothing_is_stored() {
        let lost = |at| (at, Err(PublishErrorKind::TimedOut));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(unstored(&[]), None);
        assert_eq!(unstored(&[lost(0)]), seconds(0), "one that was lost, however long ago");
        assert_eq!(unstored(&[lost(0), lost(9), (15, Err(PublishErrorKind::StreamNotFound))]), seconds(15));
        assert_eq!(unstored(&[lost(0), (9, Err(PublishErrorKind::Other))]), seconds(0));
        assert_eq!(unstored(&[lost(0), lost(9), (10, Ok(()))]), None);
        assert_eq!(unstored(&[lost(0), (9, Ok(())), lost(30), lost(32)]), seconds(2));
    }
}
