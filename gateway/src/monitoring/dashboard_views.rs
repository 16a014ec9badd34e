//! Dashboards and their widgets as clients see them, and who may see and change them.

use std::slice;

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::IdKey;
use signalbox_projections::{
    monitoring::{
        dashboards::{self, DashboardRow, WidgetRow},
        past_dashboard, queries,
        series::newest_until,
    },
    register::At,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::datapoints::{self, DatapointOut};
use crate::{
    auth::CurrentUser,
    extract::key,
    past::there,
    problem::Problem,
    services::{catalog::Catalogs, replica::Database},
};

pub(super) const WHAT: &str = "Dashboard";

/// A dashboard with its widgets.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DashboardOut {
    pub(super) public_id: String,
    name: String,
    /// Whether everybody sees it.
    is_global: bool,
    created_on: DateTime<Utc>,
    /// The user that created it, and alone may change it.
    user_public_id: String,
    /// In the order in which they were added.
    widgets: Vec<WidgetOut>,
    /// Only with `at`: the newest datapoint of each event shown that was measured by then, as far as is known now.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<DatapointOut>>,
}

/// A widget.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WidgetOut {
    public_id: String,
    /// `line_chart`, `gauge`, `stat_card` or `actuator_toggle`.
    #[schema(value_type = crate::words::WidgetType)]
    widget_type: String,
    title: String,
    /// The event shown; null when there is none, also after the event was deleted.
    event_public_id: Option<String>,
    x: i32,
    y: i32,
    w: i32,
    h: i32,
    /// Free text in which the client keeps its settings.
    config_json: Option<String>,
}

async fn find(database: &Database, id: &str) -> Result<DashboardRow, Problem> {
    let id = key(WHAT, id)?;
    let row = database.read(|pool| dashboards::dashboard(pool, id)).await?;
    row.ok_or_else(|| Problem::not_found(WHAT))
}

/// The dashboard `id`, if it is `who`'s or everybody's to see.
pub(super) async fn find_seen(
    database: &Database,
    user: &CurrentUser,
    id: &str,
) -> Result<DashboardRow, Problem> {
    let row = find(database, id).await?;
    if row.is_global || row.owner_id == user.id { Ok(row) } else { Err(Problem::forbidden()) }
}

/// The dashboard `id`, if it is `who`'s to change. The owner of a dashboard never changes.
pub(super) async fn find_own(
    database: &Database,
    user: &CurrentUser,
    id: &str,
) -> Result<DashboardRow, Problem> {
    let row = find(database, id).await?;
    if row.owner_id == user.id { Ok(row) } else { Err(Problem::forbidden()) }
}

/// A dashboard as clients see it, and its version.
pub(super) async fn show(database: &Database, row: DashboardRow) -> Result<(i64, DashboardOut), Problem> {
    let widgets = database.read(|pool| dashboards::widgets(pool, slice::from_ref(&row.id))).await?;
    Ok((row.version, DashboardOut::new(row, widgets)))
}

/// The dashboard `id` as it was `at`, or as it is.
pub(super) async fn show_at(
    database: &Database,
    id: Uuid,
    at: Option<At>,
) -> Result<(i64, DashboardOut), Problem> {
    let Some(at) = at else { return show(database, find(database, &id.to_string()).await?).await };
    let (row, widgets) = there(WHAT, past_dashboard(&database.primary, id, at).await?)?;
    Ok((row.version, DashboardOut::new(row, widgets)))
}

impl DashboardOut {
    pub(super) fn new(row: DashboardRow, widgets: Vec<WidgetRow>) -> Self {
        Self {
            public_id: row.id.to_string(),
            name: row.name,
            is_global: row.is_global,
            created_on: row.created_at,
            user_public_id: row.owner_id.to_string(),
            widgets: widgets.into_iter().map(Into::into).collect(),
            values: None,
        }
    }

    pub(super) fn with(self, values: Vec<DatapointOut>) -> Self {
        Self { values: Some(values), ..self }
    }
}

impl From<WidgetRow> for WidgetOut {
    fn from(row: WidgetRow) -> Self {
        let WidgetRow { id, widget_type, title, channel_id, x, y, w, h, config, .. } = row;
        Self {
            public_id: id.to_string(),
            widget_type: widget_type.into(),
            title,
            event_public_id: channel_id.map(|channel| channel.to_string()),
            x,
            y,
            w,
            h,
            config_json: config,
        }
    }
}

/// Those who do not own it see what everybody saw then and, unless it is deleted, sees now.
pub(super) async fn find_past(
    database: &Database,
    server_clock: &SharedServerClock,
    catalogs: &Catalogs,
    datapoint_ids: &IdKey,
    user: &CurrentUser,
    id: &str,
    at: At,
) -> Result<(i64, DashboardOut), Problem> {
    let id = key(WHAT, id)?;
    let (row, widgets) = there(WHAT, past_dashboard(&database.primary, id, at).await?)?;
    if row.owner_id != user.id {
        let now = dashboards::dashboard(&database.primary, id).await?;
        let is_private = !row.is_global || !now.is_some_and(|now| now.is_global);
        if is_private {
            return Err(Problem::forbidden());
        }
    }
    let (version, values) =
        (row.version, values(database, server_clock, catalogs, datapoint_ids, &widgets, at).await?);
    Ok((version, DashboardOut::new(row, widgets).with(values)))
}

/// The newest datapoint of each event that `widgets` show.
async fn values(
    database: &Database,
    server_clock: &SharedServerClock,
    catalogs: &Catalogs,
    datapoint_ids: &IdKey,
    widgets: &[WidgetRow],
    at: At,
) -> Result<Vec<DatapointOut>, Problem> {
    let channels: Vec<_> = widgets.iter().filter_map(|widget| Some(widget.channel_id?.0)).collect();
    if channels.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = queries::channel_numbers(&database.primary, &channels).await?;
    let points = newest_until(&database.primary, &numbers, at.time).await?;
    let catalog = catalogs.fresh().await?;
    Ok(points.iter().map(|point| datapoints::show(server_clock, datapoint_ids, &catalog, point)).collect())
}
