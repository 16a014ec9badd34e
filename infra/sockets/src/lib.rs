//! Finds TCP sockets of this process that a library opened and keeps to itself, and reads how long they have been silent.
//!
//! A [`Socket`] names a socket by its descriptor and its inode, and does not keep it open. Each operation duplicates the
//! descriptor for its own duration and compares the inode, so a number that was reused meanwhile is never touched.

use std::{
    fs,
    io::{self, ErrorKind},
    mem::size_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    fs::{FileType, fstat},
    io::{fcntl_dupfd_cloexec, ioctl_fionread},
    net::{Shutdown, getpeername, shutdown, sockopt},
};

/// A TCP socket of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Socket {
    descriptor: RawFd,
    inode: u64,
}

/// Traffic of a socket as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent since it was opened, without retransmissions.
    pub bytes_sent: u64,
    /// Bytes that have arrived since it was opened.
    pub bytes_received: u64,
    /// Since data was last sent.
    pub since_sent: Duration,
    /// Since data last arrived.
    pub since_received: Duration,
    /// Bytes that have arrived and were not read yet.
    pub unread: u64,
}

/// When the kernel gives a connection up by itself.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// A connection that carried nothing for so long is probed.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer that end the connection.
    pub count: u32,
    /// Data that is not acknowledged for so long ends the connection.
    pub unacknowledged: Duration,
}

impl Socket {
    /// The TCP sockets of this process whose peer has `port`.
    ///
    /// # Errors
    /// `/proc/self/fd` cannot be read.
    pub fn to_port(port: u16) -> io::Result<Vec<Self>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let Some(descriptor) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Ok(duplicate) = duplicate(descriptor) else { continue };
            if let Some(inode) = socket_inode(duplicate.as_fd())
                && peer_port(duplicate.as_fd()) == Some(port)
            {
                sockets.push(Self { descriptor, inode });
            }
        }
        Ok(sockets)
    }

    /// Its traffic until now.
    ///
    /// # Errors
    /// The socket was closed, or the kernel does not count its traffic.
    pub fn traffic(&self) -> io::Result<Traffic> {
        let duplicate = self.open()?;
        let info = tcp_info(duplicate.as_fd())?;
        let millis = |offset| info.u32_at(offset).map(|millis| Duration::from_millis(millis.into()));
        let unsupported = || io::Error::from(ErrorKind::Unsupported);
        // `tcpi_bytes_sent` came with Linux 4.19; before, what was acknowledged is the nearest count.
        let bytes_sent = info.u64_at(BYTES_SENT).or_else(|| info.u64_at(BYTES_ACKED));
        Ok(Traffic {
            bytes_sent: bytes_sent.ok_or_else(unsupported)?,
            bytes_received: info.u64_at(BYTES_RECEIVED).ok_or_else(unsupported)?,
            since_sent: millis(LAST_DATA_SENT).ok_or_else(unsupported)?,
            since_received: millis(LAST_DATA_RECEIVED).ok_or_else(unsupported)?,
            unread: ioctl_fionread(&duplicate)?,
        })
    }

    /// Lets the kernel notice by itself that the peer's machine or the network is gone.
    ///
    /// # Errors
    /// The socket was closed.
    pub fn keep_alive(&self, keepalive: Keepalive) -> io::Result<()> {
        let socket = self.open()?;
        sockopt::set_tcp_keepidle(&socket, keepalive.idle)?;
        sockopt::set_tcp_keepintvl(&socket, keepalive.interval)?;
        sockopt::set_tcp_keepcnt(&socket, keepalive.count)?;
        let millis = u32::try_from(keepalive.unacknowledged.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, millis)?;
        Ok(sockopt::set_socket_keepalive(&socket, true)?)
    }

    /// Ends the connection in both directions: its owner, which may be waiting for data, reads the end of the stream.
    ///
    /// # Errors
    /// The socket was closed already.
    pub fn shut_down(&self) -> io::Result<()> {
        Ok(shutdown(&self.open()?, Shutdown::Both)?)
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let duplicate = duplicate(self.descriptor)?;
        match socket_inode(duplicate.as_fd()) {
            Some(inode) if inode == self.inode => Ok(duplicate),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }
}

/// The address at which the only field of `value`, a box, keeps its content: it stays the same wherever `value` is moved to.
///
/// # Panics
/// At compile time, when `T` is not of the size of a pointer.
pub fn address_of_content<T>(value: &T) -> usize {
    const { assert!(size_of::<T>() == size_of::<usize>() && align_of::<T>() == align_of::<usize>()) };
    // SAFETY: `value` is valid for reads of its own size and alignment, which are those of `usize`.
    unsafe { std::ptr::from_ref(value).cast::<usize>().read() }
}

fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(ErrorKind::NotFound.into());
    }
    // SAFETY: the number is used for one system call, which fails when nothing is open there; it is not -1.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(fcntl_dupfd_cloexec(borrowed, 3)?)
}

fn socket_inode(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let status = fstat(descriptor).ok()?;
    (FileType::from_raw_mode(status.st_mode) == FileType::Socket).then_some(status.st_ino)
}

fn peer_port(descriptor: BorrowedFd<'_>) -> Option<u16> {
    let peer = getpeername(descriptor).ok()??;
    std::net::SocketAddr::try_from(peer).ok().map(|address| address.port())
}

/// Offsets in the kernel's `struct tcp_info`, which only ever grows at its end.
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECEIVED: usize = 52;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const BYTES_SENT: usize = 200;

struct TcpInfo {
    bytes: [u8; 256],
    length: usize,
}

impl TcpInfo {
    fn u32_at(&self, offset: usize) -> Option<u32> {
        let bytes = self.bytes[..self.length].get(offset..offset + size_of::<u32>())?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        let bytes = self.bytes[..self.length].get(offset..offset + size_of::<u64>())?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }
}

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; 256];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `length` bytes to `bytes` and stores how many.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo { bytes, length: (length as usize).min(bytes.len()) })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).unwrap();
        let (far, _) = listener.accept().unwrap();
        let found = Socket::to_port(address.port()).unwrap();
        assert_eq!(found.len(), 1, "the accepted end has another peer");
        (near, far, found[0])
    }

    #[test]
    fn traffic_counts_sent_and_unread_bytes() {
        let (mut near, mut far, socket) = pair();
        near.write_all(&[1; 700]).unwrap();
        far.write_all(&[2; 30]).unwrap();
        near.peek(&mut [0; 30]).unwrap();
        let traffic = socket.traffic().unwrap();
        assert_eq!((traffic.bytes_sent, traffic.bytes_received, traffic.unread), (700, 30, 30));
    }

    #[test]
    fn shutting_down_ends_a_waiting_read() {
        let (mut near, _far, socket) = pair();
        let reading = std::thread::spawn(move || near.read(&mut [0; 8]).unwrap());
        socket.shut_down().unwrap();
        assert_eq!(reading.join().unwrap(), 0);
    }

    #[test]
    fn a_closed_socket_is_not_found_although_its_number_is_reused() {
        let (near, _far, socket) = pair();
        drop(near);
        let _others: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        assert!(socket.traffic().is_err());
        assert!(socket.shut_down().is_err());
    }

    #[test]
    fn the_address_of_a_box_outlives_moves() {
        struct Boxed {
            _content: Box<[u64; 3]>,
        }
        let first = Boxed { _content: Box::new([0; 3]) };
        let address = address_of_content(&first);
        let moved = Box::new(first);
        assert_eq!(address_of_content(&*moved), address);
    }
}
