//! Alarms as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{Acknowledged, AlarmEvent, AlarmReason, AlarmState, NewAlarm, Severity},
    kernel::{AlarmId, ChannelId, RuleId, UserId},
    monitoring::Labels,
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::{PgPool, Postgres, QueryBuilder, types::Json};
use uuid::Uuid;

use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, list},
    table::{ReadRow, Table},
};

/// An alarm.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct AlarmRow {
    /// Key.
    pub id: AlarmId,
    pub rule_id: RuleId,
    pub channel_id: ChannelId,
    pub state: Word<AlarmState>,
    pub reason: Word<AlarmReason>,
    pub severity: Word<Severity>,
    /// The newest value that was judged when the state changed.
    pub value: Option<f64>,
    /// When it started on the channel's clock.
    pub started_on: DateTime<Utc>,
    /// When it fired on the channel's clock.
    pub fired_on: Option<DateTime<Utc>>,
    /// When it was cleared on the channel's clock.
    pub cleared_on: Option<DateTime<Utc>>,
    /// When a user acknowledged it.
    pub acknowledged_at: Option<DateTime<Utc>>,
    pub acknowledged_by: Option<UserId>,
    /// Comment of that user.
    pub comment: Option<String>,
    /// Whether its firing was published to webhooks.
    pub is_published: bool,
    /// Position of its first event.
    pub started_position: i64,
    /// Position of the event by which it fired.
    pub fired_position: Option<i64>,
    /// Position of the event by which it was cleared.
    pub cleared_position: Option<i64>,
    /// Version of the aggregate.
    pub version: i64,
    /// When its start was recorded.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for AlarmRow {
    const TABLE: &'static str = "alarms";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl Listed for AlarmRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "a.created_at"), &[], "a.id");
}

pub(super) fn fold(rows: &mut Table<AlarmRow>, recorded: &RecordedEvent, event: AlarmEvent) {
    if let AlarmEvent::AlarmStarted(new) = event {
        return rows.put(AlarmRow::started(recorded, new));
    }
    let Some(row) = rows.change(recorded.aggregate_id) else { return };
    row.version = recorded.sequence;
    row.updated_at = recorded.recorded_at;
    match event {
        AlarmEvent::AlarmStarted(_) => {}
        AlarmEvent::AlarmFired { fired_on, value, silenced } => {
            row.state = AlarmState::Firing.into();
            (row.fired_on, row.fired_position) = (Some(fired_on), Some(recorded.position));
            (row.value, row.is_published) = (value, !silenced);
        }
        AlarmEvent::AlarmCleared { cleared_on, value, .. } => {
            row.state = AlarmState::Cleared.into();
            (row.cleared_on, row.cleared_position) = (Some(cleared_on), Some(recorded.position));
            row.value = value;
        }
        AlarmEvent::AlarmAcknowledged(Acknowledged { user, comment, .. }) => {
            row.acknowledged_at = Some(recorded.recorded_at);
            (row.acknowledged_by, row.comment) = (Some(user), comment);
        }
        AlarmEvent::AlarmUnacknowledged => {
            (row.acknowledged_at, row.acknowledged_by, row.comment) = (None, None, None);
        }
        AlarmEvent::AlarmAnnounced => row.is_published = true,
    }
}

impl AlarmRow {
    fn started(recorded: &RecordedEvent, new: NewAlarm) -> Self {
        Self {
            id: AlarmId(recorded.aggregate_id),
            rule_id: new.rule_id,
            channel_id: new.channel_id,
            state: AlarmState::Pending.into(),
            reason: new.reason.into(),
            severity: new.severity.into(),
            value: new.value,
            started_on: new.started_on,
            fired_on: None,
            cleared_on: None,
            acknowledged_at: None,
            acknowledged_by: None,
            comment: None,
            is_published: false,
            started_position: recorded.position,
            fired_position: None,
            cleared_position: None,
            version: recorded.sequence,
            created_at: recorded.recorded_at,
            updated_at: recorded.recorded_at,
        }
    }
}

/// Which alarms are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct AlarmFilter {
    /// `pending`, `firing` or `cleared`.
    pub state: Option<&'static str>,
    /// `info`, `warning` or `critical`.
    pub severity: Option<&'static str>,
    pub rule: Option<RuleId>,
    pub channel: Option<ChannelId>,
    /// All of them are labels of the channel.
    pub labels: Labels,
    /// Not cleared before.
    pub from: Option<DateTime<Utc>>,
    /// Started before.
    pub to: Option<DateTime<Utc>>,
    /// Position of the log: alarms of that moment, with their states then.
    pub at: Option<i64>,
}

/// An open alarm shows the newest value that its judge has taken.
const SELECT: &str = "SELECT a.id, a.rule_id, a.channel_id, a.state, a.reason, a.severity,
    CASE WHEN a.cleared_position IS NULL THEN coalesce(j.value, a.value) ELSE a.value END AS value,
    a.started_on, a.fired_on, a.cleared_on, a.acknowledged_at, a.acknowledged_by, a.comment, a.is_published,
    a.started_position, a.fired_position, a.cleared_position, a.version, a.created_at, a.updated_at";
const FROM: &str = " FROM read.alarms a LEFT JOIN ops.alarm_judges j ON j.rule_id = a.rule_id WHERE true";

/// The alarm `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn alarm(pool: &PgPool, id: AlarmId) -> Result<Option<AlarmRow>, sqlx::Error> {
    let mut query = QueryBuilder::new(SELECT);
    query.push(FROM);
    and_eq(&mut query, "a.id", Some(id));
    query.build_query_as().fetch_optional(pool).await
}

/// A page of alarms and how many there are. With `filter.at` the rows are the present ones of those that existed then.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn alarms(
    pool: &PgPool,
    filter: &AlarmFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<AlarmRow>, i64), sqlx::Error> {
    list(pool, SELECT, order, page, |query| {
        query.push(FROM);
        and_state(query, filter);
        and_eq(query, "a.severity", filter.severity);
        and_eq(query, "a.rule_id", filter.rule);
        and_eq(query, "a.channel_id", filter.channel);
        if !filter.labels.is_empty() {
            query.push(" AND EXISTS (SELECT FROM read.channels c WHERE c.id = a.channel_id AND c.labels @> ");
            query.push_bind(Json(&filter.labels)).push(")");
        }
        if let Some(from) = filter.from {
            query.push(" AND (a.cleared_on IS NULL OR a.cleared_on >= ").push_bind(from).push(")");
        }
        if let Some(to) = filter.to {
            query.push(" AND a.started_on < ").push_bind(to);
        }
    })
    .await
}

fn and_state(query: &mut QueryBuilder<'_, Postgres>, filter: &AlarmFilter) {
    let Some(at) = filter.at else { return and_eq(query, "a.state", filter.state) };
    query.push(" AND a.started_position <= ").push_bind(at);
    if let Some(state) = filter.state {
        query.push(" AND CASE WHEN a.cleared_position <= ").push_bind(at).push(" THEN 'cleared'");
        query.push(" WHEN a.fired_position <= ").push_bind(at).push(" THEN 'firing' ELSE 'pending' END = ");
        query.push_bind(state);
    }
}

/// Firing alarms that webhooks do not know of although their rules are not silenced at `now`, oldest first; without those of rules
/// with changes that wait to be recorded, since one may be the end of the alarm.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unannounced(pool: &PgPool, now: DateTime<Utc>, most: i64) -> Result<Vec<AlarmId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT a.id FROM read.alarms a JOIN read.rules r ON r.id = a.rule_id
          WHERE a.state = 'firing' AND NOT a.is_published
            AND (r.silenced_until IS NULL OR r.silenced_until <= $1)
            AND NOT EXISTS (SELECT FROM ops.alarm_outbox o WHERE coalesce(o.note->'alarm'->>'rule_id', o.note->>'rule_id')::uuid = r.id)
          ORDER BY a.started_position LIMIT $2",
    )
    .bind(now)
    .bind(most)
    .fetch_all(pool)
    .await
}
