//! Rules as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{
        ActionType, AlarmSpec, AlarmTerms, Condition, DatapointPlace, EventType, History, Judge, NewRule,
        NotificationSpec, Operator, Phase, RuleAction, RuleEvent, RuleSpec, Silence,
    },
    kernel::{ChannelId, ContactId, RuleId, UserId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    UnknownWord, Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_like, list},
    table::{ReadRow, Table},
};

/// Changes of a rule that are kept for its alarms; judging never lags by that many.
const MAX_WATCHED: usize = 16;

/// Terms of a rule's alarms from a change on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchChange {
    /// Row of the datapoint log: it counts for later values.
    pub after: i64,
    /// When the change was recorded.
    pub at: DateTime<Utc>,
    /// Version of the rule.
    pub version: i64,
    /// `None` while it has no alarm, or does not watch.
    pub terms: Option<AlarmTerms>,
}

/// A rule. A deleted one stays as it was last.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct RuleRow {
    /// Key.
    pub id: RuleId,
    pub owner_id: UserId,
    /// Unique name.
    pub name: String,
    /// The channel whose values it watches.
    pub channel_id: ChannelId,
    pub operator: Word<Operator>,
    pub threshold: f64,
    /// Upper bound of a range.
    pub threshold_high: Option<f64>,
    pub action_type: Word<ActionType>,
    /// The webhook event that it dispatches.
    pub webhook_event_type: Option<Word<EventType>>,
    /// Least time between two firings, in seconds.
    pub cooldown_seconds: i64,
    /// Whether it watches.
    pub enabled: bool,
    /// The specifications for values that arrived before a change.
    #[row(json)]
    pub earlier: Vec<Phase>,
    /// The settings of its alarm; `None` without one.
    #[row(json_or_null)]
    pub alarm: Option<AlarmSpec>,
    /// The contacts of its alarms.
    #[row(json)]
    pub notify: NotificationSpec,
    /// Terms of its alarms by the last changes; empty if it never had one.
    #[row(json)]
    pub watched: Vec<WatchChange>,
    /// Webhooks of its alarms are held back until then.
    pub silenced_until: Option<DateTime<Utc>>,
    pub silence_comment: Option<String>,
    /// Row of the datapoint log up to which it has nothing to judge any more.
    pub seen_position: i64,
    /// Place within that row.
    pub seen_index: i64,
    /// Arrival time of the value that fired it last.
    pub last_triggered_at: Option<DateTime<Utc>>,
    /// Position of its newest event other than a firing.
    pub changed_at: i64,
    /// When it was deleted.
    pub deleted_at: Option<DateTime<Utc>>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Time of the last change by a user.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for RuleRow {
    const TABLE: &'static str = "rules";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl RuleRow {
    /// The rule's specification.
    ///
    /// # Errors
    /// [`UnknownWord`].
    pub fn spec(&self) -> Result<RuleSpec, UnknownWord> {
        let kind = self.action_type.known()?;
        let event_type = self.webhook_event_type.as_ref().map(Word::known).transpose()?;
        Ok(RuleSpec {
            name: self.name.clone(),
            channel: self.channel_id,
            condition: Condition {
                operator: self.operator.known()?,
                threshold: self.threshold,
                threshold_high: self.threshold_high,
            },
            action: RuleAction::of(kind, event_type).map_err(|_| self.action_type.unknown())?,
            cooldown_seconds: u32::try_from(self.cooldown_seconds).unwrap_or(u32::MAX),
            enabled: self.enabled,
            alarm: self.alarm,
            notify: self.notify.clone(),
        })
    }

    /// Judges as it does.
    ///
    /// # Errors
    /// As for [`RuleRow::spec`].
    pub fn judge(&self) -> Result<Judge, UnknownWord> {
        let index = u32::try_from(self.seen_index).unwrap_or_default();
        let seen = DatapointPlace { position: self.seen_position, index };
        let history = History { seen, last_triggered_at: self.last_triggered_at };
        Ok(Judge::new(&self.spec()?, &self.earlier, history))
    }

    fn created(recorded: &RecordedEvent, new: NewRule) -> Self {
        let mut row = Self {
            id: RuleId(recorded.aggregate_id),
            owner_id: new.owner,
            name: String::new(),
            channel_id: new.spec.channel,
            operator: new.spec.condition.operator.into(),
            threshold: 0.0,
            threshold_high: None,
            action_type: new.spec.action.kind().into(),
            webhook_event_type: None,
            cooldown_seconds: 0,
            enabled: false,
            earlier: Vec::new(),
            alarm: None,
            notify: NotificationSpec::default(),
            watched: Vec::new(),
            silenced_until: None,
            silence_comment: None,
            seen_position: 0,
            seen_index: 0,
            last_triggered_at: None,
            changed_at: recorded.position,
            deleted_at: None,
            version: recorded.sequence,
            created_at: recorded.recorded_at,
            updated_at: recorded.recorded_at,
        };
        row.watch(recorded, &new.spec, new.after);
        row.set_spec(new.spec);
        row.set_seen(DatapointPlace::end_of(new.after));
        row
    }

    /// Whether webhooks of its alarms are held back at `now`.
    pub fn is_silenced(&self, now: DateTime<Utc>) -> bool {
        self.silenced_until.is_some_and(|until| now < until)
    }

    fn watch(&mut self, recorded: &RecordedEvent, to: &RuleSpec, after: i64) {
        let terms = to.alarm_terms();
        if terms.is_none() && self.watched.last().is_none_or(|last| last.terms.is_none()) {
            return;
        }
        if self.watched.len() == MAX_WATCHED {
            self.watched.remove(0);
        }
        let (at, version) = (recorded.recorded_at, recorded.sequence);
        self.watched.push(WatchChange { after, at, version, terms });
    }

    fn set_spec(&mut self, spec: RuleSpec) {
        let RuleSpec { name, channel, condition, action, cooldown_seconds, enabled, alarm, notify } = spec;
        self.name = name;
        self.channel_id = channel;
        self.operator = condition.operator.into();
        self.threshold = condition.threshold;
        self.threshold_high = condition.threshold_high;
        self.action_type = action.kind().into();
        self.webhook_event_type = action.event_type().map(Word::from);
        self.cooldown_seconds = i64::from(cooldown_seconds);
        self.enabled = enabled;
        (self.alarm, self.notify) = (alarm, notify);
    }

    fn set_seen(&mut self, place: DatapointPlace) {
        self.seen_position = place.position;
        self.seen_index = i64::from(place.index);
    }
}

pub(super) fn fold(rows: &mut Table<RuleRow>, recorded: &RecordedEvent, event: RuleEvent) {
    if let RuleEvent::RuleCreated(new) = event {
        return rows.put(RuleRow::created(recorded, new));
    }
    let Some(row) = rows.change(recorded.aggregate_id) else { return };
    row.version = recorded.sequence;
    if let RuleEvent::RuleTriggered(firing) = event {
        let index = u32::try_from(row.seen_index).unwrap_or_default();
        let seen = DatapointPlace { position: row.seen_position, index };
        row.set_seen(firing.reading.place.max(seen));
        row.last_triggered_at = Some(firing.reading.occurred_at);
        return;
    }
    row.changed_at = recorded.position;
    if let RuleEvent::RuleSilenced(Silence { until, comment }) = event {
        (row.silenced_until, row.silence_comment) = (until, comment.filter(|_| until.is_some()));
        return;
    }
    row.updated_at = recorded.recorded_at;
    match event {
        RuleEvent::RuleCreated(_) | RuleEvent::RuleTriggered(_) | RuleEvent::RuleSilenced(_) => {}
        RuleEvent::RuleUpdated { from, to, after } => {
            Phase::remember(&mut row.earlier, from, after);
            row.watch(recorded, &to, after);
            row.set_spec(to);
        }
        RuleEvent::RuleDeleted { after, .. } => {
            if let Ok(spec) = row.spec() {
                row.watch(recorded, &RuleSpec { enabled: false, ..spec.clone() }, after);
                Phase::remember(&mut row.earlier, spec, after);
            }
            row.enabled = false;
            row.deleted_at = Some(recorded.recorded_at);
        }
    }
}

/// A changed rule, with the data that evaluators need.
#[derive(Debug, Clone, FromRow)]
pub struct ChangedRule {
    /// The rule, deleted or not.
    #[row(flatten)]
    pub rule: RuleRow,
    /// The integer that stands for its channel in the datapoint log; `None` when the read model does not show it yet.
    pub channel_number: Option<i32>,
}

/// All rules changed by users after `position`, in that order.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rules_since(pool: &PgPool, position: i64) -> Result<Vec<ChangedRule>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.*, c.number AS channel_number FROM read.rules r LEFT JOIN read.channels c ON c.id = r.channel_id
          WHERE r.changed_at > $1 ORDER BY r.changed_at",
    )
    .bind(position)
    .fetch_all(pool)
    .await
}

/// Which rules are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct RuleFilter {
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// The channel that they watch.
    pub channel: Option<ChannelId>,
    /// Whether they watch.
    pub enabled: Option<bool>,
    /// `log` or `webhook`.
    pub action_type: Option<&'static str>,
}

/// The rule `id`, unless it was deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rule(pool: &PgPool, id: RuleId) -> Result<Option<RuleRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.rules WHERE id = $1 AND deleted_at IS NULL")
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// The enabled rules on `channels`, with their names, oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn enabled_rules_on(
    pool: &PgPool,
    channels: &[ChannelId],
) -> Result<Vec<(RuleId, String)>, sqlx::Error> {
    sqlx::query_as("SELECT id, name FROM read.rules WHERE channel_id = ANY($1) AND enabled AND deleted_at IS NULL ORDER BY created_at, id")
        .bind(channels)
        .fetch_all(pool)
        .await
}

/// The enabled rules whose channel was deleted, with their versions: the first `limit` whose ids come after `after`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn enabled_on_deleted(
    pool: &PgPool,
    after: RuleId,
    limit: i64,
) -> Result<Vec<(RuleId, i64)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.id, r.version FROM read.rules r JOIN read.channels c ON c.id = r.channel_id
          WHERE r.id > $1 AND r.enabled AND r.deleted_at IS NULL AND c.deleted_at IS NOT NULL ORDER BY r.id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// A rule that names a contact.
#[derive(Debug, Clone, FromRow)]
pub struct NamingRule {
    pub id: RuleId,
    pub name: String,
    /// How many there are in all.
    pub total: i64,
}

/// The rules that notify `contact` of their alarms, oldest first, at most ten.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rules_of_contact(pool: &PgPool, contact: ContactId) -> Result<Vec<NamingRule>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, name, count(*) OVER () AS total FROM read.rules
          WHERE deleted_at IS NULL
            AND (notify->'contacts' ? $1::uuid::text OR notify->'escalation_contacts' ? $1::uuid::text)
          ORDER BY created_at, id LIMIT 10",
    )
    .bind(contact)
    .fetch_all(pool)
    .await
}

impl Listed for RuleRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[("name", "name")], "id");
}

/// A page of rules and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rules(
    pool: &PgPool,
    filter: &RuleFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<RuleRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.rules WHERE deleted_at IS NULL");
        and_like(query, "name", filter.name.as_deref());
        and_eq(query, "action_type", filter.action_type);
        and_eq(query, "channel_id", filter.channel);
        and_eq(query, "enabled", filter.enabled);
    })
    .await
}
