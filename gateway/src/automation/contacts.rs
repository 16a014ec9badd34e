//! Contacts: the people and programs that are notified of alarms.

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, NaiveTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{
        CONTACT_IN_USE, ChatFormat, Contact, ContactChanges, ContactCommand, ContactKind, ContactSpec,
        Destination, DestinationChanges, NewContact, QuietHours, SealedAddress, SecretChange,
    },
    kernel::ContactId,
};
use signalbox_projections::automation::{
    contacts::{self, ContactFilter, ContactRow},
    rules,
};
use signalbox_sealing::Sealer;
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{webhook_keys::valid_secret, webhooks::valid_url};
use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, not_null, present},
    past::{AsOf, AtParams},
    problem::{ConflictOut, Problem, ProblemOut},
    resource::{Found, Shown, changed, find_at, find_written, shown},
    services::{commands::Commands, replica::Database},
    target,
};

/// Local times without seconds.
const TIME_OF_DAY: &str = "%H:%M";
/// A contact.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContactOut {
    public_id: String,
    name: String,
    /// `email`, `chat` or `webhook`.
    #[schema(value_type = crate::words::ContactKind)]
    kind: String,
    /// Mail address of a contact of kind `email`; else null.
    address: Option<String>,
    /// Where messages are posted to, of kind `webhook`; else null.
    url: Option<String>,
    /// Message format of kind `chat`; else null.
    #[schema(value_type = Option<crate::words::ChatFormat>)]
    format: Option<&'static str>,
    /// Host of the incoming webhook of kind `chat`, whose address is not shown again; else null.
    host: Option<String>,
    /// Whether there is a secret, which signs messages of kind `webhook`; it is not shown again.
    has_secret: bool,
    /// When it gets critical alarms only; null for never.
    quiet_hours: Option<QuietHoursOut>,
    /// The admin who made it.
    user_public_id: String,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// A part of each day in which a contact gets critical alarms only.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuietHoursOut {
    /// Local time, `HH:MM`.
    from: String,
    /// Local time of their end, `HH:MM`; of the next day, if it is not after `from`.
    to: String,
    /// IANA name, e.g. `Europe/Berlin`.
    timezone: String,
}

/// A part of each day in which a contact gets critical alarms only. Others are sent at its end, in one message.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct QuietHoursIn {
    /// Local time, `HH:MM`.
    from: String,
    /// Local time of their end, `HH:MM`; of the next day, if it is not after `from`.
    to: String,
    /// IANA name, e.g. `Europe/Berlin`.
    timezone: String,
}

/// A new contact.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ContactIn {
    /// Unique, 1 to 255 characters.
    name: String,
    /// `email`, `chat` (an incoming webhook of a chat) or `webhook`.
    #[schema(value_type = crate::words::ContactKind)]
    kind: ContactKind,
    /// Required by `email`: one mail address, without a name.
    address: Option<String>,
    /// Required by `chat` and `webhook`: starts with http:// or https://, at most 2048 characters.
    url: Option<String>,
    /// Required by `chat`.
    #[schema(value_type = Option<crate::words::ChatFormat>)]
    format: Option<ChatFormat>,
    /// Signs messages of kind `webhook`, at most 255 characters; `whsec_` and base64, to be verified by libraries of Standard Webhooks.
    secret: Option<String>,
    /// None, if absent.
    quiet_hours: Option<QuietHoursIn>,
}

/// Changes of a contact, whose kind stays; absent fields stay as they are, null clears the secret and the quiet hours.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ContactChangesIn {
    /// Its kind, if at all: a contact of another kind is made anew.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::ContactKind>, nullable = false)]
    kind: Option<ContactKind>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    address: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    url: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::ChatFormat>, nullable = false)]
    format: Option<ChatFormat>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    secret: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<QuietHoursIn>)]
    quiet_hours: Option<Option<QuietHoursIn>>,
}

/// A created contact.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContactCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    contact: ContactOut,
}

/// Which contacts are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContactParams {
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// `email`, `chat` or `webhook`.
    #[param(value_type = Option<crate::words::ContactKind>)]
    kind: Option<ContactKind>,
    /// Only contacts whose newest message that was attempted failed or was given up, or only the others.
    failing: Option<bool>,
}

/// List contacts, newest first.
#[utoipa::path(get, path = "/api/v1/contacts", tag = "contacts", security(("jwt" = [])), params(EnvelopeParams, Sort<ContactRow>, ContactParams), operation_id = "list_contacts",
    responses((status = 200, body = Page<ContactOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<ContactRow>,
    Params(ContactParams { name, kind, failing }): Params<ContactParams>,
) -> Result<Json<Page<ContactOut>>, Problem> {
    let filter = ContactFilter { name, kind, failing };
    let page = envelope.page()?;
    let (rows, total) = database.read(|pool| contacts::contacts(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One contact.
#[utoipa::path(get, path = "/api/v1/contacts/{id}", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_contact",
    responses((status = 200, body = ContactOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<ContactRow>(&database, &id, at).await.map(shown)
}

/// Create a contact. Rules that name it in `contact_ids` notify it of their alarms.
#[utoipa::path(post, path = "/api/v1/contacts", tag = "contacts", security(("jwt" = [])), request_body = ContactIn, operation_id = "create_contact",
    responses((status = 201, body = ContactCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(sealer): State<Sealer>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(contact): JsonBody<ContactIn>,
) -> Result<Response, Problem> {
    let id = context.resource;
    let ContactIn { name, kind, address, url, format, secret, quiet_hours } = contact;
    let given = Given { address, url, format, secret: secret.map(Some) };
    let spec = ContactSpec {
        name,
        destination: given.destination(&sealer, ContactId(id), kind)?,
        quiet_hours: quiet_hours.map(QuietHours::try_from).transpose()?,
    };
    let command = ContactCommand::Create(NewContact { owner: user.id, spec });
    let metadata = context.metadata(user.actor(), "create contact");
    let written = commands.write::<Contact>(id, None, &metadata, &command).await?;
    let row = find_written::<ContactRow>(&database, &id.to_string(), written).await?;
    let (version, location) = (row.version, format!("/api/v1/contacts/{}", row.id));
    let message = "Contact successfully created.";
    let out = ContactCreatedOut { status: "success", message, contact: row.into() };
    Ok(answer::created(written, &location, version, &out))
}

/// Change a contact. Messages that wait for it go to the new address.
#[utoipa::path(put, path = "/api/v1/contacts/{id}", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,)), request_body = ContactChangesIn, operation_id = "update_contact",
    responses((status = 200, body = ContactOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(sealer): State<Sealer>,
    change: Change<Admin>,
    JsonBody(changes): JsonBody<ContactChangesIn>,
) -> Result<Response, Problem> {
    let ContactChangesIn { kind, name, address, url, format, secret, quiet_hours } = changes;
    let given = Given { address, url, format, secret };
    let quiet_hours = quiet_hours.map(|hours| hours.map(QuietHours::try_from).transpose()).transpose()?;
    given.validate()?;
    let destination =
        given.address.clone().map(|address| DestinationChanges::Email { address: Some(address) });
    let mut changes = ContactChanges { name, destination, quiet_hours };
    let row = change.find::<ContactRow>().await.map_err(|missing| {
        judged::<Contact>(missing, [examples::contact(), ContactCommand::Change(changes.clone())])
    })?;
    let present = row.destination.kind();
    Problem::unless_kept("kind", "contact", present.as_str(), kind.map(ContactKind::as_str))?;
    changes.destination = given.changes(&sealer, row.id, present)?;
    // The aggregate completes omitted fields, so concurrent changes lose nothing.
    let command = ContactCommand::Change(changes);
    let written = change.write::<Contact>(row.id, "change contact", &command).await?;
    changed::<ContactRow>(&change.database, &change.id, written).await
}

/// Delete a contact with its messages; those that wait are not sent any more. Refused while rules name it.
#[utoipa::path(delete, path = "/api/v1/contacts/{id}", tag = "contacts", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_contact",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Admin>) -> Result<Response, Problem> {
    let row = change.find::<ContactRow>().await?;
    // Rules that an older release has made hold no claims on it.
    refuse_while_named(&change.database, row.id).await?;
    match change.write::<Contact>(row.id, "delete contact", &ContactCommand::Delete).await {
        Ok(written) => Ok(answer::success(written, "Contact successfully deleted.")),
        Err(rejection) if rejection.code == CONTACT_IN_USE => {
            refuse_while_named(&change.database, row.id).await?;
            // The rule that came first is not shown yet.
            Err(rejection.into())
        }
        Err(rejection) => Err(rejection.into()),
    }
}

/// Refuses when rules notify the contact `id`, and names them.
async fn refuse_while_named(database: &Database, id: ContactId) -> Result<(), Problem> {
    let rules = database.read(|pool| rules::rules_of_contact(pool, id)).await?;
    let Some(first) = rules.first() else { return Ok(()) };
    let names = rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>().join(", ");
    let others = first.total - i64::try_from(rules.len()).unwrap_or(i64::MAX);
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    let detail =
        format!("Rules notify this contact: {names}{more}. Take it out of them, or delete them, first.");
    let conflicts = rules.into_iter().map(|rule| ConflictOut {
        kind: "rule",
        public_id: rule.id.to_string(),
        name: rule.name,
    });
    Err(Problem::conflict(CONTACT_IN_USE, detail).with_conflicts(conflicts.collect()))
}

impl Found for ContactRow {
    const KIND: &'static str = "Contact";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        contacts::contact(pool, id.into())
    }
}

impl Shown for ContactRow {
    const PATH: &'static str = "/api/v1/contacts";
    type Out = ContactOut;

    fn version(&self) -> i64 {
        self.version
    }
}

/// The fields of a request that only contacts of some kinds have.
struct Given {
    address: Option<String>,
    url: Option<String>,
    format: Option<ChatFormat>,
    secret: Option<Option<String>>,
}

impl Given {
    /// Refuses fields that contacts of `kind` do not have: ignored, they would seem to be in force.
    fn check(&self, kind: ContactKind) -> Result<(), Problem> {
        let fields = [
            ("address", self.address.is_some(), kind == ContactKind::Email),
            ("url", self.url.is_some(), kind != ContactKind::Email),
            ("format", self.format.is_some(), kind == ContactKind::Chat),
            ("secret", matches!(self.secret, Some(Some(_))), kind == ContactKind::Webhook),
        ];
        match fields.into_iter().find(|(_, is_given, is_known)| *is_given && !is_known) {
            Some((field, ..)) => {
                Err(Problem::field(field, format!("is not a field of contacts of kind {}", kind.as_str())))
            }
            None => Ok(()),
        }
    }

    /// Checks the values that only the gateway can judge.
    fn validate(&self) -> Result<(), Problem> {
        self.url.as_deref().map(valid_url).transpose()?;
        self.secret.clone().map(valid_secret).transpose()?;
        Ok(())
    }

    fn destination(self, sealer: &Sealer, id: ContactId, kind: ContactKind) -> Result<Destination, Problem> {
        self.check(kind)?;
        let required = |field| {
            move || Problem::field(field, format!("is required for contacts of kind {}", kind.as_str()))
        };
        Ok(match kind {
            ContactKind::Email => {
                Destination::Email { address: self.address.ok_or_else(required("address"))? }
            }
            ContactKind::Chat => {
                let url = self.url.ok_or_else(required("url"))?;
                let format = self.format.ok_or_else(required("format"))?;
                let SealedAddress { sealed, host } = sealed_address(sealer, id, &url)?;
                Destination::Chat { format, sealed, host }
            }
            ContactKind::Webhook => {
                let url = valid_url(&self.url.ok_or_else(required("url"))?)?;
                let secret = valid_secret(self.secret.flatten())?;
                Destination::Webhook {
                    url,
                    sealed_secret: secret.map(|secret| seal(sealer, id, &secret)).transpose()?,
                }
            }
        })
    }

    /// The changes of a contact of `kind`; `None` without any.
    fn changes(
        self,
        sealer: &Sealer,
        id: ContactId,
        kind: ContactKind,
    ) -> Result<Option<DestinationChanges>, Problem> {
        self.check(kind)?;
        if self.address.is_none() && self.url.is_none() && self.format.is_none() && self.secret.is_none() {
            return Ok(None);
        }
        Ok(Some(match kind {
            ContactKind::Email => DestinationChanges::Email { address: self.address },
            ContactKind::Chat => {
                let address = self.url.map(|url| sealed_address(sealer, id, &url)).transpose()?;
                DestinationChanges::Chat { format: self.format, address }
            }
            ContactKind::Webhook => {
                let secret = match self.secret.map(valid_secret).transpose()? {
                    None => SecretChange::Keep,
                    Some(None) => SecretChange::Clear,
                    Some(Some(secret)) => SecretChange::Seal(seal(sealer, id, &secret)?),
                };
                let url = self.url.as_deref().map(valid_url).transpose()?;
                DestinationChanges::Webhook { url, secret }
            }
        }))
    }
}

fn seal(sealer: &Sealer, id: ContactId, text: &str) -> Result<String, Problem> {
    sealer.seal(id.0, text).map_err(|error| Problem::internal(&error))
}

/// The address of an incoming webhook, which is a secret: its knowledge permits to write.
fn sealed_address(sealer: &Sealer, id: ContactId, url: &str) -> Result<SealedAddress, Problem> {
    let (url, target) = target::parsed("url", url)?;
    Ok(SealedAddress { sealed: seal(sealer, id, &url)?, host: target.host().to_owned() })
}

impl TryFrom<QuietHoursIn> for QuietHours {
    type Error = Problem;

    fn try_from(QuietHoursIn { from, to, timezone }: QuietHoursIn) -> Result<Self, Problem> {
        let time = |text: &str| {
            NaiveTime::parse_from_str(text, TIME_OF_DAY)
                .map_err(|_| Problem::field("quiet_hours", "must have from and to as HH:MM"))
        };
        Ok(Self { from: time(&from)?, to: time(&to)?, timezone })
    }
}

impl From<QuietHours> for QuietHoursOut {
    fn from(QuietHours { from, to, timezone }: QuietHours) -> Self {
        let text = |time: NaiveTime| time.format(TIME_OF_DAY).to_string();
        Self { from: text(from), to: text(to), timezone }
    }
}

impl From<ContactRow> for ContactOut {
    fn from(row: ContactRow) -> Self {
        let mut out = Self {
            public_id: row.id.to_string(),
            name: row.name,
            kind: row.kind.into(),
            address: None,
            url: None,
            format: None,
            host: None,
            has_secret: false,
            quiet_hours: row.quiet_hours.map(|hours| hours.0.into()),
            user_public_id: row.owner_id.to_string(),
            created_on: row.created_at,
            updated_on: row.updated_at,
        };
        match row.destination.0 {
            Destination::Email { address } => out.address = Some(address),
            Destination::Chat { format, host, .. } => {
                (out.format, out.host) = (Some(format.as_str()), Some(host));
            }
            Destination::Webhook { url, sealed_secret } => {
                (out.url, out.has_secret) = (Some(url), sealed_secret.is_some());
            }
        }
        out
    }
}
