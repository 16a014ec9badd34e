use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{
        EventType, KeyChange, NewWebhook, RetryPolicy, SecretChange, Severity, Webhook, WebhookChanges,
        WebhookCommand, WebhookFilters, WebhookSpec,
    },
    kernel::{ChannelId, WebhookId},
    monitoring::Labels,
};
use signalbox_projections::{
    automation::{
        past_webhook,
        webhooks::{self, WebhookFilter, WebhookRow},
    },
    monitoring::queries::existing_channels,
    register::{At, Past, StateError},
    transfer::queries::existing_jobs,
};
use signalbox_sealing::Sealer;
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::webhook_keys::{NewSecret, Scheme, key_change, one_of, valid_secret};
use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    change::Change,
    context::RequestContext,
    context_services::services,
    existence::{examples, invalid, judged},
    extract::{EnvelopeParams, IfMatch, JsonBody, Params, Sort, Text, not_null, present},
    idempotency::Repetitions,
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, find, find_at, not_made_again, shown},
    services::{commands::Commands, replica::Database},
    state::Written,
    target,
};

/// A webhook subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookOut {
    public_id: String,
    /// Where events are posted to.
    url: String,
    /// Types of events that it receives.
    #[schema(value_type = Vec<crate::words::WebhookEvent>)]
    events: Vec<String>,
    enabled: bool,
    /// Whether there is a secret, which signs deliveries; it is not shown again.
    has_secret: bool,
    /// Scheme of `webhook-signature`: `v1` by the secret, or `v1a` by a key pair of the subscription.
    #[schema(value_type = crate::words::WebhookSignature)]
    signature: &'static str,
    /// The public key that verifies `v1a` signatures (`whpk_` and base64); null with `v1`.
    public_key: Option<String>,
    /// Until when the secret and key before the last rotation sign too; null if there are none.
    old_secret_until: Option<DateTime<Utc>>,
    /// When failed attempts are repeated.
    #[schema(value_type = crate::words::WebhookRetry)]
    retry: String,
    filters: WebhookFiltersOut,
    /// Since when every attempt has failed; null while it works.
    failing_since: Option<DateTime<Utc>>,
    /// Whether past events are being delivered.
    replaying: bool,
    /// The user that created it.
    user_public_id: String,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// Which events of the subscribed types are delivered. Each list limits events of its kind alone, and an empty one limits none.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookFiltersOut {
    /// Of events about a channel, those about these channels (`sensor.*`, `alarm.*`, and all that rules publish).
    channels: Vec<String>,
    /// Of events about a channel, those about channels that have all of these labels, with these values.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    /// Of `transfer.*`, those of these jobs.
    jobs: Vec<i64>,
    /// Of `alarm.*`, those of alarms with one of these severities.
    #[schema(value_type = Vec<crate::words::Severity>)]
    severity: Vec<Severity>,
}

/// Which events of the subscribed types are delivered; an absent list limits nothing.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WebhookFiltersIn {
    /// Public ids of events (channels), at most 100.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    channels: Vec<ChannelId>,
    /// Labels of channels with their values, at most 20; a channel must have all of them.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    /// Ids of jobs, at most 100.
    #[serde(default)]
    jobs: Vec<i64>,
    /// Severities of alarms.
    #[serde(default)]
    #[schema(value_type = Vec<crate::words::Severity>)]
    severity: Vec<Severity>,
}

/// Refuses channels and jobs that do not exist, and says which one it is. Those that are named already may stay, since they may
/// have been deleted meanwhile.
async fn find_filtered(
    database: &Database,
    named: &WebhookFilters,
    before: &WebhookFilters,
) -> Result<(), Problem> {
    let channels: Vec<_> = named
        .channels
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, channel)| !before.channels.contains(channel))
        .collect();
    let jobs: Vec<_> =
        named.jobs.iter().copied().enumerate().filter(|(_, job)| !before.jobs.contains(job)).collect();
    if !channels.is_empty() {
        let ids: Vec<_> = channels.iter().map(|(_, id)| *id).collect();
        let known = database.read(|pool| existing_channels(pool, &ids)).await?;
        if let Some((place, _)) = channels.iter().find(|(_, id)| !known.contains(id)) {
            return Err(Problem::not_found_in("Event", "filters.channels", *place));
        }
    }
    if !jobs.is_empty() {
        let numbers: Vec<_> = jobs.iter().map(|(_, number)| *number).collect();
        let known = database.read(|pool| existing_jobs(pool, &numbers)).await?;
        if let Some((place, _)) = jobs.iter().find(|(_, number)| !known.contains(number)) {
            return Err(Problem::not_found_in("Job", "filters.jobs", *place));
        }
    }
    Ok(())
}

impl From<WebhookFiltersIn> for WebhookFilters {
    fn from(filters: WebhookFiltersIn) -> Self {
        let WebhookFiltersIn { channels, labels, jobs, severity } = filters;
        Self { channels, labels, jobs, severity }
    }
}

/// A new webhook subscription.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct WebhookIn {
    /// Begins with http:// or https://, at most 2048 characters; unique.
    url: String,
    /// Signs deliveries, at most 255 characters; `whsec_` and base64, to be verified by libraries of Standard Webhooks.
    secret: Option<String>,
    /// Make a secret, in place of one that is given; the answer shows it this once. False if absent.
    #[serde(default)]
    generate_secret: bool,
    /// `v1` if absent; `v1a` makes a key pair, whose public key is shown.
    #[schema(value_type = Option<crate::words::WebhookSignature>)]
    signature: Option<Scheme>,
    /// `default` if absent: three attempts, 2 s and 4 s apart. `standard`: ten attempts within days, and the receiver may
    /// postpone them by `Retry-After` or end the subscription by 410.
    #[schema(value_type = Option<crate::words::WebhookRetry>)]
    retry: Option<RetryPolicy>,
    /// No limits, if absent.
    filters: Option<WebhookFiltersIn>,
    /// Types of events that it receives, at least one.
    #[schema(value_type = Vec<crate::words::WebhookEvent>)]
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
    /// Make a secret, in place of one that is given; the answer shows it this once. The one before is void at once.
    #[serde(default)]
    generate_secret: bool,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::WebhookSignature>, nullable = false)]
    signature: Option<Scheme>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::WebhookRetry>, nullable = false)]
    retry: Option<RetryPolicy>,
    /// In place of all that there are.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    filters: Option<WebhookFiltersIn>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Vec<crate::words::WebhookEvent>>, nullable = false)]
    events: Option<Vec<EventType>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

/// A created webhook subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    webhook: WebhookOut,
    /// The secret that was made; shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Faults of the secret for some receivers, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Which webhook subscriptions are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WebhookParams {
    /// Part of the url, in any case of letters.
    url: Option<String>,
    enabled: Option<bool>,
    /// A type of event that they receive.
    #[param(value_type = Option<crate::words::WebhookEvent>)]
    event: Option<EventType>,
}

services! {
    /// Services that subscriptions are changed by.
    WebhookServices {
        commands: Commands,
        database: Database,
        sealer: Sealer;
        repetitions: Repetitions,
    }
}

/// List webhook subscriptions, newest first.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", security(("jwt" = [])), params(EnvelopeParams, Sort<WebhookRow>, WebhookParams), operation_id = "list_webhooks",
    responses((status = 200, body = Page<WebhookOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<WebhookRow>,
    Params(params): Params<WebhookParams>,
) -> Result<Json<Page<WebhookOut>>, Problem> {
    let WebhookParams { url, enabled, event } = params;
    let filter = WebhookFilter { url, enabled, event: event.map(|event| event.as_str().to_owned()) };
    let page = envelope.page()?;
    let (rows, total) = database.read(|pool| webhooks::webhooks(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One webhook subscription.
#[utoipa::path(get, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_webhook",
    responses((status = 200, body = WebhookOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<WebhookRow>(&database, &id, at).await.map(shown)
}

/// Subscribe a url to events. It is told of what happens after the answer.
#[utoipa::path(post, path = "/api/v1/webhooks", tag = "webhooks", security(("jwt" = [])), request_body = WebhookIn, operation_id = "create_webhook",
    responses((status = 201, body = WebhookCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(sealer): State<Sealer>,
    State(repetitions): State<Repetitions>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(webhook): JsonBody<WebhookIn>,
) -> Result<Response, Problem> {
    let given = valid_secret(webhook.secret)?;
    one_of(given.as_ref(), webhook.generate_secret)?;
    let (url, id) = (valid_url(&webhook.url)?, WebhookId(context.resource));
    let secret = NewSecret::of(&sealer, &repetitions, &context, id, given, webhook.generate_secret).await?;
    let key = match key_change(&sealer, &repetitions, &context, id, webhook.signature).await? {
        KeyChange::Provide(key) => Some(key),
        KeyChange::Keep | KeyChange::Clear => None,
    };
    let spec = WebhookSpec {
        url,
        sealed_secret: secret.as_ref().map(|secret| secret.sealed.clone()),
        key,
        previous: None,
        events: webhook.events,
        enabled: webhook.enabled.unwrap_or(true),
        retry: webhook.retry.unwrap_or_default(),
        filters: webhook.filters.map(|filters| Box::new(filters.into())).unwrap_or_default(),
    };
    let filters = spec.filters.clone();
    let command = WebhookCommand::Create(NewWebhook { owner: user.id, spec });
    if let Some(rejection) = invalid::<Webhook>([command.clone()]) {
        return Err(rejection.into());
    }
    find_filtered(&database, &filters, &WebhookFilters::default()).await?;
    let metadata = context.metadata(user.actor(), "create webhook");
    let written = commands.write::<Webhook>(context.resource, None, &metadata, &command).await?;
    let warnings = NewSecret::warnings(secret.as_ref());
    let (row, secret) =
        NewSecret::written(&database, &sealer, &context.resource.to_string(), written, secret)
            .await
            .map_err(|problem| not_made_again(written, problem))?;
    let (version, location) = (row.version, format!("/api/v1/webhooks/{}", row.id));
    let out = WebhookCreatedOut {
        status: "success",
        message: "Webhook successfully created.",
        warnings,
        secret,
        webhook: row.into(),
    };
    let response = answer::created(written, &location, version, &out);
    Ok(if out.secret.is_some() { answer::unstored(response) } else { response })
}

/// Change a webhook subscription. Waiting deliveries go to the new url, signed with the new secret.
#[utoipa::path(put, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = WebhookChangesIn, operation_id = "update_webhook",
    responses((status = 200, body = WebhookChangedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(services): State<WebhookServices>,
    Admin(user): Admin,
    IfMatch(versions): IfMatch,
    Text(id): Text,
    context: RequestContext,
    JsonBody(changes): JsonBody<WebhookChangesIn>,
) -> Result<Response, Problem> {
    let url = changes.url.as_deref().map(valid_url).transpose()?;
    let given = changes.secret.map(valid_secret).transpose()?;
    one_of(given.as_ref().and_then(Option::as_ref), changes.generate_secret)?;
    let (generate, scheme) = (changes.generate_secret, changes.signature);
    let changes = WebhookChanges {
        url,
        events: changes.events,
        enabled: changes.enabled,
        retry: changes.retry,
        filters: changes.filters.map(Into::into),
        ..WebhookChanges::default()
    };
    let row = find::<WebhookRow>(&services.database, &id).await.map_err(|missing| {
        let change = WebhookCommand::Change(changes.clone());
        judged::<Webhook>(missing, [examples::webhook(), change])
    })?;
    if let Some(filters) = &changes.filters {
        // The body is validated before the names in it are looked up.
        if let Some(rejection) =
            invalid::<Webhook>([examples::webhook(), WebhookCommand::Change(changes.clone())])
        {
            return Err(rejection.into());
        }
        find_filtered(&services.database, filters, &row.filters.0).await?;
    }
    let is_cleared = given == Some(None);
    let secret =
        NewSecret::of(&services.sealer, &services.repetitions, &context, row.id, given.flatten(), generate)
            .await?;
    let change = match &secret {
        Some(secret) => SecretChange::Seal(secret.sealed.clone()),
        None if is_cleared => SecretChange::Clear,
        None => SecretChange::Keep,
    };
    let key = key_change(&services.sealer, &services.repetitions, &context, row.id, scheme).await?;
    let changes = WebhookChanges { secret: change, key, ..changes };
    let metadata = context.metadata(user.actor(), "change webhook");
    // The aggregate completes omitted fields, so concurrent changes lose nothing.
    let command = WebhookCommand::Change(changes);
    let written = services.commands.write::<Webhook>(row.id.0, versions, &metadata, &command).await?;
    changed(&services.database, &services.sealer, &id, written, secret).await
}

/// Delete a webhook subscription with its deliveries; those that wait are not delivered any more.
#[utoipa::path(delete, path = "/api/v1/webhooks/{id}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_webhook",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Admin>) -> Result<Response, Problem> {
    let row = change.find::<WebhookRow>().await?;
    let written = change.write::<Webhook>(row.id, "delete webhook", &WebhookCommand::Delete).await?;
    Ok(answer::success(written, "Webhook successfully deleted."))
}

impl Found for WebhookRow {
    const KIND: &'static str = "Webhook";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        webhooks::webhook(pool, id.into())
    }

    fn query_at(pool: &PgPool, id: Uuid, at: At) -> BoxFuture<'_, Result<Past<Self>, StateError>> {
        past_webhook(pool, id.into(), at)
    }
}

impl Shown for WebhookRow {
    const PATH: &'static str = "/api/v1/webhooks";
    type Out = WebhookOut;

    fn version(&self) -> i64 {
        self.version
    }
}

pub(super) fn valid_url(text: &str) -> Result<String, Problem> {
    Ok(target::parsed("url", text)?.0)
}

impl From<WebhookRow> for WebhookOut {
    fn from(row: WebhookRow) -> Self {
        let WebhookFilters { channels, labels, jobs, severity } = row.filters.0.clone();
        let channels = channels.iter().map(ToString::to_string).collect();
        let scheme = if row.sealed_key.is_some() { Scheme::V1a } else { Scheme::V1 };
        Self {
            signature: scheme.as_str(),
            old_secret_until: row.previous.as_ref().map(|previous| previous.until),
            filters: WebhookFiltersOut { channels, labels, jobs, severity },
            public_key: row.public_key.clone(),
            retry: row.retry.to_string(),
            public_id: row.id.to_string(),
            replaying: row.replay().is_some(),
            url: row.url,
            events: row.events.into_iter().map(String::from).collect(),
            enabled: row.enabled,
            has_secret: row.sealed_secret.is_some(),
            failing_since: row.failing_since,
            user_public_id: row.owner_id.to_string(),
            created_on: row.created_at,
            updated_on: row.updated_at,
        }
    }
}

/// A changed webhook subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookChangedOut {
    #[serde(flatten)]
    webhook: WebhookOut,
    /// The secret that was made; shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Faults of the secret for some receivers, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The answer to a change of the subscription that clients call `id` by a request that set `secret`.
pub(super) async fn changed(
    database: &Database,
    sealer: &Sealer,
    id: &str,
    written: Written,
    secret: Option<NewSecret>,
) -> Result<Response, Problem> {
    let warnings = NewSecret::warnings(secret.as_ref());
    let (row, secret) = NewSecret::written(database, sealer, id, written, secret).await?;
    let version = row.version;
    let is_secret = secret.is_some();
    let out = WebhookChangedOut { webhook: row.into(), secret, warnings };
    let response = answer::changed(written, version, &out);
    Ok(if is_secret { answer::unstored(response) } else { response })
}
