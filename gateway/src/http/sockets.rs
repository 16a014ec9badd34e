//! WebSockets as every route serves them.

use std::{error::Error as _, time::Duration};

use axum::{
    Error,
    extract::ws::{
        CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection,
    },
};
use futures::{SinkExt, stream::SplitSink};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite;

use super::problem::{NO_WEBSOCKET, Problem};

/// How long a close frame may take to be written. A void credential has no more time left.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long a connection stays open after a close frame for a message that was not received. Closing it at once would reset
/// it, and the client might never read why.
const LINGER: Duration = Duration::from_secs(2);

/// The writing half of a socket.
pub(crate) type Sink = SplitSink<WebSocket, Message>;

/// The socket that a request asks for, whose messages have at most `max_bytes`.
///
/// # Errors
/// [`Problem`] of a request that asks for none.
pub(crate) fn upgrade(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    max_bytes: usize,
) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = upgrade.map_err(|_| Problem::malformed(NO_WEBSOCKET))?;
    Ok(upgrade.max_message_size(max_bytes).max_frame_size(max_bytes))
}

/// Whether `error` is a message that is longer than the socket allows.
pub(crate) fn is_too_long(error: &Error) -> bool {
    let inner = error.source().and_then(|inner| inner.downcast_ref::<tungstenite::Error>());
    matches!(inner, Some(tungstenite::Error::Capacity(_)))
}

/// Closes the connection of a message that is not received.
pub(crate) async fn refuse_too_long(sink: &mut Sink) {
    close(sink, close_code::SIZE, "The message is too long").await;
    sleep(LINGER).await;
}

/// Writes a close frame.
pub(crate) async fn close(sink: &mut Sink, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    // A client that reads nothing gets no close frame.
    let _ = timeout(FAREWELL, sink.send(Message::Close(Some(frame)))).await;
}
