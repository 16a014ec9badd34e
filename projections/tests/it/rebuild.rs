use signalbox_domain::{
    identity::Role,
    transfer::{Agent, AgentCommand, AgentSystem},
};
use signalbox_projections::{
    BatchSizes, Leases, Listed, Page, Projection, Runner,
    automation::AutomationProjection,
    compare,
    extraction::ExtractionProjection,
    fleet::FleetProjection,
    identity::{
        IdentityProjection, UserRow,
        queries::{self, UserFilter},
    },
    monitoring::MonitoringProjection,
    rebuild, rebuild_in,
    transfer::TransferProjection,
};
use signalbox_test_support::{eventually, seconds};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;

use crate::{
    history, history_extraction, history_firmware, history_plugins, history_webhooks,
    world::{World, dump},
};

async fn live<P: Projection>(world: &World) -> Vec<(String, serde_json::Value)> {
    dump::<P>(&mut world.pool().acquire().await.unwrap(), "read").await
}

async fn rebuild_unchanged<P: Projection>(world: &World) {
    let before = live::<P>(world).await;
    let report = rebuild::<P>(world.pool()).await.unwrap();
    assert_eq!(report.differences, 0, "{}: {report:?}", P::NAME);
    assert_eq!(report.rows, before.len() as i64);
    assert_eq!(live::<P>(world).await, before);
}

#[tokio::test]
async fn a_comparison_finds_what_differs_and_leaves_it_as_it_is() {
    let world = World::start().await;
    history::users(&world.writer, 1).await;
    world.fold().await;
    assert_eq!(compare::<IdentityProjection>(world.pool()).await.unwrap().differences, 0);
    let wrong =
        "UPDATE read.users SET username = 'mallory' WHERE id = (SELECT min(id::text)::uuid FROM read.users)";
    world.pool().execute(wrong).await.unwrap();
    let before = live::<IdentityProjection>(&world).await;
    assert_eq!(compare::<IdentityProjection>(world.pool()).await.unwrap().differences, 1);
    assert_eq!(live::<IdentityProjection>(&world).await, before);
    let beside = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'read\\_rebuild%'";
    assert_eq!(sqlx::query_scalar::<_, i64>(beside).fetch_one(world.pool()).await.unwrap(), 0);
    assert_eq!(rebuild::<IdentityProjection>(world.pool()).await.unwrap().differences, 1);
    assert_eq!(compare::<IdentityProjection>(world.pool()).await.unwrap().differences, 0);
}

#[tokio::test]
async fn a_rebuild_in_one_step_equals_what_was_folded_event_by_event() {
    let world = World::start().await;
    let writer = world.writer.clone();
    let writing = tokio::spawn(async move {
        for number in 1..=6 {
            history::users(&writer, number).await;
            history::transfers(&writer, number).await;
            history::monitoring(&writer, number).await;
            history::rules(&writer, number).await;
            history_webhooks::webhooks(&writer, number).await;
            history_webhooks::contacts(&writer, number).await;
            history_extraction::jobs(&writer, number).await;
            history_plugins::plugins(&writer, number).await;
            history_firmware::firmware(&writer, number).await;
        }
    });
    while !writing.is_finished() {
        world.fold().await;
    }
    writing.await.unwrap();
    world.fold().await;
    rebuild_unchanged::<AutomationProjection>(&world).await;
    rebuild_unchanged::<ExtractionProjection>(&world).await;
    rebuild_unchanged::<FleetProjection>(&world).await;
    rebuild_unchanged::<IdentityProjection>(&world).await;
    rebuild_unchanged::<MonitoringProjection>(&world).await;
    rebuild_unchanged::<TransferProjection>(&world).await;
    world.servers.finish().await;
}

/// Rows that left memory are read again when a later event changes them.
#[tokio::test]
async fn a_rebuild_in_small_batches_equals_the_live_tables() {
    let world = World::start().await;
    for number in 1..=6 {
        history::users(&world.writer, number).await;
        history::transfers(&world.writer, number).await;
        history::monitoring(&world.writer, number).await;
        history::rules(&world.writer, number).await;
        history_webhooks::webhooks(&world.writer, number).await;
        history_webhooks::contacts(&world.writer, number).await;
        history_extraction::jobs(&world.writer, number).await;
        history_plugins::plugins(&world.writer, number).await;
        history_firmware::firmware(&world.writer, number).await;
    }
    world.fold().await;
    for (events, rows) in [(1, 0), (1, 1), (3, 2), (20, 1), (50, 5)] {
        let sizes = BatchSizes { events, rows };
        let identity = rebuild_in::<IdentityProjection>(world.pool(), sizes).await.unwrap();
        let transfer = rebuild_in::<TransferProjection>(world.pool(), sizes).await.unwrap();
        let monitoring = rebuild_in::<MonitoringProjection>(world.pool(), sizes).await.unwrap();
        let automation = rebuild_in::<AutomationProjection>(world.pool(), sizes).await.unwrap();
        let fleet = rebuild_in::<FleetProjection>(world.pool(), sizes).await.unwrap();
        let extraction = rebuild_in::<ExtractionProjection>(world.pool(), sizes).await.unwrap();
        let reports = [identity, transfer, monitoring, automation, fleet, extraction];
        assert_eq!(reports.map(|report| report.differences), [0; 6], "{sizes:?}");
    }
    world.servers.finish().await;
}

/// Many rows are written in another way than few.
#[tokio::test]
async fn many_rows_keep_every_letter() {
    let world = World::start().await;
    let odd = ["", "NULL", "\\N", "a\\b", "\"quoted\"", "{a,b}", "tab\tand\nline", "\\.", "Ünï ☃", " "];
    for number in 0..100 {
        let agent = world.writer.agent(number, "press").await;
        let words = odd
            .iter()
            .map(|word| format!("{word}{}", number % 2))
            .chain([odd[number as usize % 10].to_owned()]);
        let system = AgentSystem {
            hostname: Some(odd[number as usize % 10].to_owned()),
            capabilities: words.collect(),
            ..Default::default()
        };
        world.writer.run::<Agent>(agent.id.0, AgentCommand::Describe(system)).await;
        world.fold().await;
    }
    rebuild_unchanged::<TransferProjection>(&world).await;
    world.servers.finish().await;
}

#[tokio::test]
async fn what_was_damaged_is_counted_and_repaired() {
    let world = World::start().await;
    for (number, name) in ["ada", "bob", "eve"].iter().enumerate() {
        world.writer.user(number as i64, name, Role::Viewer).await;
    }
    world.fold().await;
    let before = live::<IdentityProjection>(&world).await;
    world.pool().execute("UPDATE read.users SET role = 'admin' WHERE username = 'bob'").await.unwrap();
    world.pool().execute("DELETE FROM read.users WHERE username = 'eve'").await.unwrap();
    let report = rebuild::<IdentityProjection>(world.pool()).await.unwrap();
    assert_eq!((report.events, report.rows, report.differences), (3, 3, 2));
    assert_eq!(live::<IdentityProjection>(&world).await, before);
    world.servers.finish().await;
}

#[tokio::test]
async fn a_projection_that_has_never_run_can_be_rebuilt() {
    let world = World::start().await;
    world.writer.user(1, "ada", Role::Viewer).await;
    assert_eq!(rebuild::<IdentityProjection>(world.pool()).await.unwrap().rows, 0);
    world.fold().await;
    assert_eq!(world.users().await, 1);
    world.servers.finish().await;
}

/// Names and shapes of everything in the schema of the read models.
async fn schema(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'read'
         UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
           FROM pg_constraint WHERE connamespace = 'read'::regnamespace
         UNION ALL SELECT format('%s %s %s %s %s', table_name, ordinal_position, column_name, data_type, is_nullable)
           FROM information_schema.columns WHERE table_schema = 'read'
         ORDER BY 1",
    )
    .fetch_all(world.pool())
    .await
    .unwrap()
}

#[tokio::test]
async fn rebuilt_tables_have_the_columns_keys_and_index_names_of_the_migrations() {
    let world = World::start().await;
    world.fold().await;
    let before = schema(&world).await;
    rebuild::<ExtractionProjection>(world.pool()).await.unwrap();
    rebuild::<IdentityProjection>(world.pool()).await.unwrap();
    rebuild::<MonitoringProjection>(world.pool()).await.unwrap();
    rebuild::<TransferProjection>(world.pool()).await.unwrap();
    assert_eq!(schema(&world).await, before);
    world.servers.finish().await;
}

#[tokio::test]
async fn two_rebuilds_at_once_come_one_after_the_other() {
    let world = World::start().await;
    history::users(&world.writer, 1).await;
    world.fold().await;
    let (one, other) = tokio::join!(
        rebuild::<IdentityProjection>(world.pool()),
        rebuild::<IdentityProjection>(world.pool())
    );
    assert_eq!((one.unwrap().differences, other.unwrap().differences), (0, 0));
    world.servers.finish().await;
}

/// Asks, as every request with a session does, until `stop`; a single failure is a failed request.
async fn read_on(world_pool: sqlx::PgPool, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let now = chrono::DateTime::UNIX_EPOCH;
        queries::live_session(&world_pool, uuid::Uuid::nil().into(), now).await.unwrap();
        queries::users(
            &world_pool,
            &UserFilter::default(),
            UserRow::default_order(),
            Page { limit: 10, offset: 0 },
        )
        .await
        .unwrap();
    }
}

/// Guards against two deadlocks: the runner held the tables and waited for the checkpoint, the swap the other way
/// round; and a reader of two tables met the swap, which locked them in another order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rebuild_equals_the_live_tables_while_events_keep_coming() {
    let world = World::start().await;
    let stop = CancellationToken::new();
    let (pool, bus) = (world.servers.pool.clone(), world.servers.bus.clone());
    let leases = Leases::new(&pool);
    let mut tasks = vec![
        tokio::spawn(Runner::<IdentityProjection>::run(
            pool.clone(),
            leases.clone(),
            bus.clone(),
            stop.clone(),
        )),
        tokio::spawn(Runner::<TransferProjection>::run(pool.clone(), leases, bus, stop.clone())),
        tokio::spawn(read_on(pool.clone(), stop.clone())),
        tokio::spawn(read_on(pool, stop.clone())),
    ];
    let (writer, until) = (world.writer.clone(), stop.clone());
    tasks.push(tokio::spawn(async move {
        for number in 1.. {
            if until.is_cancelled() {
                break;
            }
            history::users(&writer, number).await;
            history::transfers(&writer, number).await;
        }
    }));
    eventually(seconds(20), async || world.users().await > 5).await;
    for _ in 0..5 {
        let identity = rebuild::<IdentityProjection>(world.pool()).await.unwrap();
        let transfer = rebuild::<TransferProjection>(world.pool()).await.unwrap();
        assert_eq!((identity.differences, transfer.differences), (0, 0));
    }
    stop.cancel();
    for task in tasks {
        task.await.unwrap();
    }
    world.fold().await;
    rebuild_unchanged::<IdentityProjection>(&world).await;
    rebuild_unchanged::<TransferProjection>(&world).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let deadlocks: i64 = sqlx::query_scalar(deadlocks).fetch_one(world.pool()).await.unwrap();
    assert_eq!(deadlocks, 0);
    world.servers.finish().await;
}
