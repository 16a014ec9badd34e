use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports that Linux, as it comes, gives to nobody by itself, neither to a listener without a wish nor to a connection: what was free stays so
/// until who was told of it listens there.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An address of this machine at which nobody listens, another one each time.
pub fn free_address() -> SocketAddr {
    // Processes that are started one after another begin far from each other.
    let begin = process::id().wrapping_mul(997);
    let next = || begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let free = (0..COUNT).find_map(|_| {
        let port = u16::try_from(FIRST + next()).expect("a port");
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
    });
    free.expect("a free port").local_addr().expect("its address")
}
