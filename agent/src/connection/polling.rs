//! The long polling transport.

use super::{End, Link, websocket};
use crate::{
    config::Config,
    gateway::{Gateway, GatewayError},
    outbox::Outbox,
    protocol::{Envelope, PollItem},
    work::Work,
};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    time::{Instant, interval_at, sleep},
};
use websocket::Socket;

/// Failed polls in a row after which the agent registers again.
const FAILURES: u32 = 5;

/// Polls until the connection ends. With `probe`, a WebSocket that opens ends it too, and is the first answer.
pub async fn run(link: &mut Link, probe: bool) -> (Option<Box<Socket>>, End) {
    let info = link.system_info("polling");
    let connected = tokio::select! {
        () = link.stop.cancelled() => return (None, End::Stopped),
        connected = link.gateway.connect(info) => connected,
    };
    if let Err(error) = connected {
        return (None, error.into());
    }
    tracing::info!(gateway = link.config.address.as_text(), transport = "polling", "connected");
    let Link { config, gateway, work, outbox, messages, stop } = link;
    tokio::select! {
        biased;
        () = stop.cancelled() => (None, End::Stopped),
        end = receive(gateway, work, config) => (None, end),
        end = report(gateway, outbox, config) => (None, end),
        end = chat(gateway, messages, config) => (None, end),
        socket = try_websocket(config, probe) => (Some(Box::new(socket)), End::Lost("WebSocket works again".into())),
    }
}

/// Receives messages. The acknowledgement follows at once; if it is lost, they are delivered again.
async fn receive(gateway: &Gateway, work: &std::sync::Arc<Work>, config: &Config) -> End {
    let mut failures = 0;
    loop {
        let polled = match gateway.poll().await {
            Ok(items) => acknowledge(gateway, work, items).await,
            Err(error) => Err(error),
        };
        match polled {
            Ok(()) => failures = 0,
            Err(error) if failures + 1 < FAILURES && error.is_passing() => {
                failures += 1;
                tracing::debug!(%error, "a poll failed");
                sleep(config.timing.reconnect_base * 2).await;
            }
            Err(error) => return error.into(),
        }
    }
}

async fn acknowledge(
    gateway: &Gateway,
    work: &std::sync::Arc<Work>,
    items: Vec<PollItem>,
) -> Result<(), GatewayError> {
    let taken: Vec<i64> =
        items.into_iter().filter_map(|item| work.take(item.message).then_some(item.id)).collect();
    if taken.is_empty() { Ok(()) } else { gateway.ack(&taken).await }
}

/// Sends reports; each leaves the outbox when the gateway has answered.
async fn report(gateway: &Gateway, outbox: &Outbox, config: &Config) -> End {
    let mut sent = 0;
    loop {
        let (number, report) = outbox.next_after(sent).await;
        match gateway.send(&report.envelope()).await {
            Ok(()) => sent = number,
            Err(GatewayError::Unauthorized(refusal)) => return End::Unauthorized(refusal),
            Err(error) if error.is_passing() => {
                tracing::debug!(%error, "a report is sent again");
                sleep(config.timing.reconnect_base * 2).await;
                continue;
            }
            // The gateway will never accept it, and later reports must not wait for it.
            Err(error) => {
                tracing::error!(transfer.id = %report.id, "the gateway refused a report: {error}");
                sent = number;
            }
        }
        outbox.confirm(number);
    }
}

/// Sends messages that may be lost: progress, answers to tests, heartbeats.
async fn chat(gateway: &Gateway, messages: &mut mpsc::Receiver<Envelope>, config: &Config) -> End {
    let every = config.timing.heartbeat;
    let mut heartbeat = interval_at(Instant::now() + every, every);
    loop {
        let message = tokio::select! {
            Some(message) = messages.recv() => message,
            _ = heartbeat.tick() => Envelope::heartbeat(),
        };
        match gateway.send(&message).await {
            Err(GatewayError::Unauthorized(refusal)) => return End::Unauthorized(refusal),
            Err(error) => tracing::debug!(%error, "a message was lost"),
            Ok(()) => {}
        }
    }
}

/// Ends when a WebSocket opens.
async fn try_websocket(config: &Config, probe: bool) -> Socket {
    loop {
        let delay = if probe { config.timing.websocket_probe } else { Duration::MAX };
        sleep(delay).await;
        if let Ok(socket) = websocket::open(config).await {
            return socket;
        }
    }
}
