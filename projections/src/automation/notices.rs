//! Notices of alarms, and the alarms that notices are repeated of.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::begin;
use signalbox_domain::{
    automation::{NoticeKind, NotificationSpec, Severity},
    kernel::{AlarmId, ContactId, RuleId},
};
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};

use crate::Word;

/// A step of an alarm that a contact is to be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNotice {
    pub contact: ContactId,
    pub alarm: AlarmId,
    pub kind: NoticeKind,
    /// Of this kind and alarm, from 1.
    pub number: u32,
    pub severity: Severity,
}

/// A change of an alarm, as far as it matters to repeated notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmChange {
    Fired {
        alarm: AlarmId,
        rule: RuleId,
        severity: Severity,
        remind_at: Option<DateTime<Utc>>,
        escalate_at: Option<DateTime<Utc>>,
    },
    Cleared {
        alarm: AlarmId,
        /// Its rule is silenced, so that what waits about it is not sent.
        is_silenced: bool,
    },
    /// A user has seen it.
    Acknowledged { alarm: AlarmId },
    /// It is to be seen again: the next reminder is due at this time.
    Unacknowledged { alarm: AlarmId, remind_at: Option<DateTime<Utc>> },
}

/// The rule of an alarm, with its settings.
#[derive(Debug, Clone, FromRow)]
pub struct RuleOfAlarm {
    pub alarm_id: AlarmId,
    pub rule_id: RuleId,
    pub severity: Word<Severity>,
    #[row(json)]
    pub notify: NotificationSpec,
    /// Whether its escalation was sent.
    pub is_escalated: bool,
    /// Contacts with a message or a waiting notice about the alarm; the rule may name others by now.
    pub informed: Vec<ContactId>,
    /// Whether the rule was changed after the alarm had started, and may name contacts that never heard of it.
    pub is_changed: bool,
}

/// An alarm of which a reminder or an escalation is due.
#[derive(Debug, Clone, FromRow)]
pub struct DueAlarm {
    pub alarm_id: AlarmId,
    pub severity: Word<Severity>,
    pub remind_at: Option<DateTime<Utc>>,
    pub reminders: i32,
    pub escalate_at: Option<DateTime<Utc>>,
    pub is_escalated: bool,
    #[row(json)]
    pub notify: NotificationSpec,
}

/// The next state of a [`DueAlarm`], and its notices.
#[derive(Debug, Clone)]
pub struct Repetition {
    pub due: DueAlarm,
    pub remind_at: Option<DateTime<Utc>>,
    pub reminders: i32,
    pub escalate_at: Option<DateTime<Utc>>,
    pub is_escalated: bool,
    pub notices: Vec<NewNotice>,
}

/// The rules of `alarms`, which the read models have.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rules_of_alarms(pool: &PgPool, alarms: &[AlarmId]) -> Result<Vec<RuleOfAlarm>, sqlx::Error> {
    sqlx::query_as(
        "SELECT a.id AS alarm_id, a.rule_id, a.severity, r.notify,
                coalesce(n.is_escalated, false) AS is_escalated,
                ARRAY(SELECT d.webhook_id FROM read.deliveries d WHERE d.alarm_ids && ARRAY[a.id]
                       UNION SELECT w.contact_id FROM ops.notices w WHERE w.alarm_id = a.id
                       UNION SELECT (o.message->>'contact')::uuid FROM ops.message_outbox o
                              WHERE o.message->'alarms' @> jsonb_build_array(jsonb_build_object('alarm', a.id))
                       UNION SELECT (e.payload->>'contact')::uuid FROM events e
                              WHERE e.position > (SELECT position FROM read.checkpoints WHERE projection = 'automation')
                                AND e.event_type = 'message_queued'
                                AND e.payload->'alarms' @> jsonb_build_array(jsonb_build_object('alarm', a.id))) AS informed,
                r.changed_at > a.started_position AS is_changed
           FROM read.alarms a JOIN read.rules r ON r.id = a.rule_id
                LEFT JOIN ops.notified_alarms n ON n.alarm_id = a.id
          WHERE a.id = ANY($1)",
    )
    .bind(alarms)
    .fetch_all(pool)
    .await
}

/// Commits the notices that follow from the log between the positions `from` and `to`; false if another process has done so.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn commit_noticed(
    pool: &PgPool,
    name: &str,
    (from, to): (i64, i64),
    at: DateTime<Utc>,
    notices: &[NewNotice],
    changes: &[AlarmChange],
) -> Result<bool, sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    let moved =
        sqlx::query("UPDATE ops.relay_checkpoint SET position = $3 WHERE relay = $1 AND position = $2")
            .bind(name)
            .bind(from)
            .bind(to)
            .execute(&mut *transaction)
            .await?;
    if moved.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(false);
    }
    note(&mut transaction, at, notices, changes).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Commits notices of events that could not be read before. Done twice, the second time has no effect.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn commit_retried(
    pool: &PgPool,
    at: DateTime<Utc>,
    notices: &[NewNotice],
    changes: &[AlarmChange],
) -> Result<(), sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    note(&mut transaction, at, notices, changes).await?;
    transaction.commit().await
}

async fn note(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
    notices: &[NewNotice],
    changes: &[AlarmChange],
) -> Result<(), sqlx::Error> {
    insert(connection, at, notices).await?;
    for change in changes {
        let query = match *change {
            AlarmChange::Fired { alarm, rule, severity, remind_at, escalate_at } => sqlx::query(
                // It may have been acknowledged while its rule was silenced.
                "INSERT INTO ops.notified_alarms (alarm_id, rule_id, severity, remind_at, escalate_at, is_acknowledged)
                 VALUES ($1, $2, $3, $4, $5, EXISTS (
                     SELECT FROM read.alarms WHERE id = $1 AND acknowledged_at IS NOT NULL))
                     ON CONFLICT DO NOTHING",
            )
            .bind(alarm)
            .bind(rule)
            .bind(severity.as_str())
            .bind(remind_at)
            .bind(escalate_at),
            AlarmChange::Cleared { alarm, is_silenced } => sqlx::query(
                "WITH dropped AS (DELETE FROM ops.notices WHERE alarm_id = $1 AND $2)
                 DELETE FROM ops.notified_alarms WHERE alarm_id = $1",
            )
            .bind(alarm)
            .bind(is_silenced),
            // Waiting ones are not sent any more; an escalation is due again with the next unacknowledgement.
            AlarmChange::Acknowledged { alarm } => sqlx::query(
                "WITH held AS (
                    DELETE FROM ops.notices WHERE alarm_id = $1 AND kind IN ('reminder', 'escalation') RETURNING kind
                 ), escalation AS (SELECT count(*) > 0 AS is_held FROM held WHERE kind = 'escalation')
                 UPDATE ops.notified_alarms
                    SET is_acknowledged = true, is_escalated = is_escalated AND NOT is_held,
                        escalate_at = CASE WHEN is_held THEN $2 ELSE escalate_at END
                   FROM escalation WHERE alarm_id = $1",
            )
            .bind(alarm)
            .bind(at),
            AlarmChange::Unacknowledged { alarm, remind_at } => sqlx::query(
                "UPDATE ops.notified_alarms SET is_acknowledged = false, remind_at = coalesce($2, remind_at)
                  WHERE alarm_id = $1",
            )
            .bind(alarm)
            .bind(remind_at),
        };
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn insert(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
    notices: &[NewNotice],
) -> Result<(), sqlx::Error> {
    if notices.is_empty() {
        return Ok(());
    }
    let contacts: Vec<_> = notices.iter().map(|notice| notice.contact).collect();
    let alarms: Vec<_> = notices.iter().map(|notice| notice.alarm).collect();
    let kinds: Vec<_> = notices.iter().map(|notice| notice.kind.as_str()).collect();
    let numbers: Vec<_> =
        notices.iter().map(|notice| i32::try_from(notice.number).unwrap_or(i32::MAX)).collect();
    let severities: Vec<_> = notices.iter().map(|notice| notice.severity.as_str()).collect();
    // A contact that has not been sent the last notice of an alarm needs no reminder: quiet hours would gather hundreds.
    sqlx::query(
        "INSERT INTO ops.notices (contact_id, alarm_id, kind, number, severity, arrived_at)
         SELECT new.*, $6 FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::text[])
                               AS new (contact_id, alarm_id, kind, number, severity)
          WHERE new.kind <> 'reminder' OR NOT EXISTS (
                SELECT FROM ops.notices w WHERE w.contact_id = new.contact_id AND w.alarm_id = new.alarm_id)
             ON CONFLICT DO NOTHING",
    )
    .bind(contacts)
    .bind(alarms)
    .bind(kinds)
    .bind(numbers)
    .bind(severities)
    .bind(at)
    .execute(connection)
    .await
    .map(|_| ())
}

/// The first `most` alarms that a reminder or an escalation is due of at `now`, or later than its interval allows, since the
/// clock was ahead when it was noted. Those of silenced rules wait.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_alarms(pool: &PgPool, now: DateTime<Utc>, most: i64) -> Result<Vec<DueAlarm>, sqlx::Error> {
    sqlx::query_as(
        "SELECT n.alarm_id, n.severity, n.remind_at, n.reminders, n.escalate_at, n.is_escalated, r.notify
           FROM ops.notified_alarms n JOIN read.rules r ON r.id = n.rule_id
          WHERE NOT n.is_acknowledged
            AND (least(n.remind_at, n.escalate_at) <= $1
                 OR n.remind_at > $1 + make_interval(secs => (r.notify->>'remind_seconds')::int)
                 OR n.escalate_at > $1 + make_interval(secs => (r.notify->>'escalate_seconds')::int))
            AND (r.silenced_until IS NULL OR r.silenced_until <= $1)
          ORDER BY least(n.remind_at, n.escalate_at) LIMIT $2",
    )
    .bind(now)
    .bind(most)
    .fetch_all(pool)
    .await
}

/// Commits reminders and escalations, each if no other process has done so.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn commit_repeated(
    pool: &PgPool,
    at: DateTime<Utc>,
    repetitions: &[Repetition],
) -> Result<(), sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    for repetition in repetitions {
        let moved = sqlx::query(
            "UPDATE ops.notified_alarms SET remind_at = $4, reminders = $5, escalate_at = $6, is_escalated = $7
              WHERE alarm_id = $1 AND reminders = $2 AND is_escalated = $3 AND NOT is_acknowledged",
        )
        .bind(repetition.due.alarm_id)
        .bind(repetition.due.reminders)
        .bind(repetition.due.is_escalated)
        .bind(repetition.remind_at)
        .bind(repetition.reminders)
        .bind(repetition.escalate_at)
        .bind(repetition.is_escalated)
        .execute(&mut *transaction)
        .await?;
        if moved.rows_affected() == 1 {
            insert(&mut transaction, at, &repetition.notices).await?;
        }
    }
    transaction.commit().await
}

/// The time until an alarm's first reminder or escalation.
pub fn after(at: DateTime<Utc>, seconds: Option<u32>) -> Option<DateTime<Utc>> {
    seconds.map(|seconds| at + TimeDelta::seconds(seconds.into()))
}
