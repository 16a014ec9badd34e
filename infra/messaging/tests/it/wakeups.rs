use futures::{Stream, StreamExt};
use signalbox_messaging::Wakeup;
use signalbox_test_support::{TestServers, eventually, eventually_some, seconds};
use tokio::time::timeout;
use uuid::Uuid;

fn one_of_each() -> Vec<Wakeup> {
    let id = Uuid::from_u128(7);
    vec![
        Wakeup::LogAppended { position: 7, aggregates: vec!["job".to_owned()] },
        Wakeup::ReadAdvanced {
            projection: "transfer".to_owned(),
            position: 7,
            aggregates: Vec::new(),
            has_set_aside: false,
        },
        Wakeup::AgentSession { agent: id, session: id, version: 7 },
        Wakeup::TestEcho { request_id: "seven".to_owned() },
        Wakeup::TransferStopped { transfer: id },
    ]
}

/// Sent repeatedly until received: a subscription takes a moment to reach the server.
fn ready() -> Wakeup {
    Wakeup::TestEcho { request_id: "ready".to_owned() }
}

async fn next(wakeups: &mut (impl Stream<Item = Wakeup> + Unpin)) -> Wakeup {
    loop {
        let wakeup = timeout(seconds(20), wakeups.next()).await.unwrap().unwrap();
        if wakeup != ready() {
            return wakeup;
        }
    }
}

#[tokio::test]
async fn every_wakeup_reaches_every_process_in_order() {
    let servers = TestServers::start().await;
    let other = servers.another_bus().await;
    let mut here = Box::pin(servers.bus.wakeups().await.unwrap());
    let mut there = Box::pin(other.wakeups().await.unwrap());
    eventually(seconds(20), async || {
        servers.bus.wake(&ready()).await.unwrap();
        timeout(std::time::Duration::from_millis(100), there.next()).await.is_ok()
    })
    .await;
    for wakeup in one_of_each() {
        servers.bus.wake(&wakeup).await.unwrap();
        assert_eq!(next(&mut here).await, wakeup);
        assert_eq!(next(&mut there).await, wakeup);
    }
    servers.finish().await;
}

#[tokio::test]
async fn listeners_go_on_listening_after_the_server_was_killed() {
    let servers = TestServers::start().await;
    let mut wakeups = Box::pin(servers.bus.wakeups().await.unwrap());
    servers.nats.kill().await;
    servers.nats.restart().await;
    let other = servers.another_bus().await;
    let again = Wakeup::LogAppended { position: 1, aggregates: Vec::new() };
    let heard = eventually_some(seconds(10), async || {
        other.wake(&again).await.unwrap();
        timeout(std::time::Duration::from_millis(100), wakeups.next()).await.ok().flatten()
    });
    assert_eq!(heard.await, again);
    servers.finish().await;
}
