//! Whether an answer reached the peer.
//!
//! Bytes that were written to a socket may wait in this kernel, be lost on the way, or lie in the peer's kernel
//! unread. The answer has reached the peer's program when TCP has acknowledged all of it and the peer then sends
//! another request on the same connection, or closes it in order. A kernel closes a socket with unread bytes by a
//! reset instead.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::fs::fstat;
use socket2::SockRef;
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{Connection, Shared};

/// How often the next request and the acknowledgements are looked for.
const CHECK: Duration = Duration::from_millis(250);
/// How long a peer has to close its side after ours.
const CLOSE: Duration = Duration::from_secs(10);
/// After this without another request the connection is closed, so that its peer's orderly close shows the arrival before the
/// leg counts as stalled.
const UNUSED: Duration = Duration::from_secs(20);
const SCRATCH: usize = 4 << 10;

/// Follows one answer on a connection.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    trace: Arc<Trace>,
    /// Requests on the connection, this one included.
    served: usize,
}

/// The socket's observations while an answer is followed.
#[derive(Debug)]
pub(super) struct Trace {
    /// The HTTP layer has got the whole body.
    is_handed: AtomicBool,
    /// The kernel has got it from the HTTP layer.
    is_written: AtomicBool,
    end: watch::Sender<End>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Open,
    /// The peer closed its side in order.
    Closed {
        acknowledged: bool,
    },
    Broken,
    /// We closed the connection first.
    Left,
}

impl Connection {
    /// Follows the answer to the present request.
    pub(crate) fn follow(&self) -> Option<Delivery> {
        let stream = self.socket()?;
        let (is_handed, is_written) = (AtomicBool::new(false), AtomicBool::new(false));
        let trace = Arc::new(Trace { is_handed, is_written, end: watch::Sender::new(End::Open) });
        *self.0.trace() = Some(Arc::clone(&trace));
        let served = self.0.progress().served;
        Some(Delivery { shared: Arc::clone(&self.0), stream, trace, served })
    }
}

impl Delivery {
    /// The whole body has been handed to the HTTP layer.
    pub(crate) fn note_handed(&self) {
        self.trace.is_handed.store(true, Ordering::Release);
    }

    /// Waits for the connection's next request or its end; false unless the whole answer has reached the peer by then.
    pub(crate) async fn arrives(self) -> bool {
        let mut end = self.trace.end.subscribe();
        let mut written_since = None;
        loop {
            let now = *end.borrow_and_update();
            match now {
                End::Closed { acknowledged } => return acknowledged && self.is_written(),
                End::Broken => return false,
                End::Left => return self.is_written() && timeout(CLOSE, self.close()).await.unwrap_or(false),
                End::Open => {}
            }
            if self.is_written() && self.shared.progress().served > self.served && self.is_acknowledged(false)
            {
                return true;
            }
            if self.is_written() {
                let since = *written_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= UNUSED && self.shared.progress().running == 0 {
                    self.shared.end.cancel();
                }
            }
            tokio::select! {
                changed = end.changed() => if changed.is_err() { return false },
                () = sleep(CHECK) => {}
            }
        }
    }

    /// Closes our side and waits until the peer closes its own.
    async fn close(&self) -> bool {
        // Closed by the HTTP layer already, as a rule.
        let _ = SockRef::from(&*self.stream).shutdown(Shutdown::Write);
        let mut scratch = [0; SCRATCH];
        loop {
            if self.stream.readable().await.is_err() {
                return false;
            }
            match self.stream.try_read(&mut scratch) {
                Ok(0) => return self.is_acknowledged(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }

    fn is_written(&self) -> bool {
        self.trace.is_written.load(Ordering::Acquire)
    }

    fn is_acknowledged(&self, is_closed: bool) -> bool {
        is_acknowledged(&self.stream, is_closed)
    }
}

impl Shared {
    /// Nothing is left in the buffers of the HTTP layer.
    pub(super) fn note_flush(&self) {
        if let Some(trace) = &*self.trace()
            && trace.is_handed.load(Ordering::Acquire)
        {
            trace.is_written.store(true, Ordering::Release);
        }
    }

    /// The peer has closed its side. `is_closed`: we have closed ours before.
    pub(super) fn note_peer_closed(&self, stream: &TcpStream, is_closed: bool) {
        self.end_trace(|| End::Closed { acknowledged: is_acknowledged(stream, is_closed) });
    }

    pub(super) fn note_broken(&self) {
        self.end_trace(|| End::Broken);
    }

    pub(super) fn note_left(&self) {
        self.end_trace(|| End::Left);
    }

    /// The first end counts.
    fn end_trace(&self, end: impl FnOnce() -> End) {
        if let Some(trace) = self.trace().take() {
            trace.end.send_replace(end());
        }
    }
}

/// Whether the peer's TCP has acknowledged everything that was written to `stream`.
fn is_acknowledged(stream: &TcpStream, is_closed: bool) -> bool {
    match unacknowledged(stream) {
        Ok(Some(0)) => true,
        // The end of our side counts as one byte. A connection that both sides have closed is no longer listed.
        Ok(Some(1) | None) => is_closed,
        Ok(Some(_)) | Err(_) => false,
    }
}

/// Bytes that were written to `stream` and have not been acknowledged; `None` if the kernel no longer lists it.
fn unacknowledged(stream: &TcpStream) -> io::Result<Option<u64>> {
    let inode = fstat(stream)?.st_ino.to_string();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let file = match File::open(table) {
            // The kernel was built without this version of IP.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            if let Some(queued) = queued(&line?, &inode) {
                return Ok(Some(queued));
            }
        }
    }
    Ok(None)
}

/// The first of the two queues in a line of the table, if the line is about the socket with `inode`.
fn queued(line: &str, inode: &str) -> Option<u64> {
    // sl, local, remote, state, tx:rx, timer, retransmits, uid, timeout, inode
    let mut fields = line.split_ascii_whitespace().skip(4);
    let queues = fields.next()?;
    (fields.nth(4)? == inode).then_some(())?;
    u64::from_str_radix(queues.split(':').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn the_kernel_reports_unacknowledged_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(unacknowledged(&stream).unwrap(), Some(0));
        let bytes = vec![7; 32 << 20];
        let written = timeout(Duration::from_millis(200), stream.write_all(&bytes)).await;
        assert!(written.is_err(), "the peer reads nothing");
        assert!(unacknowledged(&stream).unwrap() > Some(0));
        let mut read = vec![0; 1 << 20];
        while timeout(Duration::from_millis(200), peer.read(&mut read)).await.is_ok() {}
        assert_eq!(unacknowledged(&stream).unwrap(), Some(0));
    }
}
