//! State and progress of the judges of alarms, and the decided changes that the log does not have yet.

use chrono::NaiveDate;
use serde_json::Value;
use signalbox_boxed::boxed;
use signalbox_database::begin;
use signalbox_domain::{automation::AlarmMemory, kernel::RuleId};
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

/// How far alarms have been judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct AlarmProgress {
    /// Grows with each commit.
    pub generation: i64,
    /// Row of the datapoint log that was judged last.
    pub position: i64,
    /// Its day, or an earlier one.
    pub day: NaiveDate,
    /// Points up to it.
    pub total: i64,
}

/// Result of one step of judging.
#[derive(Debug, Default)]
pub struct Judged {
    /// New state of judges, by rule.
    pub memories: Vec<(RuleId, AlarmMemory)>,
    /// Rules without an alarm.
    pub gone: Vec<RuleId>,
    /// Changes of state, in order.
    pub notes: Vec<Value>,
}

/// A note that was not recorded yet.
#[derive(Debug, FromRow)]
pub struct Noted {
    pub generation: i64,
    /// Place among those of its generation.
    pub ordinal: i32,
    pub note: Value,
    /// How many wait, as far as they were looked at.
    pub waiting: i64,
}

/// The progress; `None` if it has been removed from outside.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn alarm_progress(pool: &PgPool) -> Result<Option<AlarmProgress>, sqlx::Error> {
    sqlx::query_as("SELECT generation, position, day, total FROM ops.alarm_progress")
        .fetch_optional(pool)
        .await
}

/// The state of all judges, by rule. A state that this version cannot read is left out, and its rule is judged anew.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn alarm_memories(pool: &PgPool) -> Result<Vec<(RuleId, AlarmMemory)>, sqlx::Error> {
    let rows: Vec<(RuleId, Value)> =
        sqlx::query_as("SELECT rule_id, memory FROM ops.alarm_judges").fetch_all(pool).await?;
    let read = |(rule, memory): (RuleId, Value)| match serde_json::from_value(memory) {
        Ok(memory) => Some((rule, memory)),
        Err(error) => {
            tracing::error!(rule.id = %rule, %error, "the memory of an alarm cannot be read");
            None
        }
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// Commits a step that began at `from` and ends at `to`; false if another process has made it.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn commit_judged(
    pool: &PgPool,
    from: AlarmProgress,
    to: AlarmProgress,
    judged: &Judged,
) -> Result<bool, sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    if judged.notes.is_empty() {
        // A crash of the server takes back all that follows, too, and the same values are judged again.
        sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *transaction).await?;
    }
    let moved = sqlx::query(
        "UPDATE ops.alarm_progress SET generation = $2, position = $3, day = $4, total = $5 WHERE generation = $1",
    )
    .bind(from.generation)
    .bind(to.generation)
    .bind(to.position)
    .bind(to.day)
    .bind(to.total)
    .execute(&mut *transaction)
    .await?;
    if moved.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(false);
    }
    if !judged.gone.is_empty() {
        sqlx::query("DELETE FROM ops.alarm_judges WHERE rule_id = ANY($1)")
            .bind(&judged.gone)
            .execute(&mut *transaction)
            .await?;
    }
    if !judged.memories.is_empty() {
        let rules: Vec<_> = judged.memories.iter().map(|(rule, _)| *rule).collect();
        let value = |memory: &AlarmMemory| memory.newest.map(|newest| newest.value);
        let values: Vec<_> = judged.memories.iter().map(|(_, memory)| value(memory)).collect();
        let memories: Vec<_> = judged.memories.iter().map(|(_, memory)| Json(memory)).collect();
        sqlx::query(
            "INSERT INTO ops.alarm_judges (rule_id, value, memory)
             SELECT * FROM unnest($1::uuid[], $2::float8[], $3::jsonb[])
                 ON CONFLICT (rule_id) DO UPDATE SET value = excluded.value, memory = excluded.memory",
        )
        .bind(rules)
        .bind(values)
        .bind(memories)
        .execute(&mut *transaction)
        .await?;
    }
    if !judged.notes.is_empty() {
        let ordinals: Vec<i32> = (0..).take(judged.notes.len()).collect();
        let notes: Vec<_> = judged.notes.iter().map(Json).collect();
        sqlx::query(
            "INSERT INTO ops.alarm_outbox (generation, ordinal, note)
             SELECT $1, ordinal, note FROM unnest($2::int[], $3::jsonb[]) AS new (ordinal, note)",
        )
        .bind(to.generation)
        .bind(ordinals)
        .bind(notes)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// The position that the read model of alarms has to reach to show `rules` as judged by their newest specifications; `None`
/// while they are not.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn judged_position(pool: &PgPool, rules: &[RuleId]) -> Result<Option<i64>, sqlx::Error> {
    // A rule without a memory has no alarm, or the judge has not met it yet.
    // A change is in the log before its note is removed.
    let position: Option<Option<i64>> = sqlx::query_scalar(
        "SELECT coalesce((SELECT max(e.position) FROM events e
                           WHERE e.aggregate_type = 'alarm'
                             AND e.position > (SELECT position FROM read.checkpoints WHERE projection = 'automation')), 0)
          WHERE NOT EXISTS (SELECT FROM read.rules r LEFT JOIN ops.alarm_judges j ON j.rule_id = r.id
                             WHERE r.id = ANY($1::uuid[])
                               AND CASE WHEN j.rule_id IS NULL
                                        THEN r.deleted_at IS NULL AND r.enabled AND jsonb_typeof(r.watched->-1->'terms') = 'object'
                                        ELSE (j.memory->>'version')::bigint < (r.watched->-1->>'version')::bigint END)
            AND NOT EXISTS (SELECT FROM ops.alarm_outbox o
                             WHERE coalesce(o.note->'alarm'->>'rule_id', o.note->>'rule_id')::uuid = ANY($1::uuid[]))",
    )
    .bind(rules)
    .fetch_optional(pool)
    .await?;
    Ok(position.flatten())
}

/// Generation and ordinal of a note.
pub type NotePlace = (i64, i32);

/// The oldest notes that were not recorded yet, in order, without those of the rules `paused`: of each rule at most `of_each`, so that one
/// with many does not delay the others. The oldest `most` are looked at.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn noted(
    pool: &PgPool,
    paused: &[Uuid],
    of_each: i64,
    most: i64,
) -> Result<Vec<Noted>, sqlx::Error> {
    sqlx::query_as(
        "SELECT generation, ordinal, note, waiting
           FROM (SELECT generation, ordinal, note, count(*) OVER () AS waiting,
                        row_number() OVER (PARTITION BY rule ORDER BY generation, ordinal) AS turn
                   FROM (SELECT generation, ordinal, note, rule
                           FROM ops.alarm_outbox
                          CROSS JOIN LATERAL (SELECT coalesce(note->'alarm'->>'rule_id', note->>'rule_id')::uuid) AS of (rule)
                          WHERE cardinality($1::uuid[]) = 0 OR rule <> ALL($1)
                          ORDER BY generation, ordinal LIMIT $3) oldest) notes
          WHERE turn <= $2 ORDER BY generation, ordinal",
    )
    .bind(paused)
    .bind(of_each)
    .bind(most)
    .fetch_all(pool)
    .await
}

/// Removes notes that have been recorded.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn remove_noted(pool: &PgPool, places: &[NotePlace]) -> Result<(), sqlx::Error> {
    let (generations, ordinals): (Vec<i64>, Vec<i32>) = places.iter().copied().unzip();
    sqlx::query(
        "DELETE FROM ops.alarm_outbox
          WHERE (generation, ordinal) IN (SELECT * FROM unnest($1::bigint[], $2::int[]))",
    )
    .bind(generations)
    .bind(ordinals)
    .execute(pool)
    .await
    .map(|_| ())
}
