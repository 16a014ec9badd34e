//! Ports on the loopback interface.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::EmbeddedError;

/// How often a port is chosen again when another program took it between the choice and the server's start.
const ATTEMPTS: usize = 8;

/// First port of a range below Linux's default ephemeral ports (32768 and up), so the kernel never assigns one by
/// itself: a port that was free stays free until its server listens, also after a restart.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Starts a server on port `requested`, or on a free port, which is chosen again if it turns out to be taken.
pub(crate) async fn start_on_port<T, F>(
    requested: Option<u16>,
    start: impl Fn(u16) -> F,
) -> Result<T, EmbeddedError>
where
    F: Future<Output = Result<T, EmbeddedError>>,
{
    if let Some(port) = requested {
        require_free(port)?;
        return start(port)
            .await
            .map_err(|error| if lost_port(&error) { EmbeddedError::PortTaken { port } } else { error });
    }
    let mut attempt = 1;
    loop {
        match start(free()?).await {
            Err(error) if lost_port(&error) && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn free() -> Result<u16, EmbeddedError> {
    hold().map(|(_, port)| port)
}

/// An address of this machine without a listener, another one each time.
pub fn free_address() -> io::Result<SocketAddr> {
    listen_anywhere()?.local_addr()
}

/// A free port, reserved as long as the listener exists.
pub(crate) fn hold() -> Result<(TcpListener, u16), EmbeddedError> {
    let held = listen_anywhere().and_then(|listener| {
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    });
    held.map_err(EmbeddedError::run("a listener on 127.0.0.1"))
}

fn listen_anywhere() -> io::Result<TcpListener> {
    // Processes that are started one after another begin far from each other.
    let begin = process::id().wrapping_mul(997);
    let next = || FIRST + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let free = (0..COUNT).find_map(|_| listen(u16::try_from(next()).ok()?).ok());
    free.map_or_else(|| listen(0), Ok)
}

fn require_free(port: u16) -> Result<(), EmbeddedError> {
    match listen(port) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(EmbeddedError::PortTaken { port }),
        Err(error) => Err(EmbeddedError::run(format!("a listener on 127.0.0.1:{port}"))(error)),
        Ok(_) => Ok(()),
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Both servers print the system's words for EADDRINUSE before they give up.
fn lost_port(error: &EmbeddedError) -> bool {
    matches!(error, EmbeddedError::Exited { tail, .. } if tail.to_ascii_lowercase().contains("address already in use"))
}
