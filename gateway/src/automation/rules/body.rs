//! The bodies of requests and answers about rules.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{
        ActionType, AlarmChanges, Condition, EventType, NotificationChanges, NotificationSpec, Operator,
        RuleAction, RuleChanges, RuleSpec, Severity,
    },
    kernel::{ChannelId, ContactId},
};
use signalbox_projections::automation::rules::RuleRow;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    automation::rule_references::{CONTACTS, ESCALATION, channel, contacts, find_contacts},
    extract::{Numeric, not_null, present},
    problem::Problem,
    services::replica::Database,
};

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
    /// The number that values are compared with; the lower bound of a range.
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
    /// The user that created it.
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
    /// The number that values are compared with; the lower bound of a range.
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
    pub(in crate::automation) async fn specify(self, database: &Database) -> Result<RuleSpec, Problem> {
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
    pub(super) event_public_id: Option<String>,
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

impl RuleChangesIn {
    /// The changes that the body describes, without the event, which is looked up.
    pub(super) fn into_changes(self) -> Result<RuleChanges, Problem> {
        let number = |given: Option<Option<Numeric<u32>>>| given.map(|number| number.map(Numeric::get));
        let listed = |field, given: Option<Option<Vec<String>>>| {
            given.map(|ids| ids.map(|ids| contacts(field, &ids)).transpose()).transpose()
        };
        Ok(RuleChanges {
            name: self.name,
            channel: None,
            operator: self.operator,
            threshold: self.threshold.map(Numeric::get),
            threshold_high: self.threshold_high.map(|high| high.map(Numeric::get)),
            action_type: self.action_type,
            webhook_event_type: self.webhook_event_type,
            cooldown_seconds: self.cooldown_seconds.map(Numeric::get),
            enabled: self.enabled,
            alarm: AlarmChanges {
                alarm: self.alarm,
                for_seconds: number(self.for_seconds),
                keep_firing_seconds: number(self.keep_firing_seconds),
                clear_threshold: self.clear_threshold.map(|clear| clear.map(Numeric::get)),
                no_data_seconds: number(self.no_data_seconds),
                rate_window_seconds: number(self.rate_window_seconds),
                severity: self.severity,
            },
            notify: NotificationChanges {
                contacts: listed(CONTACTS, self.contact_ids)?,
                summary: self.summary,
                remind_seconds: number(self.remind_seconds),
                escalate_seconds: number(self.escalate_seconds),
                escalation_contacts: listed(ESCALATION, self.escalation_contact_ids)?,
            },
        })
    }
}

/// A created rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleCreatedOut {
    #[schema(value_type = crate::words::Success)]
    pub(super) status: &'static str,
    pub(super) message: &'static str,
    #[serde(flatten)]
    pub(super) rule: RuleOut,
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
            operator: row.operator.into(),
            threshold: row.threshold,
            threshold_high: row.threshold_high,
            action_type: row.action_type.into(),
            webhook_event_type: row.webhook_event_type.map(String::from),
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
