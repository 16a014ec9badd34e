use signalbox_boxed::boxed;
use std::future::ready;

use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use crate::{Bus, BusError};

/// Wakeups by which a listener may lag before it misses some.
const BACKLOG: usize = 4096;

/// Wakes a reader when there is something new. A lost wakeup only costs time, because every reader also polls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wakeup", rename_all = "snake_case")]
pub enum Wakeup {
    /// The log has grown.
    LogAppended {
        /// Its newest position.
        position: i64,
        /// Types of the aggregates that changed; empty if unknown.
        aggregates: Vec<String>,
    },
    /// The datapoint log has grown.
    DatapointsAppended {
        /// Its newest position.
        position: i64,
    },
    /// A read model has caught up.
    ReadAdvanced {
        /// Name of the projection.
        projection: String,
        /// The applied position.
        position: i64,
        /// Types of the aggregates that changed.
        aggregates: Vec<String>,
        /// Whether it has set streams aside: then not every event up to the position is applied.
        #[serde(default)]
        has_set_aside: bool,
    },
    /// An agent has a new session; gateways that hold an older one close it.
    AgentSession {
        /// The agent's key.
        agent: uuid::Uuid,
        /// The new session.
        session: uuid::Uuid,
        /// Version of the agent in the log with this session: a session of a lower one is older.
        #[serde(default)]
        version: i64,
    },
    /// An agent has echoed a connection test.
    TestEcho {
        /// The test's key.
        request_id: String,
    },
    /// A gateway has let requests through that count against everyone's rate limits; where that is lost, others let more
    /// through.
    RateTaken {
        /// Which gateway.
        gateway: uuid::Uuid,
        /// How many of each principal.
        taken: std::collections::HashMap<String, u32>,
    },
    /// A transfer has been stopped; gateways cut its bodies.
    TransferStopped {
        /// The transfer's key.
        transfer: uuid::Uuid,
    },
}

impl Wakeup {
    fn subject(&self) -> &'static str {
        match self {
            Self::LogAppended { .. } => "wake.log.appended",
            Self::DatapointsAppended { .. } => "wake.datapoints.appended",
            Self::ReadAdvanced { .. } => "wake.read.advanced",
            Self::AgentSession { .. } => "wake.agent.session",
            Self::TestEcho { .. } => "wake.agent.echo",
            Self::RateTaken { .. } => "wake.rate.taken",
            Self::TransferStopped { .. } => "wake.transfer.stopped",
        }
    }
}

/// A wake-up on its way to other processes.
#[derive(Serialize)]
struct Sent<'a> {
    from: &'a str,
    wakeup: &'a Wakeup,
}

/// A received wakeup. Most are this process's own and are not decoded further.
#[derive(Deserialize)]
struct Received<'a> {
    from: &'a str,
    #[serde(borrow)]
    wakeup: &'a RawValue,
}

impl<'a> Received<'a> {
    /// The wake-up, unless `own` sent it.
    fn of_another(payload: &'a [u8], own: &str) -> Result<Option<Wakeup>, serde_json::Error> {
        let received: Self = serde_json::from_slice(payload)?;
        if received.from == own { Ok(None) } else { serde_json::from_str(received.wakeup.get()).map(Some) }
    }
}

impl Bus {
    /// Publishes `wakeup`; subscribers in this process receive it at once.
    ///
    /// # Errors
    /// [`BusError::Publish`] when the connection is closed.
    #[boxed]
    pub async fn wake(&self, wakeup: &Wakeup) -> Result<(), BusError> {
        if let Some(hub) = self.wakeups.get() {
            // There may be no subscriber at the moment.
            let _ = hub.send(wakeup.clone());
        }
        let sent = Sent { from: &self.name, wakeup };
        let payload = serde_json::to_vec(&sent).map_err(|error| BusError::Publish(error.to_string()))?;
        let published = self.client.publish(wakeup.subject(), payload.into()).await;
        published.map_err(|error| BusError::Publish(error.to_string()))
    }

    /// All wake-ups from now on. The process subscribes once, however many listen. A listener that falls far behind misses
    /// some, as it does when the bus is away: it has to find out by itself what has changed.
    ///
    /// # Errors
    /// [`BusError::Stream`] when the subscription is refused.
    pub async fn wakeups(&self) -> Result<impl Stream<Item = Wakeup> + Send + use<>, BusError> {
        let hub = self.wakeups.get_or_try_init(|| self.start_hub()).await?;
        Ok(BroadcastStream::new(hub.subscribe()).filter_map(|wakeup| ready(wakeup.ok())))
    }

    async fn start_hub(&self) -> Result<broadcast::Sender<Wakeup>, BusError> {
        let subscribed = self.client.subscribe("wake.>").await;
        let mut messages = subscribed.map_err(|error| BusError::Stream(error.to_string()))?;
        let hub = broadcast::Sender::new(BACKLOG);
        let (sender, own) = (hub.clone(), self.name.clone());
        tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                match Received::of_another(&message.payload, &own) {
                    Ok(Some(wakeup)) => {
                        let _ = sender.send(wakeup);
                    }
                    // Wakeups of this process have already been delivered.
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, "a wake-up cannot be read"),
                }
            }
        });
        Ok(hub)
    }
}
