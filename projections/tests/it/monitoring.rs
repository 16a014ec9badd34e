use std::path::Path;

use signalbox_domain::{
    kernel::{UserId, WidgetId},
    monitoring::{
        Channel, ChannelCommand, Dashboard, DashboardCommand, Experiment, ExperimentCommand, LogEntry,
        LogEntryCommand, LogStatus, LogType, NewDashboard, NewExperiment, NewLogEntry, WidgetChanges,
    },
};
use signalbox_projections::{
    Listed, Page,
    monitoring::{
        dashboards::{self, DashboardFilter, DashboardRow, WidgetRow},
        experiments::{self, ExperimentFilter, ExperimentRow},
        log_entries::{self, LogEntryFilter, LogEntryRow},
        queries::{HeldState, channels_deleted_since},
    },
    progress,
};
use uuid::Uuid;

use crate::{
    history::gauge,
    queries::declared_in,
    world::{OWNER, World, at},
};

const PAGE: Page = Page { limit: 10, offset: 0 };

async fn dashboard(world: &World, is_global: bool) -> Uuid {
    let id = world.clock.new_id();
    let new = NewDashboard { owner: OWNER, name: "Hall".to_owned(), is_global };
    world.writer.run::<Dashboard>(id, DashboardCommand::Create(new)).await;
    id
}

async fn add(world: &World, dashboard: Uuid, channel: Uuid) -> Uuid {
    let widget = WidgetId(world.clock.new_id());
    let add = DashboardCommand::AddWidget { widget, spec: gauge(Some(channel)) };
    world.writer.run::<Dashboard>(dashboard, add).await;
    widget.0
}

async fn widgets(world: &World, dashboard: Uuid) -> Vec<WidgetRow> {
    dashboards::widgets(world.pool(), &[dashboard]).await.unwrap()
}

#[tokio::test]
async fn a_widget_outlives_its_channel_and_is_unlinked() {
    let world = World::start().await;
    let (gone, kept) = (world.writer.channel(1, "gone").await, world.writer.channel(2, "kept").await);
    let dashboard = dashboard(&world, false).await;
    let before = add(&world, dashboard, gone).await;
    world.fold().await;
    // In the batch of the deletion.
    let (same, other) = (add(&world, dashboard, gone).await, add(&world, dashboard, kept).await);
    world.writer.run::<Channel>(gone, ChannelCommand::Delete { values: false }).await;
    world.fold().await;
    let links = async || -> Vec<_> {
        widgets(&world, dashboard)
            .await
            .into_iter()
            .map(|row| (row.id.0, row.channel_id.map(Uuid::from)))
            .collect()
    };
    assert_eq!(links().await, [(before, None), (same, None), (other, Some(kept))]);
    // The aggregate still has the old channel; another change does not restore it.
    let changes = WidgetChanges { title: Some("Cold".to_owned()), ..Default::default() };
    let change = DashboardCommand::ChangeWidget { widget: WidgetId(before), changes };
    world.writer.run::<Dashboard>(dashboard, change).await;
    world.fold().await;
    assert_eq!(links().await[0], (before, None));
    assert_eq!(dashboards::widget(world.pool(), before).await.unwrap().unwrap().channel_id, None);
    assert_eq!(dashboards::widget(world.pool(), Uuid::nil()).await.unwrap(), None);
    assert_eq!(widgets(&world, dashboard).await[0].title, "Cold");
    world.servers.finish().await;
}

#[tokio::test]
async fn the_widgets_of_a_deleted_dashboard_are_gone() {
    let world = World::start().await;
    let channel = world.writer.channel(1, "boiler").await;
    let (gone, kept) = (dashboard(&world, true).await, dashboard(&world, true).await);
    add(&world, gone, channel).await;
    add(&world, kept, channel).await;
    world.fold().await;
    add(&world, gone, channel).await;
    world.writer.run::<Dashboard>(gone, DashboardCommand::Delete).await;
    world.fold().await;
    assert_eq!(dashboards::dashboard(world.pool(), gone).await.unwrap(), None);
    assert!(dashboards::dashboard(world.pool(), kept).await.unwrap().is_some());
    assert_eq!((widgets(&world, gone).await.len(), widgets(&world, kept).await.len()), (0, 1));
    let filter = DashboardFilter::default();
    let (seen, total) = dashboards::dashboards(
        world.pool(),
        Uuid::nil().into(),
        &filter,
        DashboardRow::default_order(),
        PAGE,
    )
    .await
    .unwrap();
    assert_eq!((seen.len(), seen[0].id, total), (1, kept, 1));
    world.servers.finish().await;
}

#[tokio::test]
async fn only_the_owner_sees_what_is_not_global() {
    let world = World::start().await;
    let (own, global) = (dashboard(&world, false).await, dashboard(&world, true).await);
    world.fold().await;
    let seen = async |user: Uuid| -> Vec<Uuid> {
        let filter = DashboardFilter::default();
        let (rows, total) =
            dashboards::dashboards(world.pool(), user.into(), &filter, DashboardRow::default_order(), PAGE)
                .await
                .unwrap();
        assert_eq!(total, rows.len() as i64);
        rows.into_iter().map(|row| row.id).collect()
    };
    let mut all = vec![own, global];
    all.sort();
    all.reverse();
    assert_eq!(seen(OWNER.0).await, all);
    assert_eq!(seen(Uuid::nil()).await, [global]);
    world.servers.finish().await;
}

#[tokio::test]
async fn experiments_are_found_by_name_time_and_whether_they_run() {
    let world = World::start().await;
    let mut ids = Vec::new();
    for (seconds, name) in [(10, "cold start"), (20, "warm start")] {
        world.go_to(seconds);
        let id = world.clock.new_id();
        let start = NewExperiment { owner: OWNER, name: name.to_owned() };
        world.writer.run::<Experiment>(id, ExperimentCommand::Start(start)).await;
        if seconds == 10 {
            world.go_to(15);
            world.writer.run::<Experiment>(id, ExperimentCommand::Stop).await;
        }
        ids.push(id);
    }
    world.fold().await;
    let (pool, [cold, warm]) = (world.pool(), [ids[0], ids[1]]);
    let row = experiments::experiment(pool, cold).await.unwrap().unwrap();
    assert_eq!((row.started_at, row.stopped_at, row.version), (at(10), Some(at(15)), 2));
    assert_eq!(experiments::experiment(pool, Uuid::nil()).await.unwrap(), None);
    let any = ExperimentFilter::default;
    for (filter, expected) in [
        (any(), vec![warm, cold]),
        (ExperimentFilter { name: Some("COLD".to_owned()), ..any() }, vec![cold]),
        (ExperimentFilter { running: Some(true), ..any() }, vec![warm]),
        (ExperimentFilter { running: Some(false), ..any() }, vec![cold]),
        (ExperimentFilter { from: Some(at(20)), ..any() }, vec![warm]),
        (ExperimentFilter { to: Some(at(20)), ..any() }, vec![cold]),
    ] {
        let (rows, total) =
            experiments::experiments(pool, &filter, ExperimentRow::default_order(), PAGE).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(total, expected.len() as i64);
    }
    world.servers.finish().await;
}

#[tokio::test]
async fn log_entries_are_found_by_all_that_is_said_of_them() {
    let world = World::start().await;
    let mut ids = Vec::new();
    for (seconds, kind, source, user) in
        [(10, LogType::Info, "press", Some(OWNER)), (20, LogType::Error, "boiler", None)]
    {
        world.go_to(seconds);
        let id = world.clock.new_id();
        let new = NewLogEntry { kind, content: format!("of {source}"), source: source.to_owned(), user };
        world.writer.run::<LogEntry>(id, LogEntryCommand::Write(new)).await;
        ids.push(id);
    }
    let (pool, [press, boiler]) = (world.pool(), [ids[0], ids[1]]);
    let read = LogEntryCommand::Change { status: Some(LogStatus::Read), content: None };
    world.writer.run::<LogEntry>(press, read).await;
    world.fold().await;
    let row = log_entries::log_entry(pool, press).await.unwrap().unwrap();
    assert_eq!(
        (row.status.as_str(), row.created_at, row.updated_at, row.version),
        ("read", at(10), at(20), 2)
    );
    assert_eq!(log_entries::log_entry(pool, Uuid::nil()).await.unwrap(), None);
    let (any, UserId(owner)) = (LogEntryFilter::default, OWNER);
    for (filter, expected) in [
        (any(), vec![boiler, press]),
        (LogEntryFilter { kind: Some("error"), ..any() }, vec![boiler]),
        (LogEntryFilter { status: Some("read"), ..any() }, vec![press]),
        (LogEntryFilter { source: Some("press".to_owned()), ..any() }, vec![press]),
        (LogEntryFilter { content: Some("OF B".to_owned()), ..any() }, vec![boiler]),
        (LogEntryFilter { user: Some(owner.into()), ..any() }, vec![press]),
        (LogEntryFilter { from: Some(at(20)), ..any() }, vec![boiler]),
        (LogEntryFilter { to: Some(at(20)), ..any() }, vec![press]),
    ] {
        let (rows, total) =
            log_entries::log_entries(pool, &filter, LogEntryRow::default_order(), PAGE).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(total, expected.len() as i64);
    }
    world.servers.finish().await;
}

#[tokio::test]
async fn deleted_channels_are_found_before_and_after_the_read_model_shows_it() {
    let world = World::start().await;
    let channel = async |number, name| world.writer.channel(number, name).await;
    let (a, b, c) = (channel(1, "a").await, channel(2, "b").await, channel(3, "c").await);
    world.fold().await;
    let pool = world.pool();
    let held = async || {
        let progress = progress(pool, "monitoring").await.unwrap();
        HeldState { position: progress.position, revision: progress.revision }
    };
    let deleted = async |held| {
        let mut deleted: Vec<_> = channels_deleted_since(pool, held).await.unwrap().into_iter().collect();
        deleted.sort();
        deleted
    };
    let first = held().await;
    assert!(deleted(first).await.is_empty());
    world.writer.run::<Channel>(b, ChannelCommand::Delete { values: false }).await;
    assert_eq!(deleted(first).await, [b], "the read model does not show it");
    world.fold().await;
    assert_eq!(deleted(first).await, [b]);
    let second = held().await;
    assert!(deleted(second).await.is_empty(), "who holds this state sees it");
    world.writer.run::<Channel>(a, ChannelCommand::Delete { values: false }).await;
    let mut both = vec![a, b];
    both.sort();
    assert_eq!(deleted(first.or_older(second)).await, both);
    // Rows have changed without new events, or an event waits: then the position says nothing.
    let of_another = HeldState { revision: second.revision + 1, ..second };
    assert_eq!(deleted(of_another).await, both);
    let wait =
        "INSERT INTO read.poisonous_events (projection, position, error) VALUES ('monitoring', 1, 'no')";
    sqlx::query(wait).execute(pool).await.unwrap();
    assert_eq!(deleted(second).await, both);
    sqlx::query("DELETE FROM read.poisonous_events").execute(pool).await.unwrap();
    // Far behind.
    assert_eq!(deleted(HeldState { position: -10_000, ..second }).await, both);
    assert!(!deleted(first).await.contains(&c));
    world.fold().await;
    world.servers.finish().await;
}

#[test]
fn no_query_is_left_out_here() {
    let (here, folder) = (include_str!("monitoring.rs"), Path::new(env!("CARGO_MANIFEST_DIR")));
    for module in ["dashboards", "experiments", "log_entries"] {
        let declared = declared_in(&folder.join(format!("src/monitoring/{module}.rs")));
        assert!(!declared.is_empty());
        let left_out: Vec<_> =
            declared.into_iter().filter(|name| !here.contains(&format!("{module}::{name}("))).collect();
        assert!(left_out.is_empty(), "run these queries of {module} too: {left_out:?}");
    }
}
