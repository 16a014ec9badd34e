use signalbox_messaging::{Bus, BusError};
use signalbox_test_support::{TestServers, eventually, seconds};

#[tokio::test]
async fn the_password_in_the_address_lets_in() {
    let servers = TestServers::start().await;
    let (start, rest) = servers.nats_url.rsplit_once(':').unwrap();
    let (user, password) = start.rsplit_once('@').unwrap().0.rsplit_once(':').unwrap();
    let port = rest;
    let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    Bus::connect(&format!("{user}:{encoded}@127.0.0.1:{port}")).await.unwrap();
    for wrong in [format!("{user}:wrong@127.0.0.1:{port}"), format!("nats://127.0.0.1:{port}")] {
        let refused = Bus::connect(&wrong).await.unwrap_err();
        assert!(matches!(refused, BusError::Connect(_)), "{refused}");
    }
    servers.finish().await;
}

#[tokio::test]
async fn what_is_no_address_is_called_so() {
    let refused = Bus::connect("http://[::broken").await.unwrap_err();
    assert!(matches!(refused, BusError::Address), "{refused}");
}

#[tokio::test]
async fn a_new_connection_is_counted() {
    let servers = TestServers::start().await;
    let mut connections = servers.bus.connections();
    eventually(seconds(30), async || *connections.borrow() == 1).await;
    connections.mark_unchanged();
    servers.nats.kill().await;
    servers.nats.restart().await;
    tokio::time::timeout(seconds(10), connections.changed()).await.unwrap().unwrap();
    eventually(seconds(30), async || servers.bus.is_connected()).await;
    servers.finish().await;
}
