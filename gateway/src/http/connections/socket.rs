//! The socket of a connection: notes what moves, ends writes that stall, and closes so that the last answer arrives.

use std::{
    io,
    net::Shutdown,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use super::Place;

/// How long a closed connection is still read, so that bytes under way do not make the kernel reset it and take the
/// answer from the client.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes that are thrown away at once.
const SCRATCH: usize = 16 << 10;

/// A socket and its place.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    place: Place,
    /// Runs while the peer takes nothing of what is to be written.
    stall: Option<Pin<Box<Sleep>>>,
    /// Runs from the moment at which our side was closed.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, place: Place) -> Self {
        Self { stream, place, stall: None, linger: None }
    }

    fn poll_try_write(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while self.stream.poll_write_ready(context)?.is_ready() {
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.stall = None;
                    self.place.shared.note_written();
                    if written.is_err() {
                        self.place.shared.note_broken();
                    }
                    return Poll::Ready(written);
                }
            }
        }
        let limit = self.place.shared.pace.stall;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes")))
    }

    /// Discards what arrives, until the peer closes its side.
    fn poll_discard(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; SCRATCH];
        loop {
            if ready!(self.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(());
            }
            match self.stream.try_read(&mut scratch) {
                Ok(0) => {
                    self.place.shared.note_peer_closed(&self.stream, true);
                    return Poll::Ready(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.place.shared.note_broken();
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.place.shared.note_left();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.place.shared.note_broken();
                    return Poll::Ready(Err(error));
                }
                Ok(0) => {
                    self.place.shared.note_peer_closed(&self.stream, self.linger.is_some());
                    return Poll::Ready(Ok(()));
                }
                Ok(_) => {
                    self.place.shared.note_read();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_try_write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try_write(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The HTTP layer flushes the socket when its own buffer is empty.
        self.place.shared.note_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            SockRef::from(&*self.stream).shutdown(Shutdown::Write)?;
            self.linger = Some(Box::pin(sleep(LINGER)));
        }
        let lingers = self.place.shared.lingers.load(Ordering::Relaxed);
        if !lingers || self.poll_discard(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let ended = self.linger.as_mut().is_none_or(|linger| linger.as_mut().poll(context).is_ready());
        if ended { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
