//! Alarms of rules: their state, now and before, acknowledgements, and silences.

use std::collections::HashMap;

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    automation::{
        Acknowledged, Alarm, AlarmCommand, AlarmState, DeliveryStatus, Rule, RuleCommand, Severity, Silence,
        fault_class,
    },
    identity::Role,
};
use signalbox_projections::{
    automation::{
        AlarmRow, RuleRow,
        alarms::{self, AlarmFilter},
        deliveries::{self, AlarmMessageRow},
        past_delivery, rules,
    },
    register::{At, past},
};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::{self, Page},
    auth::{Reader, Writer},
    change::Change,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, OptionalBody, Params, Sort, Text, wanted},
    monitoring::LabelFilter,
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    resource::{Found, after_write, find_at, find_written},
    services::replica::Database,
    state::Written,
};

/// Messages that are shown of an alarm.
const SHOWN_NOTIFICATIONS: i64 = 10;
/// Longest silence: a year.
const MAX_SILENCE: TimeDelta = TimeDelta::days(366);

/// An alarm. `started_on`, `fired_on` and `cleared_on` are by the clock of its channel: the time at which the newest value was
/// measured, and what has passed since that value arrived.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlarmOut {
    public_id: String,
    rule_public_id: String,
    /// The event that the rule watches.
    event_public_id: String,
    /// `pending`, `firing` or `cleared`.
    #[schema(value_type = crate::words::AlarmState)]
    state: String,
    /// `condition`, or `no_data` when the event is silent.
    #[schema(value_type = crate::words::AlarmReason)]
    reason: String,
    /// `info`, `warning` or `critical`.
    #[schema(value_type = crate::words::Severity)]
    severity: String,
    /// The newest value that was judged; null when there was none.
    value: Option<f64>,
    /// When its condition began to hold, or was silent for too long.
    started_on: DateTime<Utc>,
    /// Null while it is pending, and when it was cleared before it fired.
    fired_on: Option<DateTime<Utc>>,
    /// Null while it is open.
    cleared_on: Option<DateTime<Utc>>,
    /// When a user acknowledged it; null before.
    acknowledged_on: Option<DateTime<Utc>>,
    /// That user's id.
    acknowledged_by: Option<String>,
    /// Comment of that user.
    comment: Option<String>,
    /// When its start was recorded.
    created_on: DateTime<Utc>,
    /// The newest 10 messages about it, oldest first; in lists as of a moment the newest one.
    notifications: Vec<NotificationOut>,
}

/// A message about an alarm.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotificationOut {
    contact_public_id: String,
    #[schema(value_type = crate::words::NotificationKind)]
    kind: String,
    /// `pending`, `delivered`, `failed` (another attempt follows) or `dead_letter`.
    #[schema(value_type = crate::words::DeliveryStatus)]
    status: String,
    /// Attempts that have ended.
    attempts: i32,
    /// When it was delivered; null before.
    sent_on: Option<DateTime<Utc>>,
    /// Fault of the last attempt, for admins in the words of the receiver; null after a success.
    error: Option<String>,
}

/// Which alarms are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AlarmParams {
    /// `pending`, `firing` or `cleared`.
    #[param(value_type = Option<crate::words::AlarmState>)]
    state: Option<AlarmState>,
    /// `info`, `warning` or `critical`.
    #[param(value_type = Option<crate::words::Severity>)]
    severity: Option<Severity>,
    /// The rule that they belong to.
    rule_public_id: Option<String>,
    /// The event that the rule watches.
    event_public_id: Option<String>,
    /// Open at this time or later, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Started before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// The acknowledgement of an alarm.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct AcknowledgeIn {
    /// 1 to 500 characters.
    comment: Option<String>,
}

/// For how long webhooks of a rule's alarms are held back.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SilenceIn {
    /// RFC 3339, at most a year ahead; null ends the silence.
    #[serde(deserialize_with = "signalbox_domain::kernel::optional_time")]
    #[schema(required = true)]
    until: Option<DateTime<Utc>>,
    /// Why, 1 to 500 characters.
    comment: Option<String>,
}

/// The silence of a rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SilenceOut {
    rule_public_id: String,
    /// Null when the rule is not silenced.
    silenced_until: Option<DateTime<Utc>>,
    /// The comment of the user who silenced it.
    silence_comment: Option<String>,
}

/// List alarms, newest first. With `at` they are those of that moment, in the states that they had.
#[utoipa::path(get, path = "/api/v1/alarms", tag = "alarms", security(("jwt" = [])), params(EnvelopeParams, Sort<AlarmRow>, AlarmParams, LabelFilter, AtParams), operation_id = "list_alarms",
    responses((status = 200, body = Page<AlarmOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    Reader(reader): Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<AlarmRow>,
    Params(params): Params<AlarmParams>,
    LabelFilter(labels): LabelFilter,
    AsOf(at): AsOf,
) -> Result<Json<Page<AlarmOut>>, Problem> {
    if params.from.zip(params.to).is_some_and(|(from, to)| from > to) {
        return Err(Problem::field("from", "must not be after to"));
    }
    let filter = AlarmFilter {
        state: params.state.map(AlarmState::as_str),
        severity: params.severity.map(Severity::as_str),
        rule: wanted(params.rule_public_id),
        channel: wanted(params.event_public_id),
        labels,
        from: params.from,
        to: params.to,
        at: at.map(|at| at.position),
    };
    let page = envelope.page()?;
    let (mut rows, total) = database.read(|pool| alarms::alarms(pool, &filter, sort.order(), page)).await?;
    if let Some(at) = at {
        for row in &mut rows {
            *row = there("Alarm", past::<AlarmRow>(&database.primary, row.id.0, at).await?)?;
        }
    }
    Ok(Json(envelope.envelope(total, with_notifications(&database, rows, at, reader.role).await?)))
}

/// One alarm.
#[utoipa::path(get, path = "/api/v1/alarms/{id}", tag = "alarms", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_alarm",
    responses((status = 200, body = AlarmOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    Reader(reader): Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let row = find_at::<AlarmRow>(&database, &id, at).await?;
    Ok(answer::resource(row.version, &shown(&database, row, at, reader.role).await?))
}

/// Acknowledge an alarm that is not cleared. Another comment replaces the one before.
#[utoipa::path(post, path = "/api/v1/alarms/{id}/acknowledge", tag = "alarms", security(("jwt" = [])), params(("id" = String, Path,)), request_body = Option<AcknowledgeIn>, operation_id = "acknowledge_alarm",
    responses((status = 200, body = AlarmOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn acknowledge(
    State(server_clock): State<SharedServerClock>,
    change: Change<Writer>,
    OptionalBody(AcknowledgeIn { comment }): OptionalBody<AcknowledgeIn>,
) -> Result<Response, Problem> {
    let mut by = Acknowledged { user: change.user.id, comment, silenced: false };
    let row = change.find::<AlarmRow>().await.map_err(|missing| {
        judged::<Alarm>(missing, [examples::alarm(), AlarmCommand::Acknowledge(by.clone())])
    })?;
    let rule = change.database.read(|pool| rules::rule(pool, row.rule_id)).await?;
    let now = server_clock.now();
    by.silenced = rule.is_some_and(|rule| rule.is_silenced(now));
    let written = change.write::<Alarm>(row.id, "acknowledge alarm", &AlarmCommand::Acknowledge(by)).await?;
    changed(&change, written).await
}

/// Take back the acknowledgement of an alarm.
#[utoipa::path(post, path = "/api/v1/alarms/{id}/unacknowledge", tag = "alarms", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "unacknowledge_alarm",
    responses((status = 200, body = AlarmOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn unacknowledge(change: Change<Writer>) -> Result<Response, Problem> {
    let row = change.find::<AlarmRow>().await?;
    let written = change.write::<Alarm>(row.id, "unacknowledge alarm", &AlarmCommand::Unacknowledge).await?;
    changed(&change, written).await
}

/// The answer to the write `written` of an alarm.
async fn changed(change: &Change<Writer>, written: Written) -> Result<Response, Problem> {
    let (version, out) = after_write(|| async {
        let row = find_at::<AlarmRow>(&change.database, &change.id, written.unseen).await?;
        let version = row.version;
        Ok((version, shown(&change.database, row, written.unseen, change.user.role).await?))
    })
    .await?;
    Ok(answer::changed(written, version, &out))
}

/// Hold back the webhooks of a rule's alarms, which keep their states. When the silence ends, alarms that still fire are
/// published.
#[utoipa::path(post, path = "/api/v1/rules/{id}/silence", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = SilenceIn, operation_id = "silence_rule",
    responses((status = 200, body = SilenceOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn silence(
    State(server_clock): State<SharedServerClock>,
    change: Change<Writer>,
    JsonBody(SilenceIn { until, comment }): JsonBody<SilenceIn>,
) -> Result<Response, Problem> {
    let now = server_clock.now();
    if until.is_some_and(|until| until <= now || until > now + MAX_SILENCE) {
        return Err(Problem::field("until", "must be in the future, by at most 366 days"));
    }
    let command = RuleCommand::Silence(Silence { until, comment });
    let row = change
        .find::<RuleRow>()
        .await
        .map_err(|missing| judged::<Rule>(missing, [examples::rule(), command.clone()]))?;
    let written = change.write::<Rule>(row.id, "silence rule", &command).await?;
    let row = find_written::<RuleRow>(&change.database, &change.id, written).await?;
    let out = SilenceOut {
        rule_public_id: row.id.to_string(),
        silenced_until: row.silenced_until,
        silence_comment: row.silence_comment,
    };
    Ok(answer::changed(written, row.version, &out))
}

impl Found for AlarmRow {
    const KIND: &'static str = "Alarm";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        alarms::alarm(pool, id.into())
    }
}

/// `row`, which is of the moment `at` or of now, with its messages.
async fn shown(
    database: &Database,
    row: AlarmRow,
    at: Option<At>,
    reader: Role,
) -> Result<AlarmOut, Problem> {
    let mut shown = with_notifications(database, vec![row], at, reader).await?;
    shown.pop().ok_or_else(|| Problem::not_found("Alarm"))
}

/// `rows`, which are of the moment `at` or of now, with their messages.
async fn with_notifications(
    database: &Database,
    rows: Vec<AlarmRow>,
    at: Option<At>,
    reader: Role,
) -> Result<Vec<AlarmOut>, Problem> {
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let until = at.map(|at| at.position);
    // Each message of the past is read by itself.
    let most = if at.is_some() && ids.len() > 1 { 1 } else { SHOWN_NOTIFICATIONS };
    let found = database.read(|pool| deliveries::messages_about(pool, &ids, until, most)).await?;
    let mut by_alarm = HashMap::<_, Vec<_>>::new();
    for mut message in found {
        if let Some(at) = at {
            let then = past_delivery(&database.primary, message.batch_id, message.id, at).await?;
            message.become_as(&there("Delivery", then)?);
        }
        by_alarm.entry(message.alarm_id).or_default().push(NotificationOut::of(message, reader));
    }
    let shown = rows.into_iter().map(|row| {
        let notifications = by_alarm.remove(&row.id).unwrap_or_default();
        AlarmOut::of(row, notifications)
    });
    Ok(shown.collect())
}

impl NotificationOut {
    /// `row` as `reader` may see it: the receiver's words can name addresses and people, and are for managers of contacts.
    fn of(row: AlarmMessageRow, reader: Role) -> Self {
        let status = row.response_code.and_then(|code| u16::try_from(code).ok());
        let error = row.last_error.map(|words| match reader {
            Role::Admin => words,
            Role::Operator | Role::Viewer => fault_class(status),
        });
        Self {
            contact_public_id: row.contact_id.to_string(),
            kind: row.kind.into(),
            sent_on: row.ended_at.filter(|_| row.status.is(DeliveryStatus::Delivered)),
            status: row.status.into(),
            attempts: row.attempts,
            error,
        }
    }
}

impl AlarmOut {
    fn of(row: AlarmRow, notifications: Vec<NotificationOut>) -> Self {
        Self {
            notifications,
            public_id: row.id.to_string(),
            rule_public_id: row.rule_id.to_string(),
            event_public_id: row.channel_id.to_string(),
            state: row.state.into(),
            reason: row.reason.into(),
            severity: row.severity.into(),
            value: row.value,
            started_on: row.started_on,
            fired_on: row.fired_on,
            cleared_on: row.cleared_on,
            acknowledged_on: row.acknowledged_at,
            acknowledged_by: row.acknowledged_by.map(|user| user.to_string()),
            comment: row.comment,
            created_on: row.created_at,
        }
    }
}
