//! Dashboards and their widgets as rows, and queries about them.

use signalbox_boxed::boxed;
use std::collections::HashSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::{
    kernel::{ChannelId, UserId, WidgetId},
    monitoring::{DashboardEvent, PlacedWidget, WidgetChanges, WidgetSpec, WidgetType},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    ApplyError, UnknownWord, Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_like, list},
    table::{ReadRow, Table},
};

/// A dashboard, without its widgets.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DashboardRow {
    /// Key.
    pub id: Uuid,
    pub owner_id: UserId,
    /// Display name.
    pub name: String,
    /// Whether all users see it.
    pub is_global: bool,
    /// Version of the aggregate, which changes with its widgets too.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for DashboardRow {
    const TABLE: &'static str = "dashboards";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// A widget.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct WidgetRow {
    /// Key.
    pub id: WidgetId,
    /// Where it is.
    pub dashboard_id: Uuid,
    /// Position of its adding in the log.
    pub position: i64,
    pub widget_type: Word<WidgetType>,
    /// Heading.
    pub title: String,
    /// The channel shown; `None` also after that was deleted.
    pub channel_id: Option<ChannelId>,
    /// Column.
    pub x: i32,
    /// Row.
    pub y: i32,
    /// Columns covered.
    pub w: i32,
    /// Rows covered.
    pub h: i32,
    /// Opaque settings of the client.
    pub config: Option<String>,
}

impl ReadRow for WidgetRow {
    const TABLE: &'static str = "widgets";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// Dashboards and widgets that a batch touches.
#[derive(Default)]
pub(super) struct Dashboards {
    dashboards: Table<DashboardRow>,
    widgets: Table<WidgetRow>,
    deleted_dashboards: HashSet<Uuid>,
    deleted_channels: HashSet<Uuid>,
}

/// The widgets that `event` changes, and that may have been there before.
pub(super) fn changed_widgets(event: &DashboardEvent) -> Vec<Uuid> {
    match event {
        DashboardEvent::WidgetUpdated { widget, .. } | DashboardEvent::WidgetRemoved { widget } => {
            vec![widget.0]
        }
        DashboardEvent::DashboardRestored { widgets, removed, .. } => {
            let back = widgets.iter().map(|placed| placed.widget.0);
            back.chain(removed.iter().map(|widget| widget.0)).collect()
        }
        _ => Vec::new(),
    }
}

impl Dashboards {
    pub(super) async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        dashboards: HashSet<Uuid>,
        widgets: HashSet<Uuid>,
    ) -> Result<(), ApplyError> {
        self.dashboards.load(connection, schema, dashboards).await?;
        self.widgets.load(connection, schema, widgets).await
    }

    pub(super) fn fold(&mut self, recorded: &RecordedEvent, event: DashboardEvent) {
        let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
        if let DashboardEvent::DashboardCreated(new) = event {
            return self.dashboards.put(DashboardRow {
                id,
                owner_id: new.owner,
                name: new.name,
                is_global: new.is_global,
                version: recorded.sequence,
                created_at: at,
                updated_at: at,
            });
        }
        if let Some(row) = self.dashboards.change(id) {
            row.version = recorded.sequence;
            row.updated_at = at;
        }
        match event {
            DashboardEvent::DashboardCreated(_) => {}
            DashboardEvent::DashboardUpdated { name, is_global } => {
                if let Some(row) = self.dashboards.change(id) {
                    row.name = name;
                    row.is_global = is_global;
                }
            }
            DashboardEvent::DashboardDeleted { .. } => {
                self.dashboards.remove(id);
                self.deleted_dashboards.insert(id);
            }
            DashboardEvent::WidgetAdded { widget, spec } => {
                let added_at = recorded.position;
                self.widgets.put(placed(id, PlacedWidget { widget, added_at, spec }));
            }
            DashboardEvent::WidgetUpdated { widget, changes } => {
                if let Some(row) = self.widgets.change(widget.0) {
                    change(row, changes);
                }
            }
            DashboardEvent::WidgetRemoved { widget } => self.widgets.remove(widget.0),
            DashboardEvent::DashboardRestored { name, is_global, widgets, removed } => {
                if let Some(row) = self.dashboards.change(id) {
                    (row.name, row.is_global) = (name, is_global);
                }
                removed.into_iter().for_each(|widget| self.widgets.remove(widget.0));
                widgets.into_iter().for_each(|widget| self.widgets.put(placed(id, widget)));
            }
        }
    }

    pub(super) fn dashboard(&self, id: Uuid) -> Option<&DashboardRow> {
        self.dashboards.get(id)
    }

    /// Those of dashboard `id` that are here, in the order in which they were added.
    pub(super) fn widgets_of(&self, id: Uuid) -> Vec<WidgetRow> {
        let own = self.widgets.iter().filter(|widget| widget.dashboard_id == id);
        let mut own: Vec<_> = own.cloned().collect();
        own.sort_unstable_by_key(|widget| (widget.position, widget.id));
        own
    }

    /// A channel is gone: its widgets stay, and show nothing.
    pub(super) fn unlink(&mut self, channel: Uuid) {
        self.deleted_channels.insert(channel);
    }

    pub(super) async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        let dashboards = std::mem::take(&mut self.deleted_dashboards);
        let channels = std::mem::take(&mut self.deleted_channels);
        self.widgets.remove_where(|widget| dashboards.contains(&widget.dashboard_id));
        let shows_one = |widget: &WidgetRow| widget.channel_id.is_some_and(|id| channels.contains(&id.0));
        self.widgets.change_where(shows_one, |widget| widget.channel_id = None);
        self.dashboards.write(connection, schema, keep).await?;
        self.widgets.write(connection, schema, keep).await?;
        // Afterwards is in order: nothing is linked to a channel, or put on a dashboard, after its deletion.
        if !dashboards.is_empty() {
            let sql = format!("DELETE FROM {schema}.widgets WHERE dashboard_id = ANY($1)");
            sqlx::query(&sql).bind(Vec::from_iter(dashboards)).execute(&mut *connection).await?;
        }
        if !channels.is_empty() {
            let sql = format!("UPDATE {schema}.widgets SET channel_id = NULL WHERE channel_id = ANY($1)");
            sqlx::query(&sql).bind(Vec::from_iter(channels)).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

fn placed(dashboard: Uuid, placed: PlacedWidget) -> WidgetRow {
    let WidgetSpec { kind, title, channel, x, y, w, h, config } = placed.spec;
    WidgetRow {
        id: placed.widget,
        dashboard_id: dashboard,
        position: placed.added_at,
        widget_type: kind.into(),
        title,
        channel_id: channel,
        x,
        y,
        w,
        h,
        config,
    }
}

fn change(row: &mut WidgetRow, changes: WidgetChanges) {
    let WidgetChanges { title, channel, x, y, w, h, config } = changes;
    row.title = title.unwrap_or(std::mem::take(&mut row.title));
    row.channel_id = channel.unwrap_or(row.channel_id);
    row.x = x.unwrap_or(row.x);
    row.y = y.unwrap_or(row.y);
    row.w = w.unwrap_or(row.w);
    row.h = h.unwrap_or(row.h);
    row.config = config.unwrap_or(row.config.take());
}

impl WidgetRow {
    /// The widget for a restored dashboard.
    ///
    /// # Errors
    /// [`UnknownWord`].
    pub fn placed(self) -> Result<PlacedWidget, UnknownWord> {
        let Self { id, position, widget_type, title, channel_id, x, y, w, h, config, .. } = self;
        let kind = widget_type.known()?;
        let spec = WidgetSpec { kind, title, channel: channel_id, x, y, w, h, config };
        Ok(PlacedWidget { widget: id, added_at: position, spec })
    }
}

/// Which of the dashboards that a user sees are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct DashboardFilter {
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// Whether all users see them.
    pub is_global: Option<bool>,
}

/// The dashboard `id`, without a check of permissions.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn dashboard(pool: &PgPool, id: Uuid) -> Result<Option<DashboardRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.dashboards WHERE id = $1").bind(id).fetch_optional(pool).await
}

impl Listed for DashboardRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[("name", "name")], "id");
}

/// A page of the dashboards that `user` sees and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn dashboards(
    pool: &PgPool,
    user: UserId,
    filter: &DashboardFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<DashboardRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.dashboards WHERE (is_global OR owner_id = ").push_bind(user).push(")");
        and_like(query, "name", filter.name.as_deref());
        and_eq(query, "is_global", filter.is_global);
    })
    .await
}

/// The widgets of `dashboards`, each dashboard's in the order in which they were added.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn widgets(pool: &PgPool, dashboards: &[Uuid]) -> Result<Vec<WidgetRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.widgets WHERE dashboard_id = ANY($1) ORDER BY dashboard_id, position, id",
    )
    .bind(dashboards)
    .fetch_all(pool)
    .await
}

/// The widget `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn widget(pool: &PgPool, id: Uuid) -> Result<Option<WidgetRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.widgets WHERE id = $1").bind(id).fetch_optional(pool).await
}
