use futures::StreamExt;
use rand::Rng;
use reqwest::Method;
use serde_json::{Value, json};

use super::{LOG, make_events};
use crate::harness::{Client, EventStream, World, eventually, seconds};

/// A follower of the log.
struct Follower(EventStream);

impl Follower {
    async fn open(client: &Client, query: &str, last_event_id: Option<i64>) -> Self {
        Self(EventStream::open(client, &format!("{LOG}/stream{query}"), last_event_id).await)
    }

    /// The next event other than a heartbeat.
    async fn event(&mut self) -> Value {
        loop {
            let heard = self.0.next().await.expect("the stream has ended");
            if heard.name.is_none() {
                assert_eq!(heard.data["position"], heard.id);
                return heard.data;
            }
        }
    }
}

async fn positions(world: &World) -> Vec<i64> {
    sqlx::query_scalar("SELECT position FROM events ORDER BY position")
        .fetch_all(&world.servers.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_follower_that_is_killed_a_hundred_times_sees_every_event_once_and_in_order() {
    const EVENTS: usize = 400;
    let world = World::start().await;
    let writing = make_events(&world, EVENTS);
    let (mut seen, mut last) = (Vec::new(), 0);
    let following = async {
        for _ in 0..100 {
            let mut follower = Follower::open(&world.admin, "?after=0", Some(last)).await;
            // No more than there will be, or it would wait for ever.
            let most = EVENTS - seen.len();
            for _ in 0..rand::rng().random_range(0..8).min(most) {
                last = follower.event().await["position"].as_i64().unwrap();
                seen.push(last);
            }
        }
    };
    tokio::join!(writing, following);
    let all = positions(&world).await;
    let mut follower = Follower::open(&world.admin, "", Some(last)).await;
    while seen.len() < all.len() {
        seen.push(follower.event().await["position"].as_i64().unwrap());
    }
    assert_eq!(seen, all);
    world.finish().await;
}

#[tokio::test]
async fn followers_at_all_gateways_see_what_they_want_as_it_happens() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    make_events(&world, 2).await;
    let mut here = Follower::open(&world.admin, "?event_type=channel_updated", None).await;
    let mut there = Follower::open(&there, "", None).await;
    let mut whole = Follower::open(&world.admin, "?after=0&stream_type=channel", None).await;
    let made = world.admin.post("/api/v1/events", json!({"name": "new", "type": "sensor"})).await.expect(201);
    let path = format!("/api/v1/events/{}", made["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"unit": "V"})).await.expect(200);
    let updated = here.event().await;
    assert_eq!(
        (updated["type"].as_str(), &updated["stream_id"]),
        (Some("channel_updated"), &made["public_id"])
    );
    assert_eq!(there.event().await["type"], "channel_created");
    assert_eq!(there.event().await, updated);
    for _ in 0..3 {
        assert_eq!(whole.event().await["type"], "channel_created");
    }
    assert_eq!(whole.event().await, updated);
    world.finish().await;
}

#[tokio::test]
async fn a_follower_without_matches_learns_the_searched_position() {
    let world = World::start().await;
    let mut follower = Follower::open(&world.admin, "?event_type=rule_triggered", None).await;
    make_events(&world, 2).await;
    let last = positions(&world).await.pop().unwrap();
    let heard = follower.0.next().await.unwrap();
    assert_eq!((heard.name.as_deref(), &heard.data), (Some("heartbeat"), &json!({ "position": heard.id })));
    assert!(heard.id >= last, "{} of {last}", heard.id);
    world.finish().await;
}

#[tokio::test]
async fn a_follower_whose_credential_ends_is_sent_away() {
    let world = World::start().await;
    let token = world.admin.post("/api/v1/tokens", json!({"name": "follower"})).await.expect(201);
    let client = world.admin.with_token(token["token"].as_str().unwrap());
    let mut follower = Follower::open(&client, "", None).await;
    let path = format!("/api/v1/tokens/{}", token["public_id"].as_str().unwrap());
    world.admin.delete(&path).await.expect(200);
    follower.0.ended().await;
    // An admin who is one no longer.
    let second = world.user("second", "admin").await;
    let mut follower = Follower::open(&second, "", None).await;
    let id = second.get("/api/v1/auth/me").await.expect(200)["public_id"].clone();
    let user = format!("/api/v1/users/{}", id.as_str().unwrap());
    world.admin.put(&user, json!({"role": "operator"})).await.expect(200);
    follower.0.ended().await;
    world.finish().await;
}

#[tokio::test]
async fn followers_have_limited_places_which_become_free() {
    let world = World::start().await;
    let admin = world.at_one_gateway();
    let open = futures::stream::iter(0..64).then(|_| Follower::open(&admin, "", None));
    let followers: Vec<_> = open.collect().await;
    let path = format!("{LOG}/stream");
    let refused = admin.get(&path).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    drop(followers);
    eventually(seconds(20), async || admin.stream(&path).send().await.unwrap().status() == 200).await;
    for wrong in ["?after=x", "?stream_id=x"] {
        admin.get(&format!("{path}{wrong}")).await.error(422);
    }
    let request = admin.request(Method::GET, &path).header("last-event-id", "none");
    admin.send(request).await.error(422);
    world.finish().await;
}
