//! The receivers of deliveries: addresses of webhooks, chats and mailboxes.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use signalbox_domain::automation::{ChatFormat, Destination};
use signalbox_egress::{Egress, EgressError, InvalidTarget, Target};
use signalbox_mail::{Mail, MailError, Mailer};
use signalbox_projections::automation::{
    due::{DueBatch, DueDelivery},
    messages::MessageBody,
};
use signalbox_sealing::Sealer;
use signalbox_standard_webhooks::KeyError;

use super::{
    request::{Outgoing, USER_AGENT, headers},
    signing::Signing,
};

/// The ways to receivers, and the key to their secrets. Clones share them.
#[derive(Clone)]
pub struct Senders {
    /// Opens secrets of webhooks and contacts.
    pub sealer: Sealer,
    /// Requests to addresses that users name.
    pub egress: Egress,
    /// The same without this machine's own address: for callers who must not reach it.
    pub egress_without_loopback: Egress,
    /// Sends mails to contacts; `None` without a mail server.
    pub mailer: Option<Arc<Mailer>>,
}

/// Where the deliveries of a batch go.
#[derive(Debug)]
pub(super) enum Receiver {
    /// Signed requests.
    Webhook {
        target: Target,
        signing: Signing,
        no_loopback: bool,
    },
    /// The incoming webhook of a chat.
    Chat {
        target: Target,
        format: ChatFormat,
    },
    Mailbox {
        address: String,
    },
}

/// The outcome of an attempt.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Of HTTP, or the code of a mail server.
    pub(super) status: Option<u16>,
    /// A sentence; absent after a success.
    pub(super) error: Option<String>,
    /// `Retry-After`.
    pub(super) wait: Option<String>,
    /// Whether another attempt would be refused in the same way.
    pub(super) is_final: bool,
}

/// Reasons why nothing can be sent to a receiver.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiverError {
    #[error("The url {0}")]
    Target(#[from] InvalidTarget),
    #[error("The secret cannot be read: set it again")]
    Secret,
    #[error("No mail server is configured: set server and sender in [mail]")]
    NoMailServer,
}

/// Reasons why a request got no answer.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("The message cannot be read: {0}")]
    Body(#[from] serde_json::Error),
}

impl Answer {
    pub(super) fn failed(error: &dyn std::error::Error) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }

    fn of_http(status: StatusCode, head: &HeaderMap) -> Self {
        let error = (!status.is_success()).then(|| format!("HTTP {}", status.as_u16()));
        let wait = head.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let wait = wait.filter(|_| error.is_some());
        Self { status: Some(status.as_u16()), error, wait, is_final: false }
    }

    fn of_mail(sent: Result<u16, MailError>) -> Self {
        match sent {
            Ok(code) => Self { status: Some(code), ..Self::default() },
            Err(error) => Self { status: error.code(), is_final: error.is_final(), ..Self::failed(&error) },
        }
    }
}

impl Receiver {
    /// The receiver of `batch`, whose secrets are opened as they are at `now`.
    pub(super) async fn open(
        senders: &Senders,
        batch: &DueBatch,
        now: DateTime<Utc>,
    ) -> Result<Self, ReceiverError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, receiver = %batch.webhook_id, "the secret of a receiver cannot be read");
            ReceiverError::Secret
        };
        let signed = async |batch: &DueBatch| {
            let target = batch.url.parse()?;
            let signing =
                Signing::open(&senders.sealer, batch, now).await.map_err(|error| unreadable(&error))?;
            Ok(Self::Webhook { target, signing, no_loopback: batch.no_loopback })
        };
        let Some(destination) = &batch.destination else { return signed(batch).await };
        match destination.0.clone() {
            Destination::Webhook { url, sealed_secret } => {
                signed(&DueBatch { url, sealed_secret, ..batch.clone() }).await
            }
            Destination::Chat { format, sealed, .. } => {
                let url = senders.sealer.unseal(batch.webhook_id.0, &sealed).await;
                let url = url.map_err(|error| unreadable(&error))?;
                Ok(Self::Chat { target: url.expose().parse()?, format })
            }
            Destination::Email { address } => Ok(Self::Mailbox { address }),
        }
    }

    /// One attempt.
    pub(super) async fn send(
        &self,
        senders: &Senders,
        delivery: &DueDelivery,
        body: String,
        at: DateTime<Utc>,
    ) -> Answer {
        let answered = match self {
            Self::Webhook { target, signing, no_loopback } => {
                let egress = if *no_loopback { &senders.egress_without_loopback } else { &senders.egress };
                post_signed(egress, (target, signing), delivery, body, at).await
            }
            Self::Chat { target, format } => post_to_chat(&senders.egress, target, *format, &body).await,
            Self::Mailbox { address } => mail(senders, address, delivery, &body).await,
        };
        answered.unwrap_or_else(|error| Answer::failed(&error))
    }
}

async fn post_signed(
    egress: &Egress,
    (target, signing): (&Target, &Signing),
    delivery: &DueDelivery,
    body: String,
    at: DateTime<Utc>,
) -> Result<Answer, RequestError> {
    let outgoing = Outgoing {
        event_id: &delivery.event_id.to_string(),
        event_type: &delivery.event_type,
        attempt: delivery.attempts + 1,
        timestamp: at.timestamp(),
        body: &body,
    };
    let headers = headers(&outgoing, signing.sign(&outgoing.message(), at)?);
    let (status, head) = egress.post_for_head(target, headers, body.into_bytes()).await?;
    Ok(Answer::of_http(status, &head))
}

async fn post_to_chat(
    egress: &Egress,
    target: &Target,
    format: ChatFormat,
    body: &str,
) -> Result<Answer, RequestError> {
    let message: MessageBody = serde_json::from_str(body)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let body = message.chat_body(format).to_string().into_bytes();
    let (status, head) = egress.post_for_head(target, headers, body).await?;
    Ok(Answer::of_http(status, &head))
}

async fn mail(
    senders: &Senders,
    address: &str,
    delivery: &DueDelivery,
    body: &str,
) -> Result<Answer, RequestError> {
    let message: MessageBody = serde_json::from_str(body)?;
    let Some(mailer) = &senders.mailer else { return Ok(Answer::failed(&ReceiverError::NoMailServer)) };
    let (id, subject, text) = (delivery.event_id.to_string(), message.subject(), message.text());
    let mail = Mail { id: &id, to: address, subject: &subject, text: &text };
    Ok(Answer::of_mail(mailer.send(mail).await))
}
