use std::net::SocketAddr;

/// An address of this machine without a listener, another one each time.
pub fn free_address() -> SocketAddr {
    signalbox_embedded::free_address().expect("a free port")
}
