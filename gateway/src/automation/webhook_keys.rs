//! The secrets and keys of a webhook subscription: set, made, replaced, and shown once.

use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{KeyChange, SigningKey},
    kernel::WebhookId,
};
use signalbox_projections::automation::WebhookRow;
use signalbox_sealing::Sealer;
use signalbox_standard_webhooks::{PrivateKey, is_standard_secret, secret_of};

use crate::{
    context::RequestContext,
    idempotency::Repetitions,
    problem::Problem,
    resource::{NotShown, after_write_or, find_at},
    services::replica::Database,
    state::Written,
};

/// Longest secret, in characters.
pub(crate) const MAX_SECRET: usize = 255;
const OTHER_FORM: &str = "The secret has not the form whsec_ and base64 that the libraries of Standard Webhooks need. \
    Deliveries are signed with its bytes as they are; generate_secret makes one that those libraries accept.";

/// Which signature `webhook-signature` carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheme {
    /// HMAC-SHA256 with the secret.
    V1,
    /// ed25519.
    V1a,
}

impl Scheme {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1a => "v1a",
        }
    }
}

/// A secret that a request sets.
pub(super) struct NewSecret {
    text: String,
    pub(super) sealed: String,
    /// Whether it was made here; only then is it shown.
    is_made: bool,
}

impl NewSecret {
    /// The secret that a request gives or asks for, if it does either.
    pub(super) async fn of(
        sealer: &Sealer,
        repetitions: &Repetitions,
        context: &RequestContext,
        webhook: WebhookId,
        given: Option<String>,
        generate: bool,
    ) -> Result<Option<Self>, Problem> {
        let (text, is_made) = match (given, generate) {
            (None, false) => return Ok(None),
            (Some(text), _) => (text, false),
            (None, true) => {
                let random = context.secret(repetitions).await?.derive("webhook secret", webhook.0)?;
                (secret_of(&random), true)
            }
        };
        let sealed = sealer.seal(webhook.0, &text).map_err(|error| Problem::internal(&error))?;
        Ok(Some(Self { text, sealed, is_made }))
    }

    /// Sentences about a secret that some receivers cannot use.
    pub(super) fn warnings(secret: Option<&Self>) -> Vec<String> {
        let has_other_form = secret.is_some_and(|secret| !is_standard_secret(&secret.text));
        has_other_form.then(|| OTHER_FORM.to_owned()).into_iter().collect()
    }

    /// The subscription that clients call `id` after the write `written` by a request that set `secret`, and its text, if it was made
    /// for this request and is still the subscription's.
    pub(super) async fn written(
        database: &Database,
        sealer: &Sealer,
        id: &str,
        written: Written,
        secret: Option<Self>,
    ) -> Result<(WebhookRow, Option<String>), Problem> {
        let made = secret.filter(|secret| secret.is_made);
        let not_shown = if made.is_some() { NotShown::SECRET } else { NotShown::RESOURCE };
        let (row, present) = after_write_or(not_shown, || async {
            let row = find_at::<WebhookRow>(database, id, written.unseen).await?;
            let present = match row.sealed_secret.as_ref().filter(|_| made.is_some()) {
                None => None,
                Some(sealed) => {
                    Some(sealer.unseal(row.id.0, sealed).await.map_err(|error| Problem::internal(&error))?)
                }
            };
            Ok((row, present))
        })
        .await?;
        let (Some(Self { text, .. }), Some(present)) = (made, present) else { return Ok((row, None)) };
        if present.expose() == text {
            return Ok((row, Some(text)));
        }
        let message = "This request was carried out before, and the secret has been replaced since.";
        Err(Problem::conflict("secret_replaced", message))
    }
}

/// A secret that a request gives. An empty one means none. It is not trimmed: receivers compare every character.
pub(super) fn valid_secret(secret: Option<String>) -> Result<Option<String>, Problem> {
    let secret = secret.filter(|secret| !secret.is_empty());
    match &secret {
        Some(text) if text.contains('\0') => Err(Problem::field("secret", "must not contain NUL characters")),
        Some(text) if text.chars().count() > MAX_SECRET => {
            Err(Problem::field("secret", format!("must be at most {MAX_SECRET} characters long")))
        }
        _ => Ok(secret),
    }
}

/// A secret is given or made, not both.
pub(super) fn one_of(given: Option<&String>, generate: bool) -> Result<(), Problem> {
    match given {
        Some(_) if generate => Err(Problem::field("secret", "and generate_secret exclude each other")),
        _ => Ok(()),
    }
}

/// A new key pair.
pub(super) async fn new_key(
    sealer: &Sealer,
    repetitions: &Repetitions,
    context: &RequestContext,
    webhook: WebhookId,
) -> Result<SigningKey, Problem> {
    let random = context.secret(repetitions).await?.derive("webhook key", webhook.0)?;
    let public = PrivateKey::of(&random).map_err(|error| Problem::internal(&error))?.public();
    let text = PrivateKey::text_of(&random);
    let sealed = sealer.seal(webhook.0, &text).map_err(|error| Problem::internal(&error))?;
    Ok(SigningKey { sealed, public })
}

/// The change that a requested scheme means.
pub(super) async fn key_change(
    sealer: &Sealer,
    repetitions: &Repetitions,
    context: &RequestContext,
    webhook: WebhookId,
    scheme: Option<Scheme>,
) -> Result<KeyChange, Problem> {
    Ok(match scheme {
        None => KeyChange::Keep,
        Some(Scheme::V1) => KeyChange::Clear,
        Some(Scheme::V1a) => KeyChange::Provide(new_key(sealer, repetitions, context, webhook).await?),
    })
}
