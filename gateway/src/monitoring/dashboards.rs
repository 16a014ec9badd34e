use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use serde::{Deserialize, Serialize};
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::IdKey;
use signalbox_domain::monitoring::{Dashboard, DashboardCommand, NewDashboard};
use signalbox_projections::monitoring::dashboards::{self, DashboardFilter, DashboardRow};
use utoipa::{IntoParams, ToSchema};

use super::dashboard_views::{DashboardOut, find_own, find_past, find_seen, show, show_at};
use crate::{
    answer::{self, Page, StatusOut},
    auth::{Reader, Writer},
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, not_null},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::{catalog::Catalogs, commands::Commands, replica::Database},
};

/// A created dashboard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DashboardCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    dashboard: DashboardOut,
}

/// A new dashboard.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DashboardIn {
    /// 1 to 255 characters.
    name: String,
    /// Whether everybody sees it; false if absent.
    is_global: Option<bool>,
}

/// Changes of a dashboard; absent fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DashboardChangesIn {
    /// 1 to 255 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    is_global: Option<bool>,
}

/// Which dashboards are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DashboardParams {
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// Only those that everybody sees, or only those that the caller alone sees.
    is_global: Option<bool>,
}

/// List the own dashboards and those that everybody sees, newest first.
#[utoipa::path(get, path = "/api/v1/dashboards", tag = "dashboards", security(("jwt" = [])), params(EnvelopeParams, Sort<DashboardRow>, DashboardParams), operation_id = "list_dashboards",
    responses((status = 200, body = Page<DashboardOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    Reader(user): Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<DashboardRow>,
    Params(params): Params<DashboardParams>,
) -> Result<Json<Page<DashboardOut>>, Problem> {
    let filter = DashboardFilter { name: params.name, is_global: params.is_global };
    let page = envelope.page()?;
    let (rows, total) =
        database.read(|pool| dashboards::dashboards(pool, user.id, &filter, sort.order(), page)).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let mut widgets = database.read(|pool| dashboards::widgets(pool, &ids)).await?;
    let data = rows.into_iter().map(|row| {
        let own = widgets.extract_if(.., |widget| widget.dashboard_id == row.id).collect();
        DashboardOut::new(row, own)
    });
    Ok(Json(envelope.envelope(total, data.collect())))
}

/// One dashboard with its widgets: an own one, or one that everybody sees. With `at`, its layout and the values of that moment;
/// those who do not own it see what everybody saw then and sees now.
#[utoipa::path(get, path = "/api/v1/dashboards/{id}", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_dashboard",
    responses((status = 200, body = DashboardOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(catalogs): State<Arc<Catalogs>>,
    State(datapoint_ids): State<IdKey>,
    Reader(user): Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    if let Some(at) = at {
        let (version, out) =
            find_past(&database, &server_clock, &catalogs, &datapoint_ids, &user, &id, at).await?;
        return Ok(answer::resource(version, &out));
    }
    let row = find_seen(&database, &user, &id).await?;
    let (version, out) = show(&database, row).await?;
    Ok(answer::resource(version, &out))
}

/// Create a dashboard.
#[utoipa::path(post, path = "/api/v1/dashboards", tag = "dashboards", security(("jwt" = [])), request_body = DashboardIn, operation_id = "create_dashboard",
    responses((status = 201, body = DashboardCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(dashboard): JsonBody<DashboardIn>,
) -> Result<Response, Problem> {
    let DashboardIn { name, is_global } = dashboard;
    let new = NewDashboard { owner: user.id, name, is_global: is_global.unwrap_or(false) };
    let metadata = context.metadata(user.actor(), "create dashboard");
    let command = DashboardCommand::Create(new);
    let written = commands.write::<Dashboard>(context.resource, None, &metadata, &command).await?;
    let (version, dashboard) = after_write(|| show_at(&database, context.resource, written.unseen)).await?;
    let location = format!("/api/v1/dashboards/{}", dashboard.public_id);
    let out =
        DashboardCreatedOut { status: "success", message: "Dashboard successfully created.", dashboard };
    Ok(answer::created(written, &location, version, &out))
}

/// Change a dashboard; its owner alone may.
#[utoipa::path(put, path = "/api/v1/dashboards/{id}", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,)), request_body = DashboardChangesIn, operation_id = "update_dashboard",
    responses((status = 200, body = DashboardOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    change: Change<Writer>,
    JsonBody(changes): JsonBody<DashboardChangesIn>,
) -> Result<Response, Problem> {
    let DashboardChangesIn { name, is_global } = changes;
    let command = DashboardCommand::Change { name, is_global };
    let row = find_own(&change.database, &change.user, &change.id)
        .await
        .map_err(|missing| judged::<Dashboard>(missing, [examples::dashboard(), command.clone()]))?;
    let written = change.write::<Dashboard>(row.id, "change dashboard", &command).await?;
    let (version, out) = after_write(|| show_at(&change.database, row.id, written.unseen)).await?;
    Ok(answer::changed(written, version, &out))
}

/// Delete a dashboard with its widgets; its owner alone may.
#[utoipa::path(delete, path = "/api/v1/dashboards/{id}", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_dashboard",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Writer>) -> Result<Response, Problem> {
    let row = find_own(&change.database, &change.user, &change.id).await?;
    let written = change.write::<Dashboard>(row.id, "delete dashboard", &DashboardCommand::Delete).await?;
    Ok(answer::success(written, "Dashboard successfully deleted."))
}
