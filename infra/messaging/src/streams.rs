//! The streams of JetStream as this program wants them.

use std::time::Duration;

use async_nats::jetstream::{
    ErrorCode,
    context::GetStreamErrorKind,
    stream::{Config, Stream},
};
use tokio::time::{Instant, sleep};

use crate::{Bus, BusError};

/// How long a process that starts waits for a cluster that has no leader.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(250);

/// How the copies of a stream stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStanding {
    /// Its name.
    pub name: String,
    /// Copies that there ought to be.
    pub wanted: usize,
    /// Copies that are up to date.
    pub current: usize,
}

impl Bus {
    /// The stream `config.name`, made if it is missing, with the number of copies that this connection asks for.
    ///
    /// A stream that has another number is changed. Should the cluster refuse that, because it has too few servers at the
    /// moment, the stream goes on as it is.
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

    /// Like [`Bus::open_stream`], for a process that starts: it waits a while for a cluster that is choosing its leader.
    pub(crate) async fn open_stream_patiently(&self, config: Config) -> Result<Stream, BusError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.open_stream(config.clone()).await {
                Err(error) if self.replicas > 1 && Instant::now() < deadline => {
                    tracing::warn!(%error, "JetStream is not ready; trying again");
                    sleep(PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    /// How the copies of every stream of this program stand that there is.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
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
                wanted: info.config.num_replicas,
                current: 1 + followers.filter(|replica| replica.current && !replica.offline).count(),
            });
        }
        Ok(standings)
    }

    fn explain(&self, reason: &str) -> String {
        let (wanted, servers) = (self.replicas, self.servers());
        if wanted > servers {
            format!(
                "{reason}; nats.replicas is {wanted}, but {servers} servers are known: add servers or set it lower"
            )
        } else {
            reason.to_owned()
        }
    }
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}
