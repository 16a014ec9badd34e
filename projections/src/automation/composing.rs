//! Notices that wait for a contact, and the messages that are made of them, on their way to the log.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_boxed::boxed;
use signalbox_database::begin;
use signalbox_domain::{
    automation::{AlarmReason, Notice, NoticeKind, QuietHours, Severity},
    kernel::{AlarmId, ChannelId, ContactId, RuleId},
};
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use crate::Word;

type NoticeColumns = (AlarmId, Word<NoticeKind>, i32, Word<Severity>, DateTime<Utc>);

/// A contact with waiting notices.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct WaitingContact {
    pub id: ContactId,
    /// `None` when it was deleted.
    pub name: Option<String>,
    pub quiet_hours: Option<Json<QuietHours>>,
    /// When its last message was composed.
    pub composed_at: Option<DateTime<Utc>>,
}

/// The properties of an alarm that a message shows.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct AlarmFacts {
    pub alarm_id: AlarmId,
    pub rule_id: RuleId,
    pub channel_id: ChannelId,
    pub severity: Word<Severity>,
    pub reason: Word<AlarmReason>,
    /// The newest value that was judged.
    pub value: Option<f64>,
    pub started_on: DateTime<Utc>,
    pub cleared_on: Option<DateTime<Utc>>,
    pub rule_name: String,
    /// Of the condition that held, which the rule may not have any more.
    pub threshold: f64,
    pub summary: Option<String>,
    pub channel_name: Option<String>,
    pub unit: Option<String>,
}

/// A message that is not in the log yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub struct Composed {
    pub id: Uuid,
    pub message: Value,
}

/// The contacts with waiting notices.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn waiting_contacts(pool: &PgPool) -> Result<Vec<WaitingContact>, sqlx::Error> {
    sqlx::query_as(
        "SELECT n.contact_id AS id, k.name, k.quiet_hours, m.composed_at
           FROM (SELECT DISTINCT contact_id FROM ops.notices) n LEFT JOIN read.contacts k ON k.id = n.contact_id
                LEFT JOIN ops.contact_messages m ON m.contact_id = n.contact_id",
    )
    .fetch_all(pool)
    .await
}

/// The first `most` waiting notices of `contact` whose rules are not silenced at `now`, in their order; those of critical alarms
/// first, so that none of them waits behind others.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn waiting_notices(
    pool: &PgPool,
    contact: ContactId,
    now: DateTime<Utc>,
    most: i64,
) -> Result<Vec<Notice>, sqlx::Error> {
    let rows: Vec<NoticeColumns> = sqlx::query_as(
        "SELECT n.alarm_id, n.kind, n.number, n.severity, n.arrived_at
           FROM ops.notices n LEFT JOIN read.alarms a ON a.id = n.alarm_id LEFT JOIN read.rules r ON r.id = a.rule_id
          WHERE n.contact_id = $1 AND (r.silenced_until IS NULL OR r.silenced_until <= $2)
          ORDER BY (n.severity = 'critical' AND n.kind = 'firing') DESC, n.severity = 'critical' DESC, n.arrived_at,
                   n.kind = 'cleared', n.alarm_id, n.kind, n.number
          LIMIT $3",
    )
    .bind(contact)
    .bind(now)
    .bind(most)
    .fetch_all(pool)
    .await?;
    // One with a word of a newer version waits for that.
    let notices = rows.into_iter().filter_map(|(alarm, kind, number, severity, arrived_on)| {
        let (kind, severity) = (kind.known().ok()?, severity.known().ok()?);
        Some(Notice { alarm, kind, number: u32::try_from(number).ok()?, severity, arrived_on })
    });
    Ok(notices.collect())
}

/// Removes the notices of contacts that were deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_contacts(pool: &PgPool, contacts: &[ContactId]) -> Result<(), sqlx::Error> {
    for table in ["ops.notices", "ops.contact_messages"] {
        sqlx::query(&format!("DELETE FROM {table} WHERE contact_id = ANY($1)"))
            .bind(contacts)
            .execute(pool)
            .await?;
    }
    Ok(())
}

/// Puts a message in place of the `notices` that it is made of; false if another process has done so.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn commit_message(
    pool: &PgPool,
    contact: ContactId,
    notices: &[&Notice],
    at: DateTime<Utc>,
    composed: &Composed,
) -> Result<bool, sqlx::Error> {
    let alarms: Vec<_> = notices.iter().map(|notice| notice.alarm).collect();
    let kinds: Vec<_> = notices.iter().map(|notice| notice.kind.as_str()).collect();
    let numbers: Vec<_> =
        notices.iter().map(|notice| i32::try_from(notice.number).unwrap_or(i32::MAX)).collect();
    let mut transaction = begin(pool, "BEGIN").await?;
    let removed = sqlx::query(
        "DELETE FROM ops.notices n USING unnest($2::uuid[], $3::text[], $4::int[]) AS sent (alarm_id, kind, number)
          WHERE n.contact_id = $1 AND n.alarm_id = sent.alarm_id AND n.kind = sent.kind AND n.number = sent.number",
    )
    .bind(contact)
    .bind(alarms)
    .bind(kinds)
    .bind(numbers)
    .execute(&mut *transaction)
    .await?;
    if removed.rows_affected() != notices.len() as u64 {
        transaction.rollback().await?;
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO ops.contact_messages (contact_id, composed_at) VALUES ($1, $2)
             ON CONFLICT (contact_id) DO UPDATE SET composed_at = excluded.composed_at",
    )
    .bind(contact)
    .bind(at)
    .execute(&mut *transaction)
    .await?;
    sqlx::query("INSERT INTO ops.message_outbox (id, message, composed_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(composed.id)
        .bind(&composed.message)
        .bind(at)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}

/// The first `most` messages that are not in the log yet.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn composed(pool: &PgPool, most: i64) -> Result<Vec<Composed>, sqlx::Error> {
    sqlx::query_as("SELECT id, message FROM ops.message_outbox ORDER BY composed_at, id LIMIT $1")
        .bind(most)
        .fetch_all(pool)
        .await
}

/// Removes a message that is in the log.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn remove_composed(pool: &PgPool, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.message_outbox WHERE id = $1").bind(id).execute(pool).await.map(|_| ())
}

/// The properties of `alarms` that a message shows.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn alarm_facts(pool: &PgPool, alarms: &[AlarmId]) -> Result<Vec<AlarmFacts>, sqlx::Error> {
    sqlx::query_as(
        "SELECT a.id AS alarm_id, a.rule_id, a.channel_id, a.severity, a.reason,
                coalesce(CASE WHEN a.state <> 'cleared' THEN j.value END, a.value) AS value, a.started_on, a.cleared_on,
                r.name AS rule_name, coalesce((e.payload->>'threshold')::float8, r.threshold) AS threshold,
                r.notify->>'summary' AS summary, c.name AS channel_name, c.unit
           FROM read.alarms a LEFT JOIN events e ON e.position = a.started_position
                JOIN read.rules r ON r.id = a.rule_id
                LEFT JOIN ops.alarm_judges j ON j.rule_id = a.rule_id
                LEFT JOIN read.channels c ON c.id = a.channel_id
          WHERE a.id = ANY($1)",
    )
    .bind(alarms)
    .fetch_all(pool)
    .await
}
