use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{
        ActionType, AlarmChanges, Condition, EventType, NewRule, NotificationChanges, NotificationSpec,
        Operator, Rule, RuleAction, RuleChanges, RuleCommand, RuleSpec, Severity,
    },
    kernel::{ChannelId, ContactId},
};
use signalbox_projections::{
    automation::{
        contacts::known_contacts,
        rules::{self, RuleFilter, RuleRow},
    },
    monitoring::ChannelRow,
};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    context::RequestContext,
    existence::{examples, judged},
    extract::{
        EnvelopeParams, IfMatch, JsonBody, Numeric, Params, Sort, Text, id, not_null, present, wanted,
    },
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, changed, find, find_at, shown},
    services::{commands::Commands, replica::Database},
    watching::judged as judged_by_alarms,
};

/// The field with the contacts of a rule's alarms.
const CONTACTS: &str = "contact_ids";
/// The field with those of an escalation.
const ESCALATION: &str = "escalation_contact_ids";
/// Seconds between two firings, if nothing else is said.
const DEFAULT_COOLDOWN: u32 = 60;

/// A rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleOut {
    public_id: String,
    name: String,
    /// The event whose datapoints it watches.
    event_public_id: String,
    /// `gt`, `lt`, `gte`, `lte`, `eq`, `between` or `not_between`.
    #[schema(value_type = crate::words::Operator)]
    operator: String,
    /// What values are compared with; the lower bound of a range.
    threshold: f64,
    /// Upper bound of a range.
    threshold_high: Option<f64>,
    /// `log` or `webhook`.
    #[schema(value_type = crate::words::ActionType)]
    action_type: String,
    /// The webhook event that it dispatches.
    #[schema(value_type = Option<crate::words::WebhookEvent>)]
    webhook_event_type: Option<String>,
    /// Least time between two firings.
    cooldown_seconds: i64,
    enabled: bool,
    /// Whether its condition is a state: the action runs once when an alarm starts to fire, not on each value.
    alarm: bool,
    /// How long the condition holds before an alarm fires; null without an alarm, as the following.
    for_seconds: Option<u32>,
    /// How long the condition must not hold before a firing alarm is cleared.
    keep_firing_seconds: Option<u32>,
    /// Once firing, an alarm stays up to this value.
    clear_threshold: Option<f64>,
    /// An alarm fires when more than so long has passed since the last value.
    no_data_seconds: Option<u32>,
    /// The condition is on the slope per second of the values in this window.
    rate_window_seconds: Option<u32>,
    /// `info`, `warning` or `critical`.
    #[schema(value_type = Option<crate::words::Severity>)]
    severity: Option<&'static str>,
    /// Contacts that are notified of its alarms.
    contact_ids: Vec<String>,
    /// A sentence about its alarms, in which `{channel}`, `{value}`, `{unit}`, `{threshold}` and `{duration}` are replaced.
    summary: Option<String>,
    /// Between reminders while an alarm fires and is not acknowledged.
    remind_seconds: Option<u32>,
    /// From firing until the following contacts are notified too, unless the alarm is acknowledged.
    escalate_seconds: Option<u32>,
    escalation_contact_ids: Vec<String>,
    /// Webhooks of its alarms are held back until then; null when they are not.
    silenced_until: Option<DateTime<Utc>>,
    /// Why they are held back.
    silence_comment: Option<String>,
    /// When the datapoint came in on which it fired last.
    last_triggered_at: Option<DateTime<Utc>>,
    /// Who made it.
    user_public_id: String,
    created_on: DateTime<Utc>,
    updated_on: DateTime<Utc>,
}

/// A new rule.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RuleIn {
    /// Unique, 1 to 255 characters.
    name: String,
    /// The event whose datapoints it watches.
    event_public_id: String,
    /// `gt`, `lt`, `gte`, `lte`, `eq` (within 1e-9), `between` or `not_between`.
    #[schema(value_type = crate::words::Operator)]
    operator: Operator,
    /// What values are compared with; the lower bound of a range.
    #[schema(value_type = f64)]
    threshold: Numeric<f64>,
    /// Upper bound of a range: required by `between` and `not_between`, not less than `threshold`.
    #[schema(value_type = Option<f64>)]
    threshold_high: Option<Numeric<f64>>,
    /// `log` or `webhook`.
    #[schema(value_type = crate::words::ActionType)]
    action_type: ActionType,
    /// Required by `webhook`: the event type that is dispatched.
    #[schema(value_type = Option<crate::words::RuleWebhookEvent>)]
    webhook_event_type: Option<EventType>,
    /// Least time between two firings, 60 if absent; with 0 it fires on every datapoint that matters.
    #[schema(value_type = Option<u32>)]
    cooldown_seconds: Option<Numeric<u32>>,
    /// True, if absent.
    enabled: Option<bool>,
    /// Makes the condition a state, with the semantics of Prometheus' alerting rules. False if absent, unless one of the
    /// following durations, windows or thresholds is given.
    alarm: Option<bool>,
    /// How long the condition holds before an alarm fires; 0 if absent.
    #[schema(value_type = Option<u32>)]
    for_seconds: Option<Numeric<u32>>,
    /// How long the condition must not hold before a firing alarm is cleared; 0 if absent.
    #[schema(value_type = Option<u32>)]
    keep_firing_seconds: Option<Numeric<u32>>,
    /// Once firing, an alarm stays while the value is not below it (`gt`, `gte`), or not above it (`lt`, `lte`).
    #[schema(value_type = Option<f64>)]
    clear_threshold: Option<Numeric<f64>>,
    /// An alarm fires when more than so long has passed since the last value, or since the rule was made, enabled or changed.
    #[schema(value_type = Option<u32>)]
    no_data_seconds: Option<Numeric<u32>>,
    /// The condition is on the least-squares slope per second of the values in this window, of which the newest 10,000 count. It
    /// does not hold with fewer than two.
    #[schema(value_type = Option<u32>)]
    rate_window_seconds: Option<Numeric<u32>>,
    /// Of its alarms: `info`, `warning` (if absent) or `critical`.
    #[schema(value_type = Option<crate::words::Severity>)]
    severity: Option<Severity>,
    /// Contacts that are notified of its alarms, at most 20.
    contact_ids: Option<Vec<String>>,
    /// A sentence about its alarms, in which `{channel}`, `{value}`, `{unit}`, `{threshold}` and `{duration}` are replaced.
    summary: Option<String>,
    /// Between reminders while an alarm fires and is not acknowledged.
    #[schema(value_type = Option<u32>)]
    remind_seconds: Option<Numeric<u32>>,
    /// From firing until `escalation_contact_ids` are notified too, unless the alarm is acknowledged.
    #[schema(value_type = Option<u32>)]
    escalate_seconds: Option<Numeric<u32>>,
    /// Contacts that are notified of an escalation, at most 20.
    escalation_contact_ids: Option<Vec<String>>,
}

impl RuleIn {
    /// The rule that the body describes. Its own faults are reported before its event is looked up.
    pub(super) async fn specify(self, database: &Database) -> Result<RuleSpec, Problem> {
        let alarm = AlarmChanges {
            alarm: self.alarm,
            for_seconds: self.for_seconds.map(|seconds| Some(seconds.get())),
            keep_firing_seconds: self.keep_firing_seconds.map(|seconds| Some(seconds.get())),
            clear_threshold: self.clear_threshold.map(|threshold| Some(threshold.get())),
            no_data_seconds: self.no_data_seconds.map(|seconds| Some(seconds.get())),
            rate_window_seconds: self.rate_window_seconds.map(|seconds| Some(seconds.get())),
            severity: self.severity,
        };
        let number = |given: Option<Numeric<u32>>| given.map(|number| Some(number.get()));
        let notify = NotificationChanges {
            contacts: self.contact_ids.map(|ids| contacts(CONTACTS, &ids)).transpose()?.map(Some),
            summary: self.summary.map(Some),
            remind_seconds: number(self.remind_seconds),
            escalate_seconds: number(self.escalate_seconds),
            escalation_contacts: self
                .escalation_contact_ids
                .map(|ids| contacts(ESCALATION, &ids))
                .transpose()?
                .map(Some),
        };
        let named = notify.clone();
        let spec = RuleSpec {
            name: self.name,
            channel: ChannelId(Uuid::nil()),
            condition: Condition {
                operator: self.operator,
                threshold: self.threshold.get(),
                threshold_high: self.threshold_high.map(Numeric::get),
            },
            action: RuleAction::of(self.action_type, self.webhook_event_type)?.permitted()?,
            cooldown_seconds: self.cooldown_seconds.map_or(DEFAULT_COOLDOWN, Numeric::get),
            enabled: self.enabled.unwrap_or(true),
            alarm: alarm.with(&notify).apply(None)?,
            notify: notify.apply(NotificationSpec::default()),
        };
        let spec = spec.validate()?;
        let channel = channel(database, &self.event_public_id).await?;
        find_contacts(database, &named, &NotificationSpec::default()).await?;
        Ok(RuleSpec { channel, ..spec })
    }
}

/// Changes of a rule; absent fields stay as they are, null clears the upper bound, the event type and settings of alarms.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RuleChangesIn {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    event_public_id: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::Operator>, nullable = false)]
    operator: Option<Operator>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<f64>, nullable = false)]
    threshold: Option<Numeric<f64>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    threshold_high: Option<Option<Numeric<f64>>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::ActionType>, nullable = false)]
    action_type: Option<ActionType>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<crate::words::WebhookEvent>)]
    webhook_event_type: Option<Option<EventType>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<u32>, nullable = false)]
    cooldown_seconds: Option<Numeric<u32>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
    /// False clears its alarms, and each value that matters fires the rule; true when one of the following is given.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    alarm: Option<bool>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    for_seconds: Option<Option<Numeric<u32>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    keep_firing_seconds: Option<Option<Numeric<u32>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<f64>)]
    clear_threshold: Option<Option<Numeric<f64>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    no_data_seconds: Option<Option<Numeric<u32>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    rate_window_seconds: Option<Option<Numeric<u32>>>,
    #[schema(value_type = Option<crate::words::Severity>)]
    severity: Option<Severity>,
    #[serde(default, deserialize_with = "present")]
    contact_ids: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "present")]
    summary: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    remind_seconds: Option<Option<Numeric<u32>>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    escalate_seconds: Option<Option<Numeric<u32>>>,
    #[serde(default, deserialize_with = "present")]
    escalation_contact_ids: Option<Option<Vec<String>>>,
}

/// A created rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    rule: RuleOut,
}

/// Which rules are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuleParams {
    /// Part of the name, in any case of letters.
    name: Option<String>,
    /// The event that they watch.
    event_public_id: Option<String>,
    /// Whether they watch.
    enabled: Option<bool>,
    /// `log` or `webhook`.
    #[param(value_type = Option<crate::words::ActionType>)]
    action_type: Option<ActionType>,
}

/// List rules, newest first.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", security(("jwt" = [])), params(EnvelopeParams, Sort<RuleRow>, RuleParams), operation_id = "list_rules",
    responses((status = 200, body = Page<RuleOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<RuleRow>,
    Params(params): Params<RuleParams>,
) -> Result<Json<Page<RuleOut>>, Problem> {
    let RuleParams { name, event_public_id, enabled, action_type } = params;
    let filter = RuleFilter {
        name,
        channel: wanted(event_public_id),
        enabled,
        action_type: action_type.map(ActionType::as_str),
    };
    let page = envelope.page()?;
    let (rows, total) = database.read(|pool| rules::rules(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One rule.
#[utoipa::path(get, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_rule",
    responses((status = 200, body = RuleOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<RuleRow>(&database, &id, at).await.map(shown)
}

/// Create a rule. It watches every datapoint that is sent after the answer.
#[utoipa::path(post, path = "/api/v1/rules", tag = "rules", security(("jwt" = [])), request_body = RuleIn, operation_id = "create_rule",
    responses((status = 201, body = RuleCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(rule): JsonBody<RuleIn>,
) -> Result<Response, Problem> {
    let spec = rule.specify(&database).await?;
    let command = RuleCommand::Create(NewRule { owner: user.id, spec, after: 0 });
    let metadata = context.metadata(user.actor(), "create rule");
    let written = commands.write::<Rule>(context.resource, None, &metadata, &command).await?;
    let row = find_at::<RuleRow>(&database, &context.resource.to_string(), written.unseen).await?;
    let (version, location) = (row.version, format!("/api/v1/rules/{}", row.id));
    let out = RuleCreatedOut { status: "success", message: "Rule successfully created.", rule: row.into() };
    Ok(answer::created(written, &location, version, &out))
}

/// Change a rule. The change is in force for every datapoint that is sent after the answer.
#[utoipa::path(put, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RuleChangesIn, operation_id = "update_rule",
    responses((status = 200, body = RuleOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
    JsonBody(changes): JsonBody<RuleChangesIn>,
) -> Result<Response, Problem> {
    let event = changes.event_public_id;
    let number = |given: Option<Option<Numeric<u32>>>| given.map(|number| number.map(Numeric::get));
    let listed = |field, given: Option<Option<Vec<String>>>| {
        given.map(|ids| ids.map(|ids| contacts(field, &ids)).transpose()).transpose()
    };
    let mut changes = RuleChanges {
        name: changes.name,
        channel: None,
        operator: changes.operator,
        threshold: changes.threshold.map(Numeric::get),
        threshold_high: changes.threshold_high.map(|high| high.map(Numeric::get)),
        action_type: changes.action_type,
        webhook_event_type: changes.webhook_event_type,
        cooldown_seconds: changes.cooldown_seconds.map(Numeric::get),
        enabled: changes.enabled,
        alarm: AlarmChanges {
            alarm: changes.alarm,
            for_seconds: number(changes.for_seconds),
            keep_firing_seconds: number(changes.keep_firing_seconds),
            clear_threshold: changes.clear_threshold.map(|clear| clear.map(Numeric::get)),
            no_data_seconds: number(changes.no_data_seconds),
            rate_window_seconds: number(changes.rate_window_seconds),
            severity: changes.severity,
        },
        notify: NotificationChanges {
            contacts: listed(CONTACTS, changes.contact_ids)?,
            summary: changes.summary,
            remind_seconds: number(changes.remind_seconds),
            escalate_seconds: number(changes.escalate_seconds),
            escalation_contacts: listed(ESCALATION, changes.escalation_contact_ids)?,
        },
    };
    let row = find::<RuleRow>(&database, &id).await.map_err(|missing| {
        let change = RuleCommand::Change { changes: changes.clone(), after: 0 };
        judged::<Rule>(missing, [examples::rule(), change])
    })?;
    // The body is validated before the names in it are looked up.
    let is_enabled = match row.spec() {
        Some(spec) => spec.with(changes.clone())?.enabled,
        None => row.enabled,
    };
    match &event {
        Some(id) => changes.channel = Some(channel(&database, id).await?),
        // No value can end the alarm of a channel that is gone.
        None if is_enabled => drop(channel(&database, &row.channel_id.to_string()).await?),
        None => {}
    }
    find_contacts(&database, &changes.notify, &row.notify).await?;
    // The aggregate completes omitted fields, so concurrent changes lose nothing.
    let command = RuleCommand::Change { changes, after: 0 };
    let metadata = context.metadata(user.actor(), "change rule");
    let written = commands.write::<Rule>(row.id, version, &metadata, &command).await?;
    let written = judged_by_alarms(&database, &commands, row.id, written).await;
    changed::<RuleRow>(&database, &id, written).await
}

/// Delete a rule.
#[utoipa::path(delete, path = "/api/v1/rules/{id}", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_rule",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    IfMatch(version): IfMatch,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find::<RuleRow>(&database, &id).await?;
    let metadata = context.metadata(user.actor(), "delete rule");
    let written =
        commands.write::<Rule>(row.id, version, &metadata, &RuleCommand::Delete { after: 0 }).await?;
    let written = judged_by_alarms(&database, &commands, row.id, written).await;
    Ok(answer::success(written, "Rule successfully deleted."))
}

impl Found for RuleRow {
    const KIND: &'static str = "Rule";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        rules::rule(pool, id)
    }
}

impl Shown for RuleRow {
    const PATH: &'static str = "/api/v1/rules";
    type Out = RuleOut;

    fn version(&self) -> i64 {
        self.version
    }
}

/// The channel that a client calls `id`.
pub(super) async fn channel(database: &Database, id: &str) -> Result<ChannelId, Problem> {
    if id.contains('\0') || id.len() > 255 {
        return Err(Problem::field("event_public_id", "must be the id of an event"));
    }
    Ok(ChannelId(find::<ChannelRow>(database, id).await?.id))
}

/// The contacts that a client calls `ids` in `field`.
fn contacts(field: &str, ids: &[String]) -> Result<Vec<ContactId>, Problem> {
    let known = |(place, text): (usize, &String)| {
        id(text).map(ContactId).ok_or_else(|| Problem::not_found_in("Contact", field, place))
    };
    ids.iter().enumerate().map(known).collect()
}

/// Refuses contacts that do not exist, and says which one it is. Those that are named already may stay: an older release let
/// them be deleted. The aggregate holds on to those that exist.
async fn find_contacts(
    database: &Database,
    named: &NotificationChanges,
    before: &NotificationSpec,
) -> Result<(), Problem> {
    let before = before.all_contacts();
    let lists = [(CONTACTS, &named.contacts), (ESCALATION, &named.escalation_contacts)];
    let named: Vec<_> = lists
        .into_iter()
        .flat_map(|(field, contacts)| {
            let ids = contacts.iter().flatten().flatten().enumerate();
            ids.map(move |(place, contact)| (field, place, contact))
        })
        .filter(|(.., contact)| !before.contains(contact))
        .map(|(field, place, contact)| (field, place, contact.0))
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = named.iter().map(|(.., id)| *id).collect();
    let known = database.read(|pool| known_contacts(pool, &ids)).await?;
    match named.into_iter().find(|(.., id)| !known.contains(id)) {
        Some((field, place, _)) => Err(Problem::not_found_in("Contact", field, place)),
        None => Ok(()),
    }
}

impl From<RuleRow> for RuleOut {
    fn from(row: RuleRow) -> Self {
        let ids = |contacts: &[ContactId]| contacts.iter().map(ToString::to_string).collect();
        Self {
            contact_ids: ids(&row.notify.contacts),
            escalation_contact_ids: ids(&row.notify.escalation_contacts),
            remind_seconds: row.notify.remind_seconds,
            escalate_seconds: row.notify.escalate_seconds,
            summary: row.notify.summary,
            public_id: row.id.to_string(),
            name: row.name,
            event_public_id: row.channel_id.to_string(),
            operator: row.operator,
            threshold: row.threshold,
            threshold_high: row.threshold_high,
            action_type: row.action_type,
            webhook_event_type: row.webhook_event_type,
            cooldown_seconds: row.cooldown_seconds,
            enabled: row.enabled,
            alarm: row.alarm.is_some(),
            for_seconds: row.alarm.map(|alarm| alarm.for_seconds),
            keep_firing_seconds: row.alarm.map(|alarm| alarm.keep_firing_seconds),
            clear_threshold: row.alarm.and_then(|alarm| alarm.clear_threshold),
            no_data_seconds: row.alarm.and_then(|alarm| alarm.no_data_seconds),
            rate_window_seconds: row.alarm.and_then(|alarm| alarm.rate_window_seconds),
            severity: row.alarm.map(|alarm| alarm.severity.as_str()),
            silenced_until: row.silenced_until,
            silence_comment: row.silence_comment,
            last_triggered_at: row.last_triggered_at,
            user_public_id: row.owner_id.to_string(),
            created_on: row.created_at,
            updated_on: row.updated_at,
        }
    }
}
