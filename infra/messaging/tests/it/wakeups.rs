use futures::{Stream, StreamExt};
use signalbox_messaging::Wakeup;
use signalbox_test_support::{TestServers, eventually_some, seconds};
use tokio::time::timeout;
use uuid::Uuid;

fn one_of_each() -> Vec<Wakeup> {
    let id = Uuid::from_u128(7);
    vec![
        Wakeup::LogAppended { position: 7 },
        Wakeup::ReadAdvanced { projection: "transfer".to_owned(), position: 7 },
        Wakeup::AgentSession { agent: id, session: id },
        Wakeup::TestEcho { request_id: "seven".to_owned() },
        Wakeup::TransferStopped { transfer: id },
    ]
}

async fn next(wakeups: &mut (impl Stream<Item = Wakeup> + Unpin)) -> Wakeup {
    timeout(seconds(5), wakeups.next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn every_wakeup_reaches_every_process_in_order() {
    let servers = TestServers::start().await;
    let other = servers.another_bus().await;
    let mut here = Box::pin(servers.bus.wakeups().await.unwrap());
    let mut there = Box::pin(other.wakeups().await.unwrap());
    servers.bus.flush().await;
    other.flush().await;
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
    let again = Wakeup::LogAppended { position: 1 };
    let heard = eventually_some(seconds(10), async || {
        other.wake(&again).await.unwrap();
        timeout(std::time::Duration::from_millis(100), wakeups.next()).await.ok().flatten()
    });
    assert_eq!(heard.await, again);
    servers.finish().await;
}
