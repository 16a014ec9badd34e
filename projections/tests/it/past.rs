//! A past row is the row that there was.

use signalbox_domain::transfer::{
    Agent, AgentCommand, AgentSystem, Job, JobCommand, JobSpec, NewTransfer, SkipReason, TransportMode,
};
use signalbox_event_store::{Moment, head_position};
use signalbox_projections::{
    register::{At, Past, past},
    transfer::{AgentRow, JobRow, past_job, queries},
};
use uuid::Uuid;

use crate::world::{World, at, new_transfer, spec};

async fn now(world: &World) -> At {
    world.fold().await;
    let position = head_position(world.pool()).await.unwrap();
    At::find(world.pool(), Moment::Position(position), world.writer.clock.now()).await.unwrap()
}

#[tokio::test]
async fn a_job_was_due_and_had_run_as_its_transfers_say() {
    let world = World::start().await;
    let spec = spec("nightly", world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    let job = world.writer.job(5, spec.clone()).await;
    let mut seen: Vec<(At, Option<JobRow>)> = Vec::new();
    let mut note = async || {
        let at = now(&world).await;
        seen.push((at, queries::job_by_id(world.pool(), job.id).await.unwrap()));
    };
    note().await;
    world.go_to(600);
    let fired = NewTransfer { scheduled_for: Some(at(600)), ..new_transfer(1, Some(job), &spec) };
    world.writer.transfer(fired).await;
    note().await;
    // More than are looked at together, at the same instant.
    for number in 2..=130 {
        world.writer.transfer(new_transfer(number, Some(job), &spec)).await;
    }
    note().await;
    let skip = |second| JobCommand::SkipFiring { scheduled_for: at(second), reason: SkipReason::Overlap };
    for second in [1200, 1800] {
        world.go_to(second);
        world.writer.run::<Job>(job.id.0, skip(second)).await;
        note().await;
    }
    let by_hand = JobSpec { schedule: None, ..spec.clone() };
    world.writer.run::<Job>(job.id.0, JobCommand::Update(by_hand)).await;
    note().await;
    world.writer.run::<Job>(job.id.0, JobCommand::Delete).await;
    note().await;
    assert_eq!(seen[2].1.as_ref().unwrap().next_run, Some(at(1200)));
    for (at, row) in seen {
        let then = past_job(world.pool(), job.id, at).await.unwrap();
        assert_eq!(then, row.map_or(Past::Deleted, Past::Present), "{at:?}");
    }
    let never = past_job(world.pool(), Uuid::nil().into(), now(&world).await).await.unwrap();
    assert_eq!(never, Past::Unknown);
    world.servers.finish().await;
}

#[tokio::test]
async fn an_agent_had_come_and_gone() {
    let world = World::start().await;
    let agent = world.writer.agent(1, "press").await.id.0;
    let session = Uuid::from_u128;
    let connect =
        |number| AgentCommand::Connect { session: session(number), transport: TransportMode::Polling };
    let leave = |number| AgentCommand::Disconnect { session: session(number), reason: "gone".to_owned() };
    let says = |hostname: &str| AgentSystem { hostname: Some(hostname.to_owned()), ..AgentSystem::default() };
    let mut seen = Vec::new();
    for command in [
        connect(1),
        AgentCommand::Describe(says("one")),
        leave(1),
        connect(2),
        connect(3),
        AgentCommand::Describe(says("two")),
        leave(3),
    ] {
        let before = now(&world).await;
        seen.push((before, queries::agent_by_id(world.pool(), agent.into()).await.unwrap().unwrap()));
        world.go_to(10 * seen.len() as i64);
        world.writer.run::<Agent>(agent, command).await;
    }
    let last = now(&world).await;
    seen.push((last, queries::agent_by_id(world.pool(), agent.into()).await.unwrap().unwrap()));
    for (at, row) in seen {
        assert_eq!(past::<AgentRow>(world.pool(), agent, at).await.unwrap(), Past::Present(row), "{at:?}");
    }
    world.servers.finish().await;
}
