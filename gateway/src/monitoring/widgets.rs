use axum::{extract::State, http::StatusCode, response::Response};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    kernel::WidgetId,
    monitoring::{Dashboard, DashboardCommand, WidgetChanges, WidgetSpec, WidgetType},
};
use signalbox_projections::{
    monitoring::{
        dashboards::{self, WidgetRow},
        past_dashboard,
    },
    register::At,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    channels::optional_channel,
    dashboard_views::{WidgetOut, find_own},
};
use crate::{
    answer::{self, StatusOut},
    auth::Writer,
    context::RequestContext,
    existence::{examples, judged},
    extract::{IfMatch, JsonBody, Numeric, Text, Texts, id, not_null, present},
    past::there,
    problem::{Problem, ProblemKind, ProblemOut},
    resource::after_write,
    services::{commands::Commands, replica::Database},
};

/// A created widget.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WidgetCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    widget: WidgetOut,
}

/// A new widget.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WidgetIn {
    /// `line_chart`, `gauge`, `stat_card` or `actuator_toggle`.
    #[schema(value_type = crate::words::WidgetType)]
    widget_type: WidgetType,
    /// 1 to 255 characters.
    title: String,
    /// The event shown.
    event_public_id: Option<String>,
    /// Column, 0 to 10000; 0 if absent.
    #[schema(value_type = Option<i32>)]
    x: Option<Numeric<i32>>,
    /// Row, 0 to 10000; 0 if absent.
    #[schema(value_type = Option<i32>)]
    y: Option<Numeric<i32>>,
    /// Columns covered, 1 to 12; 4 if absent.
    #[schema(value_type = Option<i32>)]
    w: Option<Numeric<i32>>,
    /// Rows covered, 1 to 12; 3 if absent.
    #[schema(value_type = Option<i32>)]
    h: Option<Numeric<i32>>,
    /// Any text of at most 10000 characters.
    config_json: Option<String>,
}

/// Changes of a widget; absent fields stay as they are, null clears event and configuration. The type stays.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WidgetChangesIn {
    /// Its type, if at all: a widget of another type is made anew.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::WidgetType>, nullable = false)]
    widget_type: Option<WidgetType>,
    /// 1 to 255 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    title: Option<String>,
    /// The event shown.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    event_public_id: Option<Option<String>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<i32>, nullable = false)]
    x: Option<Numeric<i32>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<i32>, nullable = false)]
    y: Option<Numeric<i32>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<i32>, nullable = false)]
    w: Option<Numeric<i32>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<i32>, nullable = false)]
    h: Option<Numeric<i32>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    config_json: Option<Option<String>>,
}

/// Put a widget on a dashboard; its owner alone may.
#[utoipa::path(post, path = "/api/v1/dashboards/{id}/widgets", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,)), request_body = WidgetIn, operation_id = "create_widget",
    responses((status = 201, body = WidgetCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    Text(id): Text,
    context: RequestContext,
    JsonBody(widget): JsonBody<WidgetIn>,
) -> Result<Response, Problem> {
    let WidgetIn { widget_type, title, event_public_id, x, y, w, h, config_json } = widget;
    let spec = WidgetSpec {
        kind: widget_type,
        title,
        channel: None,
        x: x.map_or(0, Numeric::get),
        y: y.map_or(0, Numeric::get),
        w: w.map_or(4, Numeric::get),
        h: h.map_or(3, Numeric::get),
        config: config_json,
    };
    let widget = WidgetId(context.resource);
    let dashboard = find_own(&database, &user, &id).await.map_err(|missing| {
        let add = DashboardCommand::AddWidget { widget, spec: spec.clone() };
        judged::<Dashboard>(missing, [examples::dashboard(), add])
    })?;
    let spec = WidgetSpec { channel: optional_channel(&database, event_public_id).await?, ..spec };
    let metadata = context.metadata(user.actor(), "add widget");
    let command = DashboardCommand::AddWidget { widget, spec };
    let written = commands.write::<Dashboard>(dashboard.id, None, &metadata, &command).await?;
    let widget =
        after_write(|| find_at(&database, dashboard.id, context.resource, written.unseen)).await?.into();
    let out = WidgetCreatedOut { status: "success", message: "Widget successfully created.", widget };
    Ok(answer::written(written, StatusCode::CREATED, None, &out))
}

/// Change a widget; the dashboard's owner alone may.
#[utoipa::path(put, path = "/api/v1/dashboards/{id}/widgets/{wid}", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,), ("wid" = String, Path,)),
    request_body = WidgetChangesIn, operation_id = "update_widget",
    responses((status = 200, body = WidgetOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Texts(id, widget_id): Texts,
    context: RequestContext,
    JsonBody(changes): JsonBody<WidgetChangesIn>,
) -> Result<Response, Problem> {
    let WidgetChangesIn { widget_type, title, event_public_id, x, y, w, h, config_json } = changes;
    let [x, y, w, h] = [x, y, w, h].map(|number| number.map(Numeric::get));
    let changes = WidgetChanges { title, channel: None, x, y, w, h, config: config_json };
    let found = async {
        let dashboard = find_own(&database, &user, &id).await?;
        let widget = find(&database, dashboard.id, &widget_id).await?;
        Ok::<_, Problem>((dashboard, widget))
    };
    let (dashboard, widget) = found.await.map_err(|missing| {
        let widget = WidgetId(context.resource);
        let change = DashboardCommand::ChangeWidget { widget, changes: changes.clone() };
        judged::<Dashboard>(missing, examples::widget(widget).into_iter().chain([change]))
    })?;
    Problem::unless_kept(
        "widget_type",
        "widget",
        widget.widget_type.as_str(),
        widget_type.map(WidgetType::as_str),
    )?;
    let channel = match event_public_id {
        Some(id) => Some(optional_channel(&database, id).await?),
        None => None,
    };
    let changes = WidgetChanges { channel, ..changes };
    let metadata = context.metadata(user.actor(), "change widget");
    let command = DashboardCommand::ChangeWidget { widget: widget.id, changes };
    let written = commands.write::<Dashboard>(dashboard.id, versions, &metadata, &command).await?;
    let shown = after_write(|| find_at(&database, dashboard.id, widget.id.0, written.unseen)).await?;
    let out = WidgetOut::from(shown);
    Ok(answer::written(written, StatusCode::OK, None, &out))
}

/// Take a widget away; the dashboard's owner alone may.
#[utoipa::path(delete, path = "/api/v1/dashboards/{id}/widgets/{wid}", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,), ("wid" = String, Path,)),
    operation_id = "delete_widget",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Texts(id, widget_id): Texts,
    context: RequestContext,
) -> Result<Response, Problem> {
    let dashboard = find_own(&database, &user, &id).await?;
    let widget = find(&database, dashboard.id, &widget_id).await?;
    let metadata = context.metadata(user.actor(), "remove widget");
    let command = DashboardCommand::RemoveWidget { widget: widget.id };
    let written = commands.write::<Dashboard>(dashboard.id, versions, &metadata, &command).await?;
    Ok(answer::success(written, "Widget successfully deleted."))
}

async fn find(database: &Database, dashboard: Uuid, text: &str) -> Result<WidgetRow, Problem> {
    let id = id(text).ok_or_else(missing)?;
    find_at(database, dashboard, id, None).await
}

/// The widget `id` of `dashboard` as it was `at`, or as it is.
async fn find_at(
    database: &Database,
    dashboard: Uuid,
    id: Uuid,
    at: Option<At>,
) -> Result<WidgetRow, Problem> {
    let row = match at {
        None => database.read(|pool| dashboards::widget(pool, id)).await?,
        Some(at) => {
            let (_, widgets) = there("Dashboard", past_dashboard(&database.primary, dashboard, at).await?)?;
            widgets.into_iter().find(|widget| widget.id.0 == id)
        }
    };
    row.filter(|row| row.dashboard_id == dashboard).ok_or_else(missing)
}

fn missing() -> Problem {
    Problem::new(ProblemKind::NotFound, "not_found", "Widget not on this dashboard")
}
