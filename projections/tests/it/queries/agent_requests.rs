//! Queries of requests that agents have taken charge of.

use chrono::DateTime;
use signalbox_domain::transfer::{Arrival, Phase, Transfer, TransferCommand};
use signalbox_projections::transfer::queries::agent_requests::{self, LegKey, Request};

use super::{STRANGER, connect, two_agents};
use crate::world::{OWNER, World, file, new_transfer, spec};

#[tokio::test]
async fn taken_requests_are_held_back_for_their_session_until_they_end() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    connect(&world, press, STRANGER).await;
    world.fold().await;
    let pool = world.pool();
    let upload = |attempt| Request { transfer: 7, leg: "upload", attempt };
    let download = Request { leg: "download", ..upload(1) };
    agent_requests::record_taken(pool, press.id, &[upload(1), download]).await.unwrap();
    agent_requests::record_taken(pool, press.id, &[upload(2)]).await.unwrap();
    let word = str::to_owned;
    let sorted = |mut held: Vec<LegKey>| {
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

#[tokio::test]
async fn a_request_is_outdated_once_its_transfer_is_past_it() {
    let world = World::start().await;
    let [press, store] = two_agents(&world).await;
    let id = world.writer.transfer(new_transfer(1, None, &spec("Nightly", press, store))).await;
    let run = async |command| world.writer.run::<Transfer>(id, command).await;
    let outdated = async || {
        world.fold().await;
        let requests = [("upload", 1), ("download", 1), ("upload", 2), ("download", 2)];
        let asked = requests.map(|(leg, attempt)| Request { transfer: 1, leg, attempt });
        let found = agent_requests::outdated(world.pool(), &asked).await.unwrap();
        requests.map(|(leg, attempt)| found.contains(&(1, leg.to_owned(), attempt)))
    };
    assert_eq!(outdated().await, [false; 4], "the dispatch may not be folded yet");
    run(TransferCommand::Dispatch).await;
    assert_eq!(outdated().await, [false; 4]);
    let phase = Phase::Dispatched;
    run(TransferCommand::Stall { attempt: 1, phase, reason: "no".to_owned() }).await;
    assert_eq!(outdated().await, [false; 4], "an attempt that has ended may still be reported");
    run(TransferCommand::Dispatch).await;
    assert_eq!(outdated().await, [true, true, false, false]);
    run(TransferCommand::Stage { files: vec![file("report.csv", 7)] }).await;
    run(TransferCommand::ReportComplete { agent: press.id, arrival: Arrival::default() }).await;
    assert_eq!(outdated().await, [true, true, true, false]);
    run(TransferCommand::Cancel).await;
    assert_eq!(outdated().await, [true; 4]);
    world.servers.finish().await;
}
