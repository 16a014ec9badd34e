//! Every wait and limit of the agent in one place, so that tests can shorten them.

use std::time::Duration;

/// Waits and limits; the defaults are those of the protocol and of `agent.default.toml`.
#[derive(Debug, Clone)]
pub struct Timing {
    /// To make a connection, or to shake hands.
    pub connect: Duration,
    /// Without a byte of a file moving.
    pub stall: Duration,
    /// From the last byte of an upload to the gateway's answer: it puts the file on its disk first.
    pub answer: Duration,
    /// For a small call, or for writing one frame.
    pub request: Duration,
    /// Time without any frame after which the connection counts as broken. Three pings are sent in this time.
    pub silence: Duration,
    /// Between two signs of life.
    pub heartbeat: Duration,
    /// How long the gateway may hold a long poll.
    pub poll: Duration,
    /// First and longest delay between attempts to connect.
    pub reconnect_base: Duration,
    pub reconnect_max: Duration,
    /// A connection that lasted this long resets the backoff.
    pub good_connection: Duration,
    /// Delay while the gateway refuses the token.
    pub unauthorized: Duration,
    /// Failed WebSocket attempts before long polling.
    pub websocket_tries: u32,
    /// Between two WebSocket attempts while polling.
    pub websocket_probe: Duration,
    /// First and longest delay between the tries of one file.
    pub retry_base: Duration,
    pub retry_max: Duration,
    /// Tries of one file without a single new byte before the attempt fails.
    pub retry_tries: u32,
    /// Between two progress messages of a transfer.
    pub progress: Duration,
    /// How long the result of an attempt is remembered.
    pub remember: Duration,
    /// For running work to end when the agent stops.
    pub stop: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            answer: Duration::from_secs(300),
            request: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            heartbeat: Duration::from_secs(30),
            poll: Duration::from_secs(30),
            reconnect_base: Duration::from_secs(1),
            reconnect_max: Duration::from_secs(60),
            good_connection: Duration::from_secs(10),
            unauthorized: Duration::from_secs(30),
            websocket_tries: 3,
            websocket_probe: Duration::from_secs(300),
            retry_base: Duration::from_secs(1),
            retry_max: Duration::from_secs(10),
            retry_tries: 8,
            progress: Duration::from_millis(500),
            remember: Duration::from_secs(600),
            stop: Duration::from_secs(5),
        }
    }
}
