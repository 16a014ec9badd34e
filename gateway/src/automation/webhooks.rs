use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{EventType, NewWebhook, SecretChange, Webhook, WebhookChanges, WebhookCommand, WebhookSpec},
    kernel::clean_text,
};
use signalbox_egress::Target;
use signalbox_projections::{
    automation::{
        past_webhook,
        webhooks::{self, WebhookFilter, WebhookRow},
    },
    register::At,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, IfMatch, JsonBody, Params, Sort, Text, key, not_null, present},
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    state::{AppState, State as Gateway},
    target,
};

/// Longest secret, in characters.
pub(crate) const MAX_SECRET: usize = 255;

/// A webhook subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookOut {
    public_id: String,
    /// Where events are posted to.
    url: String,
    /// What it is told of.
    #[schema(value_type = Vec<crate::openapi::WebhookEvent>)]
    events: Vec<String>,
    enabled: bool,
    /// Whether deliveries are signed; the secret itself is never shown.
    has_secret: bool,
    /// Since when every attempt has failed; null while it works.
    failing_since: Option<DateTime<Utc>>,
    /// Whether past events are being delivered.
    replaying: bool,
    /// Who made it.
    user_public_id: String,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// A new webhook subscription.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WebhookIn {
    /// Begins with http:// or https://, at most 2048 characters; unique.
    url: String,
    /// Signs deliveries, at most 255 characters.
    secret: Option<String>,
    /// What it is told of, at least one.
    #[schema(value_type = Vec<crate::openapi::WebhookEvent>)]
    events: Vec<EventType>,
    /// True, if absent.
    enabled: Option<bool>,
}

/// Changes of a webhook subscription; absent fields stay as they are, null clears the secret.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WebhookChangesIn {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    url: Option<String>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    secret: Option<Option<String>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Vec<crate::openapi::WebhookEvent>>, nullable = false)]
    events: Option<Vec<EventType>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

/// A created webhook subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookCreatedOut {
    #[schema(value_type = crate::openapi::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    webhook: WebhookOut,
}

/// Which webhook subscriptions are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WebhookParams {
    /// Part of the url, in any case of letters.
    url: Option<String>,
    enabled: Option<bool>,
    /// What they are told of.
    #[param(value_type = Option<crate::openapi::WebhookEvent>)]
    event: Option<EventType>,
}

/// List webhook subscriptions, newest first.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", security(("jwt" = [])), params(EnvelopeParams, Sort<WebhookRow>, WebhookParams), operation_id = "list_webhooks",
    responses((status = 200, body = Page<WebhookOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<WebhookRow>,
    Params(params): Params<WebhookParams>,
) -> Result<Json<Page<WebhookOut>>, Problem> {
    let WebhookParams { url, enabled, event } = params;
    let filter = WebhookFilter { url, enabled, event: event.map(|event| event.as_str().to_owned()) };
    let wanted = envelope.page()?;
    let (rows, total) = state.read(|pool| webhooks::webhooks(pool, &filter, sort.order(), wanted)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One webhook subscription.
#[utoipa::path(get, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_webhook",
    responses((status = 200, body = WebhookOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(state): State<AppState>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let row = find_at(&state, &id, at).await?;
    Ok(answer::resource(row.version, &WebhookOut::from(row)))
}

/// Subscribe a url to events. It is told of what happens after the answer.
#[utoipa::path(post, path = "/api/v1/webhooks", tag = "webhooks", security(("jwt" = [])), request_body = WebhookIn, operation_id = "create_webhook",
    responses((status = 201, body = WebhookCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(webhook): JsonBody<WebhookIn>,
) -> Result<Response, Problem> {
    let sealed_secret = match valid_secret(webhook.secret)? {
        Some(secret) => Some(seal(&state, context.resource, &secret)?),
        None => None,
    };
    let spec = WebhookSpec {
        url: valid_url(&webhook.url)?,
        sealed_secret,
        events: webhook.events,
        enabled: webhook.enabled.unwrap_or(true),
    };
    let command = WebhookCommand::Create(NewWebhook { owner: user.id, spec });
    let metadata = context.metadata(user.actor(), "create webhook");
    let written = state.write::<Webhook>(context.resource, None, &metadata, &command).await?;
    let row = find_at(&state, &context.resource.to_string(), written.unseen).await?;
    let (version, location) = (row.version, format!("/api/v1/webhooks/{}", row.id));
    let out = WebhookCreatedOut {
        status: "success",
        message: "Webhook successfully created.",
        webhook: row.into(),
    };
    Ok(answer::created(written, &location, version, &out))
}

/// Change a webhook subscription. What waits for it goes to the new url, signed with the new secret.
#[utoipa::path(put, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = WebhookChangesIn, operation_id = "update_webhook",
    responses((status = 200, body = WebhookOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(state): State<AppState>,
    Admin(user): Admin,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
    JsonBody(changes): JsonBody<WebhookChangesIn>,
) -> Result<Response, Problem> {
    let url = changes.url.as_deref().map(valid_url).transpose()?;
    let secret = changes.secret.map(valid_secret).transpose()?;
    let changes =
        WebhookChanges { url, secret: SecretChange::Keep, events: changes.events, enabled: changes.enabled };
    let row = find(&state, &id).await.map_err(|missing| {
        let change = WebhookCommand::Change(changes.clone());
        judged::<Webhook>(missing, [examples::webhook(), change])
    })?;
    let secret = match secret {
        None => SecretChange::Keep,
        Some(None) => SecretChange::Clear,
        Some(Some(secret)) => SecretChange::Seal(seal(&state, row.id, &secret)?),
    };
    let changes = WebhookChanges { secret, ..changes };
    let metadata = context.metadata(user.actor(), "change webhook");
    // The aggregate completes omitted fields, so concurrent changes lose nothing.
    let command = WebhookCommand::Change(changes);
    let written = state.write::<Webhook>(row.id, version, &metadata, &command).await?;
    let row = find_at(&state, &id, written.unseen).await?;
    let version = row.version;
    Ok(answer::changed(written, version, &WebhookOut::from(row)))
}

/// Delete a webhook subscription with its deliveries; what waits for it is not delivered any more.
#[utoipa::path(delete, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_webhook",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(state): State<AppState>,
    Admin(user): Admin,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&state, &id).await?;
    let metadata = context.metadata(user.actor(), "delete webhook");
    let written = state.write::<Webhook>(row.id, version, &metadata, &WebhookCommand::Delete).await?;
    Ok(answer::success(written, "Webhook successfully deleted."))
}

/// The subscription that a client calls `id`.
pub(super) async fn find(state: &Gateway, id: &str) -> Result<WebhookRow, Problem> {
    let id = key("Webhook", id)?;
    state.read(|pool| webhooks::webhook(pool, id)).await?.ok_or_else(|| Problem::not_found("Webhook"))
}

/// The subscription `id` as it was `at`, or as it is.
pub(super) async fn find_at(state: &Gateway, id: &str, at: Option<At>) -> Result<WebhookRow, Problem> {
    match at {
        None => find(state, id).await,
        Some(at) => there("Webhook", past_webhook(&state.pool, key("Webhook", id)?, at).await?),
    }
}

fn valid_url(text: &str) -> Result<String, Problem> {
    let text = clean_text(text, target::MAX_LENGTH).map_err(|error| Problem::field("url", error))?;
    match text.parse::<Target>() {
        Ok(_) => Ok(text),
        Err(error) => Err(Problem::field("url", error)),
    }
}

/// An empty secret means no secret. It is not trimmed: receivers compare every character.
fn valid_secret(secret: Option<String>) -> Result<Option<String>, Problem> {
    let secret = secret.filter(|secret| !secret.is_empty());
    match &secret {
        Some(text) if text.contains('\0') => Err(Problem::field("secret", "must not contain NUL characters")),
        Some(text) if text.chars().count() > MAX_SECRET => {
            Err(Problem::field("secret", format!("must be at most {MAX_SECRET} characters long")))
        }
        _ => Ok(secret),
    }
}

fn seal(state: &Gateway, webhook: Uuid, secret: &str) -> Result<String, Problem> {
    state.sealer.seal(webhook, secret).map_err(|error| Problem::internal(&error))
}

impl From<WebhookRow> for WebhookOut {
    fn from(row: WebhookRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            replaying: row.replay().is_some(),
            url: row.url,
            events: row.events,
            enabled: row.enabled,
            has_secret: row.sealed_secret.is_some(),
            failing_since: row.failing_since,
            user_public_id: row.owner_id.to_string(),
            created_on: row.created_at,
            updated_on: row.updated_at,
        }
    }
}
