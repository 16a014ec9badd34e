use async_nats::jetstream;
use signalbox_messaging::{BusError, EventStream, OutgoingEvent};
use signalbox_test_support::{TestServers, eventually, seconds};

async fn stored(servers: &TestServers) -> u64 {
    let jetstream = jetstream::new(servers.nats.client().await);
    jetstream.get_stream("EVENTS").await.unwrap().get_info().await.unwrap().state.messages
}

async fn publish_all(stream: &EventStream, positions: &[i64]) -> Result<(), BusError> {
    let event = |position: &i64| OutgoingEvent {
        subject: "event.identity.user.user_created".to_owned(),
        position: *position,
        payload: "{}".into(),
        traceparent: None,
    };
    stream.publish(&positions.iter().map(event).collect::<Vec<_>>()).await
}

async fn publish(stream: &EventStream, position: i64) -> Result<(), BusError> {
    publish_all(stream, &[position]).await
}

#[tokio::test]
async fn a_batch_that_was_stored_in_part_is_completed() {
    let servers = TestServers::start().await;
    let (stream, other) =
        (EventStream::open(&servers.bus).await.unwrap(), EventStream::open(&servers.bus).await.unwrap());
    publish_all(&stream, &[1, 2, 3]).await.unwrap();
    publish_all(&stream, &[4, 5]).await.unwrap();
    publish_all(&stream, &[5, 6, 7]).await.unwrap();
    publish_all(&other, &[6, 7, 8]).await.unwrap();
    publish_all(&stream, &[8]).await.unwrap();
    publish_all(&stream, &[9, 10]).await.unwrap();
    publish_all(&stream, &[]).await.unwrap();
    assert_eq!(stored(&servers).await, 10);
    servers.finish().await;
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
