use signalbox_domain::{
    kernel::WidgetId,
    monitoring::{Channel, ChannelCommand, Dashboard, DashboardCommand, NewDashboard, WidgetChanges},
};
use signalbox_projections::{
    monitoring::dashboards::{self, DashboardFilter, WidgetRow},
    transfer::queries::Page,
};
use uuid::Uuid;

use crate::{
    history::gauge,
    world::{OWNER, World},
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
    world.writer.run::<Channel>(gone, ChannelCommand::Delete).await;
    world.fold().await;
    let links = async || -> Vec<_> {
        widgets(&world, dashboard).await.into_iter().map(|row| (row.id, row.channel_id)).collect()
    };
    assert_eq!(links().await, [(before, None), (same, None), (other, Some(kept))]);
    // The aggregate still knows the old channel; a change of something else does not bring it back.
    let changes = WidgetChanges { title: Some("Cold".to_owned()), ..Default::default() };
    let change = DashboardCommand::ChangeWidget { widget: WidgetId(before), changes };
    world.writer.run::<Dashboard>(dashboard, change).await;
    world.fold().await;
    assert_eq!(links().await[0], (before, None));
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
    assert_eq!((widgets(&world, gone).await.len(), widgets(&world, kept).await.len()), (0, 1));
    let filter = DashboardFilter::default();
    let (seen, total) = dashboards::dashboards(world.pool(), Uuid::nil(), &filter, PAGE).await.unwrap();
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
        let (rows, total) = dashboards::dashboards(world.pool(), user, &filter, PAGE).await.unwrap();
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
