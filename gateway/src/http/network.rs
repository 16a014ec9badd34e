//! Addresses of clients as proxies report them, and the unit that limits count.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use axum::http::HeaderMap;

/// Bits of an IPv6 address that one customer of a provider does not choose.
const PREFIX_BITS: u32 = 64;
/// Headers by which a proxy shows itself.
const OF_PROXIES: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

/// The unit that limits count: an IPv4 address, or the /64 of an IPv6 address, within which a host chooses freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let mask = u128::MAX << (u128::BITS - PREFIX_BITS);
                Self(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
            address => Self(address),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(prefix) => write!(f, "{prefix}/{PREFIX_BITS}"),
        }
    }
}

/// Whether a request with `headers` came from `peer` through a proxy, or from one: `peer` need not be the client then.
pub(crate) fn is_proxied(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> bool {
    trusted.contains(&peer) || OF_PROXIES.iter().any(|name| headers.contains_key(*name))
}

/// Walks X-Forwarded-For from the peer outwards as long as trusted proxies vouch for the next entry. An entry that does
/// not parse ends the walk: the entries before it may be forged.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    let entries: Vec<&[u8]> = headers
        .get_all("x-forwarded-for")
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .collect();
    let mut client = peer;
    for entry in entries.into_iter().rev() {
        let Some(address) = trusted.contains(&client).then(|| parse(entry)).flatten() else { break };
        client = address;
    }
    client
}

/// An address as proxies write it: alone, with a port, or in brackets.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone =
        bracketed.map_or_else(|| text.parse().ok(), |inner| inner.parse::<Ipv6Addr>().ok().map(Into::into));
    let address: IpAddr = alone.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::http::HeaderValue;

    use super::*;

    const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn forwarded(lines: &[&str]) -> IpAddr {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
        }
        client(PROXY, &headers, &[PROXY])
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn forwarding_headers_count_only_from_a_trusted_proxy() {
        assert_eq!(forwarded(&["6.6.6.6, 1.2.3.4, 10.0.0.1"]), address("1.2.3.4"));
        assert_eq!(forwarded(&["6.6.6.6", "1.2.3.4"]), address("1.2.3.4"));
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("1.2.3.4"));
        let stranger = address("9.9.9.9");
        assert_eq!(client(stranger, &headers, &[PROXY]), stranger);
    }

    #[test]
    fn entries_with_a_port_are_read() {
        for (entry, expected) in [
            ("1.2.3.4:5678", "1.2.3.4"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(forwarded(&[&format!("6.6.6.6, {entry}")]), address(expected), "{entry}");
        }
    }

    #[test]
    fn an_unreadable_entry_ends_the_chain_of_trust() {
        for entry in ["unknown", "", "_hidden", "1.2.3", "[1.2.3.4]", "1.2.3.4:99999"] {
            assert_eq!(forwarded(&[&format!("6.6.6.6, {entry}")]), PROXY, "{entry}");
            assert_eq!(forwarded(&[&format!("6.6.6.6, {entry}, 10.0.0.1")]), PROXY, "{entry}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_bytes(b"6.6.6.6, \xff").unwrap());
        assert_eq!(client(PROXY, &headers, &[PROXY]), PROXY);
    }

    #[test]
    fn a_proxy_shows_itself_by_its_address_or_its_headers() {
        let (stranger, mut headers) = (address("9.9.9.9"), HeaderMap::new());
        assert!(is_proxied(PROXY, &headers, &[PROXY]));
        assert!(!is_proxied(stranger, &headers, &[PROXY]));
        headers.insert("via", HeaderValue::from_static("1.1 proxy"));
        assert!(is_proxied(stranger, &headers, &[]));
    }

    #[test]
    fn one_prefix_of_ipv6_is_one_network() {
        let network = |text: &str| Network::from(address(text));
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff::4"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
        assert_eq!(network("2001:db8:1:2::3").to_string(), "2001:db8:1:2::/64");
        assert_eq!(network("::ffff:1.2.3.4"), network("1.2.3.4"));
        assert_eq!(network("1.2.3.4").to_string(), "1.2.3.4");
    }
}
