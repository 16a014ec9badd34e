//! How a webhook subscription came to be what it is, and its way back.

use axum::{Json, extract::State, response::Response};
use serde_json::{Value, json};
use signalbox_domain::automation::{Webhook, WebhookChanges, WebhookCommand};
use signalbox_projections::{
    Word,
    automation::WebhookRow,
    register::{self, Resource},
};

use super::webhooks::WebhookOut;
use crate::{
    answer::Page,
    auth::Admin,
    change::Change,
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text},
    history::{RestoreIn, SECRET, VersionOut, content, earlier, restoring},
    problem::{Problem, ProblemOut},
    resource::{changed, find},
    services::replica::Database,
};

/// Fields that change without a user, and the field that is derived from the secret.
const BY_ITSELF: [&str; 4] = ["failing_since", "replaying", "updated_on", "has_secret"];

/// The versions of a webhook subscription, newest first, each with what is different from the one before. Of the secret they
/// tell that it is another one.
#[utoipa::path(get, path = "/api/v1/webhooks/{id}/history", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), EnvelopeParams, Sort<VersionOut>), operation_id = "webhook_history",
    responses((status = 200, body = Page<VersionOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn history(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<VersionOut>,
) -> Result<Json<Page<VersionOut>>, Problem> {
    let page = envelope.page()?;
    let row = find::<WebhookRow>(&database, &id).await?;
    let (versions, total) =
        register::history::<WebhookRow, _>(&database.primary, row.id.0, (sort.order(), page), |rows, id| {
            shown(WebhookRow::of(rows, id)?.clone())
        })
        .await?;
    Ok(Json(envelope.envelope(total, versions.into_iter().map(Into::into).collect())))
}

fn shown(row: WebhookRow) -> Option<Value> {
    let sealed = json!(row.sealed_secret);
    let mut shown = content(&WebhookOut::from(row), &BY_ITSELF)?;
    shown[SECRET] = sealed;
    Some(shown)
}

/// Make a webhook subscription what it was in an earlier version. Its secret and keys stay as they are.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/restore", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RestoreIn, operation_id = "restore_webhook",
    responses((status = 200, body = WebhookOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn restore(
    change: Change<Admin>,
    JsonBody(RestoreIn { version: target }): JsonBody<RestoreIn>,
) -> Result<Response, Problem> {
    let key = change.find::<WebhookRow>().await?.id.0;
    let then: WebhookRow = earlier(&change.database, "Webhook", key, target).await?;
    let changes = WebhookChanges {
        retry: Some(then.retry()),
        url: Some(then.url),
        events: Some(then.events.iter().map(Word::known).collect::<Result<_, _>>()?),
        enabled: Some(then.enabled),
        filters: Some(then.filters.0),
        ..WebhookChanges::default()
    };
    let metadata = restoring(change.context.metadata(change.user.actor(), "restore webhook"), target);
    let written = change
        .commands
        .write::<Webhook>(key, change.versions.clone(), &metadata, &WebhookCommand::Change(changes))
        .await?;
    changed::<WebhookRow>(&change.database, &change.id, written).await
}
