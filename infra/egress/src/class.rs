//! Classifies addresses by the special-purpose registries of IANA (RFC 6890 and its updates).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Why an address is not taken for one of the public Internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// This very machine: `127.0.0.0/8`, `::1`.
    Loopback,
    /// A network of its owner's: RFC 1918, unique local, site-local.
    Private,
    /// The wire that the machine hangs on, and with it the metadata services of clouds.
    LinkLocal,
    /// A service of a cloud that answers only its own machines.
    Metadata,
    /// Behind the address translation of a provider (RFC 6598).
    Shared,
    /// "This network", or no address at all.
    Unspecified,
    /// Many receivers at once.
    Multicast,
    /// Everybody on the wire.
    Broadcast,
    /// For examples in texts.
    Documentation,
    /// For measuring devices.
    Benchmarking,
    /// For protocols, tunnels and translators.
    Protocol,
    /// Set aside, or not handed out.
    Reserved,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Shared => "shared",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Protocol => "protocol",
            Self::Reserved => "reserved",
        })
    }
}

/// Prefix and its length; of two that fit, the first counts.
const SPECIAL_V4: [(Ipv4Addr, u32, Class); 20] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, Class::Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Class::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Class::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Class::Loopback),
    // Azure answers its machines here, in the midst of public addresses.
    (Ipv4Addr::new(168, 63, 129, 16), 32, Class::Metadata),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Class::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Class::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Class::Protocol),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Class::Documentation),
    (Ipv4Addr::new(192, 31, 196, 0), 24, Class::Protocol),
    (Ipv4Addr::new(192, 52, 193, 0), 24, Class::Protocol),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Class::Protocol),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Class::Private),
    (Ipv4Addr::new(192, 175, 48, 0), 24, Class::Protocol),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Class::Benchmarking),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Class::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Class::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Class::Multicast),
    (Ipv4Addr::BROADCAST, 32, Class::Broadcast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Class::Reserved),
];

const SPECIAL_V6: [(Ipv6Addr, u32, Class); 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, Class::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Class::Loopback),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Class::Protocol),
    // Teredo, benchmarking, ORCHID and whatever else the IETF has for its protocols.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Class::Protocol),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Class::Documentation),
    // 6to4 carries an IPv4 address that a relay would unpack.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Class::Protocol),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, Class::Protocol),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Class::Documentation),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Class::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Class::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Class::Private),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Class::Multicast),
    // Of the rest only global unicast has been handed out; `::ffff:0:0/96` and `64:ff9b::/96` are looked at before.
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Class::Reserved),
];

/// The special class of `address`; `None` for one of the public Internet.
pub fn class_of(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => class_of_v4(address),
        IpAddr::V6(address) => class_of_v6(address),
    }
}

fn class_of_v4(address: Ipv4Addr) -> Option<Class> {
    let fits = |prefix: Ipv4Addr, length: u32| {
        let shift = 32 - length;
        address.to_bits() >> shift == prefix.to_bits() >> shift
    };
    SPECIAL_V4.iter().find(|(prefix, length, _)| fits(*prefix, *length)).map(|(.., class)| *class)
}

fn class_of_v6(address: Ipv6Addr) -> Option<Class> {
    if let Some(embedded) = embedded_v4(address) {
        return class_of_v4(embedded);
    }
    let fits = |prefix: Ipv6Addr, length: u32| {
        let shift = 128 - length;
        address.to_bits() >> shift == prefix.to_bits() >> shift
    };
    let (global_unicast, special) = SPECIAL_V6.split_last()?;
    match special.iter().find(|(prefix, length, _)| fits(*prefix, *length)) {
        Some((.., class)) => Some(*class),
        None if fits(global_unicast.0, global_unicast.1) => None,
        None => Some(global_unicast.2),
    }
}

/// The IPv4 address that packets to `address` reach in the end: mapped (`::ffff:a.b.c.d`) and NAT64 (`64:ff9b::a.b.c.d`,
/// RFC 6052).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    if let Some(mapped) = address.to_ipv4_mapped() {
        return Some(mapped);
    }
    let is_nat64 = address.segments()[..6] == NAT64;
    is_nat64.then(|| Ipv4Addr::from_bits((address.to_bits() & u128::from(u32::MAX)) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<Class> {
        class_of(text.parse().unwrap())
    }

    #[test]
    fn every_special_range_of_ipv4_is_known_by_its_first_and_last_address() {
        let ranges = [
            ("0.0.0.0", "0.255.255.255", Class::Unspecified),
            ("10.0.0.0", "10.255.255.255", Class::Private),
            ("100.64.0.0", "100.127.255.255", Class::Shared),
            ("127.0.0.0", "127.255.255.255", Class::Loopback),
            ("168.63.129.16", "168.63.129.16", Class::Metadata),
            ("169.254.0.0", "169.254.255.255", Class::LinkLocal),
            ("172.16.0.0", "172.31.255.255", Class::Private),
            ("192.0.0.0", "192.0.0.255", Class::Protocol),
            ("192.0.2.0", "192.0.2.255", Class::Documentation),
            ("192.31.196.0", "192.31.196.255", Class::Protocol),
            ("192.52.193.0", "192.52.193.255", Class::Protocol),
            ("192.88.99.0", "192.88.99.255", Class::Protocol),
            ("192.168.0.0", "192.168.255.255", Class::Private),
            ("192.175.48.0", "192.175.48.255", Class::Protocol),
            ("198.18.0.0", "198.19.255.255", Class::Benchmarking),
            ("198.51.100.0", "198.51.100.255", Class::Documentation),
            ("203.0.113.0", "203.0.113.255", Class::Documentation),
            ("224.0.0.0", "239.255.255.255", Class::Multicast),
            ("240.0.0.0", "255.255.255.254", Class::Reserved),
            ("255.255.255.255", "255.255.255.255", Class::Broadcast),
        ];
        assert_eq!(ranges.len(), SPECIAL_V4.len());
        for (first, last, expected) in ranges {
            for address in [first, last] {
                assert_eq!(class(address), Some(expected), "{address}");
                assert_eq!(class(&format!("::ffff:{address}")), Some(expected), "mapped {address}");
                assert_eq!(class(&format!("64:ff9b::{address}")), Some(expected), "NAT64 {address}");
            }
        }
    }

    #[test]
    fn every_special_range_of_ipv6_is_known_by_its_first_and_last_address() {
        for (first, last, expected) in [
            ("::", "::", Class::Unspecified),
            ("::1", "::1", Class::Loopback),
            // IPv4-compatible addresses are out of use.
            ("::2", "::ffff:ffff", Class::Reserved),
            ("::ffff:0:0:0", "::ffff:0:ffff:ffff", Class::Reserved),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("100::", "100::ffff:ffff:ffff:ffff", Class::Reserved),
            ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", Class::Reserved),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2001:1ff::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Class::Documentation),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", Class::Protocol),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Documentation),
            ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Reserved),
            ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Reserved),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Private),
            ("fd00:ec2::254", "fd00:ec2::254", Class::Private),
            ("fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Reserved),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::LinkLocal),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Private),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Class::Multicast),
        ] {
            assert_eq!(class(first), Some(expected), "{first}");
            assert_eq!(class(last), Some(expected), "{last}");
        }
    }

    #[test]
    fn their_neighbours_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2000::",
            "2001:200::",
            "2001:db7::",
            "2001:db9::",
            "2003::",
            "2606:4700::1111",
            "2620:4f:8001::",
            "3ffe::",
            "3fff:1000::",
        ] {
            assert_eq!(class(address), None, "{address}");
        }
    }
}
