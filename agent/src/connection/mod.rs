//! Keeps a connection to the gateway: WebSocket first, long polling while that does not work.
//!
//! Both transports read the same mailbox and send from the same outbox, so the change between them loses nothing.

mod polling;
mod websocket;

use crate::{
    backoff::Backoff,
    config::{Config, Transport},
    gateway::{Gateway, GatewayError, Refusal},
    outbox::Outbox,
    protocol::Envelope,
    system_info::{agent_info, hostname},
    work::Work,
};
use serde_json::Value;
use std::{sync::Arc, time::Instant};
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use websocket::Socket;

/// Dependencies of a connection.
pub struct Link {
    pub config: Config,
    pub gateway: Gateway,
    pub work: Arc<Work>,
    pub outbox: Arc<Outbox>,
    /// Messages that are sent when a connection is up, and lost otherwise.
    pub messages: mpsc::Receiver<Envelope>,
    pub stop: CancellationToken,
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the agent stops")]
    Stopped,
    #[error("{0}")]
    Lost(String),
    #[error("the gateway refused the token of the agent on '{host}' ({0}): it is wrong, expired or revoked", host = hostname())]
    Unauthorized(Refusal),
}

impl From<GatewayError> for End {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Unauthorized(refusal) => Self::Unauthorized(refusal),
            other => Self::Lost(other.to_string()),
        }
    }
}

/// Stays connected until the agent stops.
pub async fn run(mut link: Link) {
    let timing = link.config.timing.clone();
    let mut backoff = Backoff::new(timing.reconnect_base, timing.reconnect_max);
    let mut websocket_failures = 0;
    while !link.stop.is_cancelled() {
        let started = Instant::now();
        let end = link.connect(&mut websocket_failures).await;
        if started.elapsed() >= timing.good_connection {
            backoff.reset();
        }
        let delay = match end {
            End::Stopped => return,
            End::Unauthorized(_) => timing.unauthorized,
            End::Lost(_) => {
                link.gateway.note_break();
                backoff.next_delay()
            }
        };
        tracing::warn!(retry_in_ms = delay.as_millis() as u64, "not connected: {end}");
        tokio::select! {
            () = link.stop.cancelled() => return,
            () = sleep(delay) => {}
        }
    }
}

impl Link {
    /// Makes one connection and holds it until it ends.
    async fn connect(&mut self, websocket_failures: &mut u32) -> End {
        let use_polling = match self.config.transport {
            Transport::Websocket => false,
            Transport::Polling => return self.poll(false).await.1,
            Transport::Auto => *websocket_failures >= self.config.timing.websocket_tries,
        };
        if !use_polling {
            return match self.open_socket().await {
                Ok(socket) => {
                    *websocket_failures = 0;
                    self.converse(socket).await
                }
                Err(end) => {
                    *websocket_failures += u32::from(matches!(end, End::Lost(_)));
                    end
                }
            };
        }
        // WebSocket is tried next in any case, and one failure is then enough to poll again.
        *websocket_failures = self.config.timing.websocket_tries.saturating_sub(1);
        match self.poll(true).await {
            (Some(socket), _) => {
                *websocket_failures = 0;
                self.converse(*socket).await
            }
            (None, end) => end,
        }
    }

    async fn open_socket(&self) -> Result<Socket, End> {
        tokio::select! {
            () = self.stop.cancelled() => Err(End::Stopped),
            opened = websocket::open(&self.config) => opened,
        }
    }

    async fn converse(&mut self, socket: Socket) -> End {
        tracing::info!(gateway = self.config.address.as_text(), transport = "websocket", "connected");
        self.drop_stale_messages();
        websocket::converse(self, socket).await
    }

    async fn poll(&mut self, probe: bool) -> (Option<Box<Socket>>, End) {
        self.drop_stale_messages();
        polling::run(self, probe).await
    }

    /// Progress from before the connection is of no use to anybody.
    fn drop_stale_messages(&mut self) {
        while self.messages.try_recv().is_ok() {}
    }

    fn system_info(&self, transport: &str) -> Value {
        agent_info(&self.config.address, transport, &self.work.active())
    }
}
