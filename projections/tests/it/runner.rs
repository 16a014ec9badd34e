use futures::StreamExt;
use signalbox_domain::identity::Role;
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    Leases, Projection, Runner, StepError, checkpoint,
    identity::{IdentityProjection, queries},
    transfer::TransferProjection,
};
use signalbox_test_support::{eventually, eventually_some, seconds};
use sqlx::Executor;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::world::{World, catch_up};

async fn stored<P: Projection>(world: &World) -> i64 {
    checkpoint(world.pool(), P::NAME).await.unwrap()
}

#[tokio::test]
async fn a_step_applies_what_is_new_and_stores_how_far_it_came() {
    let world = World::start().await;
    let mut runner = world.runner::<IdentityProjection>().await;
    assert_eq!(runner.step().await.unwrap(), 0);
    world.writer.user(1, "ada", Role::Viewer).await;
    world.writer.user(2, "bob", Role::Viewer).await;
    assert_eq!(runner.step().await.unwrap(), 2);
    assert_eq!(stored::<IdentityProjection>(&world).await, 2);
    assert_eq!(world.users().await, 2);
    assert_eq!(runner.step().await.unwrap(), 0);
    world.servers.finish().await;
}

#[tokio::test]
async fn events_of_other_contexts_are_passed_over_and_the_checkpoint_still_moves() {
    let world = World::start().await;
    world.writer.agent(1, "press").await;
    world.writer.agent(2, "store").await;
    let mut runner = world.runner::<IdentityProjection>().await;
    assert_eq!(runner.step().await.unwrap(), 2);
    assert_eq!(runner.step().await.unwrap(), 0);
    assert_eq!(stored::<IdentityProjection>(&world).await, 2);
    world.writer.user(1, "ada", Role::Viewer).await;
    catch_up(&mut runner).await;
    assert_eq!(stored::<IdentityProjection>(&world).await, 3);
    world.servers.finish().await;
}

/// A log in which something happens all the time, but nothing that concerns it: its checkpoint would stand, which is a fault.
#[tokio::test]
async fn a_checkpoint_moves_while_the_log_never_rests() {
    let world = World::start().await;
    let mut runner = world.runner::<IdentityProjection>().await;
    let mut number = 0;
    eventually(seconds(10), async || {
        number += 1;
        world.writer.agent(number, &format!("agent {number}")).await;
        // It never finds the log at its end, where the checkpoint is stored as well.
        assert_eq!(runner.step().await.unwrap(), 1);
        stored::<IdentityProjection>(&world).await > 0
    })
    .await;
    world.servers.finish().await;
}

#[tokio::test]
async fn a_runner_continues_where_the_last_one_stopped() {
    let world = World::start().await;
    let id = world.writer.user(1, "ada", Role::Viewer).await;
    world.fold().await;
    world.writer.user(2, "bob", Role::Viewer).await;
    let mut next = world.runner::<IdentityProjection>().await;
    assert_eq!(next.step().await.unwrap(), 1);
    assert_eq!(queries::user(world.pool(), id.into()).await.unwrap().unwrap().version, 1);
    world.fold().await;
    world.servers.finish().await;
}

#[tokio::test]
async fn a_runner_that_is_overtaken_changes_nothing_and_nothing_is_lost() {
    let world = World::start().await;
    world.writer.user(1, "ada", Role::Viewer).await;
    let (mut slow, mut fast) =
        (world.runner::<IdentityProjection>().await, world.runner::<IdentityProjection>().await);
    catch_up(&mut fast).await;
    world.writer.user(2, "bob", Role::Viewer).await;
    assert!(matches!(slow.step().await, Err(StepError::Overtaken("identity"))));
    assert_eq!(stored::<IdentityProjection>(&world).await, 1);
    assert_eq!(world.users().await, 1);
    let mut again = world.runner::<IdentityProjection>().await;
    catch_up(&mut again).await;
    assert!(matches!(fast.step().await, Err(StepError::Overtaken("identity"))));
    assert_eq!(world.users().await, 2);
    world.servers.finish().await;
}

#[tokio::test]
async fn two_runners_at_the_same_moment_apply_every_event_once() {
    let world = World::start().await;
    for number in 0..20 {
        world.writer.user(number, &format!("user-{number}"), Role::Viewer).await;
        let (mut one, mut other) =
            (world.runner::<IdentityProjection>().await, world.runner::<IdentityProjection>().await);
        let results = tokio::join!(one.step(), other.step());
        assert!(results.0.is_ok() || results.1.is_ok(), "{results:?}");
    }
    assert_eq!(world.users().await, 20);
    world.servers.finish().await;
}

#[tokio::test]
async fn a_log_with_a_gap_is_not_read_over() {
    let world = World::start().await;
    world.writer.user(1, "ada", Role::Viewer).await;
    world
        .pool()
        .execute("INSERT INTO events SELECT 3, aggregate_type, aggregate_id, 2, 'user_renamed', '1', payload, metadata, recorded_at FROM events")
        .await
        .unwrap();
    let mut runner = world.runner::<IdentityProjection>().await;
    assert!(matches!(runner.step().await, Err(StepError::Gap { after: 1, found: 3 })));
}

#[tokio::test]
async fn readers_are_notified_of_a_projections_position() {
    let world = World::start().await;
    let mut wakeups = Box::pin(world.servers.bus.wakeups().await.unwrap());
    world.servers.bus.flush().await;
    world.writer.agent(1, "press").await;
    catch_up(&mut world.runner::<TransferProjection>().await).await;
    let wakeup = timeout(seconds(5), wakeups.next()).await.unwrap().unwrap();
    assert_eq!(
        wakeup,
        Wakeup::ReadAdvanced {
            projection: "transfer".to_owned(),
            position: 1,
            aggregates: vec!["agent".to_owned()],
            has_set_aside: false,
        }
    );
    world.servers.finish().await;
}

fn spawn_run(world: &World, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let (pool, bus) = (world.servers.pool.clone(), world.servers.bus.clone());
    let leases = Leases::new(&pool);
    tokio::spawn(Runner::<IdentityProjection>::run(pool, leases, bus, stop.clone()))
}

#[tokio::test]
async fn the_running_one_is_replaced_by_another_when_it_stops() {
    let world = World::start().await;
    let (first_stop, second_stop) = (CancellationToken::new(), CancellationToken::new());
    let (first, second) = (spawn_run(&world, &first_stop), spawn_run(&world, &second_stop));
    world.writer.user(1, "ada", Role::Viewer).await;
    eventually(seconds(10), async || stored::<IdentityProjection>(&world).await == 1).await;
    first_stop.cancel();
    first.await.unwrap();
    world.writer.user(2, "bob", Role::Viewer).await;
    eventually(seconds(10), async || stored::<IdentityProjection>(&world).await == 2).await;
    second_stop.cancel();
    second.await.unwrap();
    world.servers.finish().await;
}

#[tokio::test]
async fn a_runner_survives_the_loss_of_its_connections() {
    let world = World::start().await;
    let stop = CancellationToken::new();
    let running = spawn_run(&world, &stop);
    world.writer.user(1, "ada", Role::Viewer).await;
    eventually(seconds(10), async || stored::<IdentityProjection>(&world).await == 1).await;
    world
        .pool()
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        .await
        .unwrap();
    // The command itself may meet a broken connection; its sender would retry.
    let user = eventually_some(seconds(10), async || {
        let writer = world.writer.clone();
        tokio::spawn(async move { writer.user(2, "bob", Role::Viewer).await }).await.ok()
    });
    let user = user.await;
    eventually(seconds(10), async || {
        queries::user(world.pool(), user.into()).await.is_ok_and(|user| user.is_some())
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    world.servers.finish().await;
}
