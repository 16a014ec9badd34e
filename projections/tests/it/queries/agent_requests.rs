//! Queries of requests that agents have taken charge of.

use chrono::DateTime;
use signalbox_projections::transfer::queries::agent_requests::{self, HeldBack, TakenRequest};

use super::{STRANGER, connect, two_agents};
use crate::world::{OWNER, World};

#[tokio::test]
async fn taken_requests_are_held_back_for_their_session_until_they_end() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    connect(&world, press, STRANGER).await;
    world.fold().await;
    let pool = world.pool();
    let upload = |attempt| TakenRequest { transfer: 7, leg: "upload", attempt };
    let download = TakenRequest { leg: "download", ..upload(1) };
    agent_requests::record_taken(pool, press.id, &[upload(1), download]).await.unwrap();
    agent_requests::record_taken(pool, press.id, &[upload(2)]).await.unwrap();
    let word = str::to_owned;
    let sorted = |mut held: Vec<HeldBack>| {
        held.sort();
        held
    };
    let within = async |agent, seconds| {
        sorted(agent_requests::taken_within(pool, agent, &[7, 8], seconds).await.unwrap())
    };
    let open = async || sorted(agent_requests::not_ended(pool, press.id, &[7, 8]).await.unwrap());
    assert_eq!(within(press.id, 60.0).await, [(7, word("download"), 1), (7, word("upload"), 2)]);
    assert_eq!(within(press.id, 0.0).await, []);
    assert_eq!(within(store.id, 60.0).await, []);
    assert_eq!(open().await, [(7, word("download"), 0), (7, word("upload"), 0)]);
    agent_requests::record_end(pool, press.id, 7, Some("upload")).await.unwrap();
    assert_eq!(open().await, [(7, word("download"), 0)]);
    agent_requests::record_end(pool, press.id, 7, None).await.unwrap();
    assert_eq!(open().await, []);
    connect(&world, press, OWNER.0).await;
    world.fold().await;
    assert_eq!(within(press.id, 60.0).await, [], "they were of another session");
    agent_requests::purge(pool, DateTime::UNIX_EPOCH).await.unwrap();
    agent_requests::record_taken(pool, press.id, &[upload(3)]).await.unwrap();
    assert_eq!(within(press.id, 60.0).await, [(7, word("upload"), 3)]);
    world.servers.finish().await;
}
