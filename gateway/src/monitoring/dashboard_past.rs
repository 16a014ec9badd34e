//! Dashboards as they were, how they came to be what they are, and their way back.

use std::collections::HashSet;

use axum::{Json, extract::State, response::Response};
use serde_json::{Map, Value};
use signalbox_domain::monitoring::{Dashboard, DashboardCommand};
use signalbox_projections::{
    monitoring::{
        dashboards::{DashboardRow, WidgetRow},
        past_dashboard, queries,
    },
    register,
};

use super::dashboard_views::{DashboardOut, WHAT, find_own, find_seen, show_at};
use crate::{
    answer::{self, Page},
    auth::{Reader, Writer},
    change::Change,
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text},
    history::{RestoreIn, VersionOut, content, place, restoring},
    past::there,
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::replica::Database,
};

/// The versions of a dashboard, newest first, each with what is different from the one before. Of versions that only its
/// owner saw, others see no content.
#[utoipa::path(get, path = "/api/v1/dashboards/{id}/history", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,), EnvelopeParams, Sort<VersionOut>), operation_id = "dashboard_history",
    responses((status = 200, body = Page<VersionOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn history(
    State(database): State<Database>,
    Reader(user): Reader,
    Text(id): Text,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<VersionOut>,
) -> Result<Json<Page<VersionOut>>, Problem> {
    let page = envelope.page()?;
    let row = find_seen(&database, &user, &id).await?;
    let is_own = row.owner_id == user.id;
    let (versions, total) =
        register::history::<DashboardRow, _>(&database.primary, row.id, (sort.order(), page), |rows, id| {
            let (row, widgets) = rows.dashboard(id)?;
            (is_own || row.is_global).then(|| layout(row, widgets))?
        })
        .await?;
    Ok(Json(envelope.envelope(total, versions.into_iter().map(Into::into).collect())))
}

/// A dashboard whose widgets are named by their ids, not by their places in a list.
fn layout(row: DashboardRow, widgets: Vec<WidgetRow>) -> Option<Value> {
    let mut layout = content(&DashboardOut::new(row, widgets), &[])?;
    let by_id = |mut widget: Value| {
        let id = widget.as_object_mut()?.remove("public_id")?;
        Some((id.as_str()?.to_owned(), widget))
    };
    if let Some(Value::Array(widgets)) = layout.get_mut("widgets").map(Value::take) {
        layout["widgets"] = widgets.into_iter().filter_map(by_id).collect::<Map<_, _>>().into();
    }
    Some(layout)
}

/// Make a dashboard what it was in an earlier version, with the widgets of that time; its owner alone may. Widgets whose event
/// was deleted since come back and show nothing.
#[utoipa::path(post, path = "/api/v1/dashboards/{id}/restore", tag = "dashboards", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RestoreIn, operation_id = "restore_dashboard",
    responses((status = 200, body = DashboardOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn restore(
    change: Change<Writer>,
    JsonBody(RestoreIn { version: wanted }): JsonBody<RestoreIn>,
) -> Result<Response, Problem> {
    let id = find_own(&change.database, &change.user, &change.id).await?.id;
    let at = place::<DashboardRow>(&change.database, id, wanted).await?;
    let (then, mut widgets) = there(WHAT, past_dashboard(&change.database.primary, id, at).await?)?;
    let linked: Vec<_> = widgets.iter().filter_map(|widget| widget.channel_id).collect();
    let living: HashSet<_> =
        queries::existing_channels(&change.database.primary, &linked).await?.into_iter().collect();
    for widget in &mut widgets {
        widget.channel_id = widget.channel_id.filter(|channel| living.contains(channel));
    }
    let widgets = widgets.into_iter().map(WidgetRow::placed).collect::<Result<_, _>>()?;
    let command = DashboardCommand::Restore { name: then.name, is_global: then.is_global, widgets };
    let metadata = restoring(change.context.metadata(change.user.actor(), "restore dashboard"), wanted);
    let written =
        change.commands.write::<Dashboard>(id, change.versions.clone(), &metadata, &command).await?;
    let (version, out) = after_write(|| show_at(&change.database, id, written.unseen)).await?;
    Ok(answer::changed(written, version, &out))
}
