//! A name is resolved once, and the client connects to an address that was checked.

use signalbox_egress::{Class, Egress, EgressError, Policy};

use crate::{
    dns::DnsServer,
    receiver::{Behaviour, Receiver},
};

const OK: Behaviour = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");

/// Reaches 127.0.0.2 and the public Internet, by the names that `dns` knows.
fn egress(dns: &DnsServer) -> Egress {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Egress::with_resolver(Policy::allowing(&["127.0.0.2"]).unwrap(), dns.resolver()).unwrap()
}

async fn post(egress: &Egress, port: u16) -> Result<u16, EgressError> {
    let url = format!("http://rebinding.example:{port}/hook").parse().unwrap();
    egress.post(&url, Default::default(), b"{}".to_vec()).await.map(|status| status.as_u16())
}

fn denied_as(class: Class) -> impl Fn(&Result<u16, EgressError>) -> bool {
    move |answer| matches!(answer, Err(EgressError::Denied { class: denied, .. }) if *denied == class)
}

#[tokio::test]
async fn a_name_that_is_bound_anew_after_the_check_gains_nothing() {
    let allowed = Receiver::start("127.0.0.2:0", OK).await;
    let port = allowed.address.port();
    let inner = Receiver::start(&format!("127.0.0.1:{port}"), OK).await;
    let dns = DnsServer::start(&[&["127.0.0.2"], &["127.0.0.1"]]).await;
    assert_eq!(post(&egress(&dns), port).await.unwrap(), 200);
    // One lookup: the connected address is the one that was checked.
    assert_eq!((dns.lookups(), allowed.requests(), inner.connections()), (1, 1, 0));
    // The next connection resolves again, and is refused.
    let answer = post(&egress(&dns), port).await;
    assert!(denied_as(Class::Loopback)(&answer), "{answer:?}");
    assert_eq!((dns.lookups(), inner.connections()), (2, 0));
}

#[tokio::test]
async fn one_denied_address_condemns_the_name() {
    let allowed = Receiver::start("127.0.0.2:0", OK).await;
    for answers in [["127.0.0.2", "10.0.0.1"], ["10.0.0.1", "127.0.0.2"], ["127.0.0.2", "::ffff:10.0.0.1"]] {
        let dns = DnsServer::start(&[&answers]).await;
        let answer = post(&egress(&dns), allowed.address.port()).await;
        assert!(denied_as(Class::Private)(&answer), "{answers:?}: {answer:?}");
    }
    assert_eq!(allowed.connections(), 0);
}

#[tokio::test]
async fn a_name_may_not_lead_to_any_special_range() {
    for (address, class) in [
        ("127.0.0.1", Class::Loopback),
        ("::1", Class::Loopback),
        ("::ffff:127.0.0.1", Class::Loopback),
        ("64:ff9b::7f00:1", Class::Loopback),
        ("169.254.169.254", Class::LinkLocal),
        ("64:ff9b::169.254.169.254", Class::LinkLocal),
        ("fd00:ec2::254", Class::Private),
        ("0.0.0.0", Class::Unspecified),
        ("224.0.0.1", Class::Multicast),
    ] {
        let dns = DnsServer::start(&[&[address]]).await;
        let answer = post(&egress(&dns), 9).await;
        assert!(denied_as(class)(&answer), "{address}: {answer:?}");
    }
}

#[tokio::test]
async fn a_name_without_addresses_is_an_error() {
    let dns = DnsServer::start(&[&[]]).await;
    let answer = post(&egress(&dns), 9).await;
    assert!(matches!(answer, Err(EgressError::Transport(_))), "{answer:?}");
}
