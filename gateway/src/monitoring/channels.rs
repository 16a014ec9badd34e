use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    kernel::ChannelId,
    monitoring::{Channel, ChannelChanges, ChannelCommand, ChannelSpec, ChannelType, Labels, NewChannel},
};
use signalbox_projections::monitoring::{
    ChannelRow,
    queries::{self, ChannelFilter},
};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::labels::LabelFilter;
use crate::{
    answer::{self, Page, StatusOut},
    auth::{Reader, Writer},
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Numeric, Params, Sort, Text, key, not_null, present},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, changed, find, find_at, find_written, shown},
    services::{commands::Commands, replica::Database},
    watching::Watching,
};

/// A channel, which clients call an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventOut {
    public_id: String,
    name: String,
    /// `sensor`, `actuator`, `range`, `cmd_button`, `cmd_opened` or `cmd_closed`.
    #[schema(value_type = crate::words::EventKind)]
    r#type: String,
    /// Measurement unit; empty when there is none, because existing controllers stop at a null.
    unit: String,
    /// Lower bound for displays and sliders.
    min_value: Option<f64>,
    /// Upper bound for displays and sliders.
    max_value: Option<f64>,
    /// Up to 20 pairs, which lists can be filtered by.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    description: Option<String>,
    /// Days that its values are kept, by day of arrival; 0 for ever, null for as long as those of other events.
    retention_days: Option<i32>,
    /// The user that created it.
    user_public_id: String,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// A new event.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EventIn {
    /// Unique, 1 to 255 characters.
    name: String,
    /// `sensor`, `actuator`, `range`, `cmd_button`, `cmd_opened` or `cmd_closed`.
    #[schema(value_type = crate::words::EventKind)]
    r#type: ChannelType,
    unit: Option<String>,
    #[schema(value_type = Option<f64>)]
    min_value: Option<Numeric<f64>>,
    #[schema(value_type = Option<f64>)]
    max_value: Option<Numeric<f64>>,
    /// Up to 20 pairs: keys of up to 64 letters, digits and `_` with no digit first, values of up to 255 characters.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    labels: Option<Labels>,
    /// Up to 2,000 characters.
    description: Option<String>,
    /// Days that its values are kept, in place of the setting `monitoring.retention_days`, shorter or longer; 0 for ever.
    #[schema(value_type = Option<u32>)]
    retention_days: Option<Numeric<u32>>,
}

/// Changes of an event; absent fields stay as they are, null clears unit, bounds, labels, description and retention time.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EventChangesIn {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::EventKind>, nullable = false)]
    r#type: Option<ChannelType>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    unit: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    min_value: Option<Option<Numeric<f64>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    max_value: Option<Option<Numeric<f64>>>,
    /// All labels that it has from now on.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    labels: Option<Option<Labels>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// Days that its values are kept; a lower number takes effect by two days an hour.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    retention_days: Option<Option<Numeric<u32>>>,
}

/// A created event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    event: EventOut,
}

/// Whether an event is deleted with its datapoints.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventDeleteParams {
    /// Whether its datapoints and their aggregates are deleted, too: for good, within seconds where nothing else is removed. An event
    /// that was deleted before is found by its id. False if absent.
    values: Option<bool>,
}

/// Which events are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventFilter {
    /// A type.
    #[param(value_type = Option<crate::words::EventKind>)]
    r#type: Option<ChannelType>,
    /// Part of the name.
    name: Option<String>,
}

/// List events, oldest first, so that an event stays on its page.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", security(("jwt" = [])), params(EnvelopeParams, Sort<ChannelRow>, EventFilter, LabelFilter), operation_id = "list_events",
    responses((status = 200, body = Page<EventOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Params(params): Params<EnvelopeParams>,
    sort: Sort<ChannelRow>,
    Params(filter): Params<EventFilter>,
    LabelFilter(labels): LabelFilter,
) -> Result<Json<Page<EventOut>>, Problem> {
    let filter = ChannelFilter { kind: filter.r#type.map(ChannelType::as_str), name: filter.name, labels };
    let page = params.page()?;
    let (rows, total) = database.read(|pool| queries::channels(pool, &filter, sort.order(), page)).await?;
    Ok(Json(params.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One event.
#[utoipa::path(get, path = "/api/v1/events/{id}", tag = "events", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_event",
    responses((status = 200, body = EventOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<ChannelRow>(&database, &id, at).await.map(shown)
}

/// Create an event.
#[utoipa::path(post, path = "/api/v1/events", tag = "events", security(("jwt" = [])), request_body = EventIn, operation_id = "create_event",
    responses((status = 201, body = EventCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(event): JsonBody<EventIn>,
) -> Result<Response, Problem> {
    let EventIn { name, r#type, unit, min_value, max_value, labels, description, retention_days } = event;
    let [min_value, max_value] = [min_value, max_value].map(|number| number.map(Numeric::get));
    let labels = labels.unwrap_or_default();
    let retention_days = retention_days.map(Numeric::get);
    let spec =
        ChannelSpec { name, kind: r#type, unit, min_value, max_value, labels, description, retention_days };
    let command = ChannelCommand::Create(NewChannel { number: 0, owner: user.id, spec });
    let metadata = context.metadata(user.actor(), "create channel");
    let written = commands.write::<Channel>(context.resource, None, &metadata, &command).await?;
    let row = find_written::<ChannelRow>(&database, &context.resource.to_string(), written).await?;
    let (version, location) = (row.version, format!("/api/v1/events/{}", row.id));
    let out =
        EventCreatedOut { status: "success", message: "Event successfully created.", event: row.into() };
    Ok(answer::created(written, &location, version, &out))
}

/// Change an event.
#[utoipa::path(put, path = "/api/v1/events/{id}", tag = "events", security(("jwt" = [])), params(("id" = String, Path,)), request_body = EventChangesIn, operation_id = "update_event",
    responses((status = 200, body = EventOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    change: Change<Writer>,
    JsonBody(changes): JsonBody<EventChangesIn>,
) -> Result<Response, Problem> {
    let EventChangesIn { name, r#type, unit, min_value, max_value, labels, description, retention_days } =
        changes;
    let [min_value, max_value] =
        [min_value, max_value].map(|given| given.map(|number| number.map(Numeric::get)));
    // The aggregate keeps fields that are left out, so concurrent changes lose nothing.
    let labels = labels.map(Option::unwrap_or_default);
    let command = ChannelCommand::Change(ChannelChanges {
        name,
        kind: r#type,
        unit,
        min_value,
        max_value,
        labels,
        description,
        retention_days: retention_days.map(|given| given.map(Numeric::get)),
    });
    let row = change
        .find::<ChannelRow>()
        .await
        .map_err(|missing| judged::<Channel>(missing, [examples::channel(), command.clone()]))?;
    let written = change.write::<Channel>(row.id, "change channel", &command).await?;
    changed::<ChannelRow>(&change.database, &change.id, written).await
}

/// Delete an event; its datapoints stay, unless `values=true` deletes them for good, also of an event that was deleted before. Rules
/// on it are disabled, which clears their alarms.
#[utoipa::path(delete, path = "/api/v1/events/{id}", tag = "events", security(("jwt" = [])), params(("id" = String, Path,), EventDeleteParams), operation_id = "delete_event",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn delete(
    change: Change<Writer>,
    Params(EventDeleteParams { values }): Params<EventDeleteParams>,
) -> Result<Response, Problem> {
    let values = values.unwrap_or(false);
    let row = match values {
        true => find_ever(&change.database, &change.id).await?,
        false => change.find::<ChannelRow>().await?,
    };
    let watching = Watching {
        database: &change.database,
        commands: &change.commands,
        user: &change.user,
        context: &change.context,
    };
    let rules = watching.enabled_rules(&[row.id]).await?;
    // The rules stay enabled if it fails.
    let written = change.write::<Channel>(row.id, "delete channel", &deletion(values)).await?;
    let disabled = watching.disable_rules_on(&[row.id], rules).await;
    Ok(answer::success(disabled.beside(written), "Event successfully deleted."))
}

/// The command that deletes an event, and its datapoints if `values` says so.
pub(crate) fn deletion(values: bool) -> ChannelCommand {
    if values { ChannelCommand::DeleteValues } else { ChannelCommand::Delete { values: false } }
}

/// The event that a client calls `id`, deleted or not.
async fn find_ever(database: &Database, id: &str) -> Result<ChannelRow, Problem> {
    let id = key(ChannelRow::KIND, id)?;
    let row = database.read(|pool| queries::channel_ever(pool, id.into())).await?;
    row.ok_or_else(|| Problem::not_found(ChannelRow::KIND))
}

impl Found for ChannelRow {
    const KIND: &'static str = "Event";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        queries::channel(pool, id.into())
    }
}

impl Shown for ChannelRow {
    const PATH: &'static str = "/api/v1/events";
    type Out = EventOut;

    fn version(&self) -> i64 {
        self.version
    }
}

/// The channel that a client calls `id`, which has to exist; forms send an empty text for none.
pub(crate) async fn optional_channel(
    database: &Database,
    id: Option<String>,
) -> Result<Option<ChannelId>, Problem> {
    let Some(id) = id.filter(|id| !id.trim().is_empty()) else { return Ok(None) };
    Ok(Some(find::<ChannelRow>(database, id.trim()).await?.id))
}

impl From<ChannelRow> for EventOut {
    fn from(row: ChannelRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            name: row.name,
            r#type: row.channel_type.into(),
            unit: row.unit.unwrap_or_default(),
            min_value: row.min_value,
            max_value: row.max_value,
            labels: row.labels.0,
            description: row.description,
            retention_days: row.retention_days,
            user_public_id: row.owner_id.to_string(),
            created_on: row.created_at,
            updated_on: row.updated_at,
        }
    }
}
