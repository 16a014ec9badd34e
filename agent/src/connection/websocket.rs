//! The WebSocket transport.

use super::{End, Link};
use crate::{config::Config, failure::ConnectFailure, gateway::Refusal, protocol::Envelope};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::{
    net::TcpStream,
    time::{Instant, interval_at, sleep_until, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        http::{HeaderValue, Request, header::AUTHORIZATION},
        protocol::WebSocketConfig,
    },
};

/// An open WebSocket.
pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Far more than any message of the protocol needs.
const MAX_MESSAGE: usize = 1 << 20;

/// For the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens a WebSocket to the gateway.
pub async fn open(config: &Config) -> Result<Socket, End> {
    let request = request(config)?;
    let limits =
        WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    match timeout(config.timing.connect, connect_async_with_config(request, Some(limits), true)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(End::Lost("WebSocket: the connection timed out".to_owned())),
    }
}

fn request(config: &Config) -> Result<Request<()>, End> {
    let fault = |_| End::Lost("WebSocket: the address cannot be used".to_owned());
    let mut request = config.address.websocket().into_client_request().map_err(fault)?;
    if let Ok(mut bearer) = HeaderValue::from_str(&config.token.bearer()) {
        bearer.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, bearer);
    }
    Ok(request)
}

fn refused(error: &Error) -> End {
    match error {
        Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let refusal = Refusal::new(response.status(), body);
            if response.status() == 401 {
                End::Unauthorized(refusal)
            } else {
                End::Lost(format!("WebSocket: the gateway answered {refusal}"))
            }
        }
        other => End::Lost(format!("WebSocket: {}", ConnectFailure::find(other))),
    }
}

/// Sends and receives until the connection ends.
pub async fn converse(link: &mut Link, socket: Socket) -> End {
    let info = Envelope::new("agent_info", link.system_info("websocket"));
    let mut conversation = Conversation { link, socket, sent: 0 };
    match conversation.begin(&info).await {
        Ok(never) => match never {},
        Err(End::Stopped) => {
            let _ = timeout(CLOSE_TIMEOUT, conversation.socket.close(None)).await;
            End::Stopped
        }
        Err(end) => end,
    }
}

struct Conversation<'a> {
    link: &'a mut Link,
    socket: Socket,
    /// Number of the last report written here. It stays in the outbox until the gateway answers the ping after it: a
    /// written report may still be lost with the connection.
    sent: u64,
}

impl Conversation<'_> {
    async fn begin(&mut self, info: &Envelope) -> Result<std::convert::Infallible, End> {
        self.send(info).await?;
        let timing = self.link.config.timing.clone();
        let mut heartbeat = interval_at(Instant::now() + timing.heartbeat, timing.heartbeat);
        // A gateway that is there answers each, so silence is that of the network.
        let mut ping = interval_at(Instant::now() + timing.silence / 3, timing.silence / 3);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                () = self.link.stop.cancelled() => return Err(End::Stopped),
                frame = self.socket.next() => {
                    heard = Instant::now();
                    if matches!(frame, Some(Ok(Message::Close(_)))) {
                        self.answer_close().await;
                    }
                    self.receive(frame).await?;
                }
                (number, report) = self.link.outbox.next_after(self.sent) => {
                    self.send(&report.envelope()).await?;
                    self.write(Message::Ping(number.to_be_bytes().to_vec().into())).await?;
                    self.sent = number;
                }
                Some(message) = self.link.messages.recv() => self.send(&message).await?,
                _ = ping.tick() => self.write(Message::Ping(Bytes::new())).await?,
                _ = heartbeat.tick() => self.send(&Envelope::heartbeat()).await?,
                () = sleep_until(heard + timing.silence) => {
                    return Err(End::Lost(format!("nothing was heard for {} s", timing.silence.as_secs())));
                }
            }
        }
    }

    async fn receive(&mut self, frame: Option<Result<Message, Error>>) -> Result<(), End> {
        match frame {
            Some(Ok(Message::Close(Some(close)))) if !close.reason.is_empty() => {
                Err(End::Lost(format!("the gateway closed the connection: {}", close.reason)))
            }
            None | Some(Ok(Message::Close(_))) => {
                Err(End::Lost("the gateway closed the connection".to_owned()))
            }
            Some(Err(_)) => Err(End::Lost("the connection broke".to_owned())),
            Some(Ok(Message::Text(text))) => self.take(text.as_str()).await,
            Some(Ok(Message::Pong(payload))) => {
                if let Ok(number) = <[u8; 8]>::try_from(&payload[..]) {
                    self.link.outbox.confirm(u64::from_be_bytes(number));
                }
                Ok(())
            }
            // Pings are answered below us, and the protocol has no binary frames.
            Some(Ok(_)) => Ok(()),
        }
    }

    /// The reply to a close frame waits in the socket until something is written. The gateway takes the reply for a sign
    /// that another process uses the token.
    async fn answer_close(&mut self) {
        let _ = timeout(CLOSE_TIMEOUT, self.socket.flush()).await;
    }

    async fn take(&mut self, text: &str) -> Result<(), End> {
        let Ok(envelope) = serde_json::from_str::<Envelope>(text) else {
            tracing::warn!("a message without a valid envelope was ignored");
            return Ok(());
        };
        let id = envelope.id;
        let taken = self.link.work.take(envelope);
        match id.filter(|_| taken) {
            Some(id) => self.send(&Envelope::ack(id)).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, envelope: &Envelope) -> Result<(), End> {
        let text = serde_json::to_string(envelope).map_err(|error| End::Lost(error.to_string()))?;
        self.write(Message::text(text)).await
    }

    async fn write(&mut self, message: Message) -> Result<(), End> {
        match timeout(self.link.config.timing.request, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Lost("the connection broke".to_owned())),
            Err(_) => Err(End::Lost("the gateway takes no more messages".to_owned())),
        }
    }
}
