use async_nats::jetstream;
use signalbox_messaging::{BusError, EventStream};
use signalbox_test_support::{TestServers, eventually, seconds};

async fn stored(servers: &TestServers) -> u64 {
    let jetstream = jetstream::new(servers.nats.client().await);
    jetstream.get_stream("EVENTS").await.unwrap().get_info().await.unwrap().state.messages
}

async fn publish(stream: &EventStream, position: i64) -> Result<(), BusError> {
    stream.publish("event.identity.user.user_created".to_owned(), position, "{}".into()).await
}

#[tokio::test]
async fn an_event_that_is_published_twice_is_stored_once() {
    let servers = TestServers::start().await;
    let stream = EventStream::open(&servers.bus).await.unwrap();
    for position in [1, 2, 2, 1, 3] {
        publish(&stream, position).await.unwrap();
    }
    assert_eq!(stored(&servers).await, 3);
    servers.finish().await;
}

#[tokio::test]
async fn opening_the_stream_again_keeps_what_is_in_it() {
    let servers = TestServers::start().await;
    publish(&EventStream::open(&servers.bus).await.unwrap(), 1).await.unwrap();
    EventStream::open(&servers.another_bus().await).await.unwrap();
    assert_eq!(stored(&servers).await, 1);
    servers.finish().await;
}

#[tokio::test]
async fn a_wiped_stream_refuses_until_it_is_made_again() {
    let servers = TestServers::start().await;
    let stream = EventStream::open(&servers.bus).await.unwrap();
    publish(&stream, 1).await.unwrap();
    servers.nats.wipe().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    let refused = publish(&stream, 2).await.unwrap_err();
    assert!(matches!(refused, BusError::Publish(_)), "{refused}");
    stream.ensure().await.unwrap();
    publish(&stream, 2).await.unwrap();
    assert_eq!(stored(&servers).await, 1);
    servers.finish().await;
}
