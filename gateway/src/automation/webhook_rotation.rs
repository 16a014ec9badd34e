//! Replaces the secret and the key pair of a webhook subscription.

use axum::{extract::State, response::Response};
use chrono::TimeDelta;
use serde::Deserialize;
use signalbox_domain::automation::{Webhook, WebhookCommand};
use signalbox_projections::automation::WebhookRow;
use signalbox_sealing::Sealer;
use utoipa::ToSchema;

use super::{
    webhook_keys::{NewSecret, new_key},
    webhooks::{WebhookChangedOut, changed},
};
use crate::{
    auth::Admin,
    context::RequestContext,
    extract::{OptionalBody, Text},
    idempotency::Repetitions,
    problem::{Problem, ProblemOut},
    resource::find,
    services::{commands::Commands, replica::Database},
};

/// Longest time that a replaced secret signs too, in seconds.
pub(crate) const MAX_KEEP_SECONDS: u32 = 30 * 24 * 3600;
/// That time if the request names none.
const DEFAULT_KEEP_SECONDS: u32 = 24 * 3600;

/// How long the replaced secret signs too.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RotateSecretIn {
    /// Seconds, at most 2,592,000 (30 days); a day if absent. With 0 the old secret is void at once.
    keep_old_seconds: Option<u32>,
}

/// Replace the secret by a new one, which the answer shows this once, and the key pair of a subscription that signs by `v1a`.
/// For a while deliveries are signed with both: `webhook-signature` carries both, the new one first; `X-Webhook-Signature` is by
/// the old secret until then, and by the new one afterwards. Only one old secret is kept: while it still signs, rotate with
/// `keep_old_seconds` 0 or wait, else 409.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/rotate-secret", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = Option<RotateSecretIn>, operation_id = "rotate_webhook_secret",
    responses((status = 200, body = WebhookChangedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn rotate(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(sealer): State<Sealer>,
    State(repetitions): State<Repetitions>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
    OptionalBody(RotateSecretIn { keep_old_seconds }): OptionalBody<RotateSecretIn>,
) -> Result<Response, Problem> {
    let seconds = keep_old_seconds.unwrap_or(DEFAULT_KEEP_SECONDS);
    if seconds > MAX_KEEP_SECONDS {
        return Err(Problem::field("keep_old_seconds", format!("must be at most {MAX_KEEP_SECONDS}")));
    }
    let webhook = find::<WebhookRow>(&database, &id).await?.id;
    let now = database.time().await?;
    let keep_until = (seconds > 0).then(|| now + TimeDelta::seconds(seconds.into()));
    let secret = NewSecret::of(&sealer, &repetitions, &context, webhook, None, true).await?;
    let sealed_secret = secret.as_ref().map(|secret| secret.sealed.clone()).unwrap_or_default();
    let key = new_key(&sealer, &repetitions, &context, webhook).await?;
    let command = WebhookCommand::RotateSecret { sealed_secret, key, keep_until, at: Some(now) };
    let metadata = context.metadata(user.actor(), "rotate webhook secret");
    let written = commands.write::<Webhook>(webhook.0, None, &metadata, &command).await?;
    changed(&database, &sealer, &id, written, secret).await
}
