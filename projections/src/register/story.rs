use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use signalbox_domain::{
    automation::{Consignment, ConsignmentEvent, Verdict},
    kernel::Decider,
};
use signalbox_event_store::{LogFilter, LogOrder, RecordedEvent, SearchError, search};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use crate::automation::outgoing::{TOLD, told_id};

/// Deliveries that are shown of one piece of a story at most.
const MAX_DELIVERIES: i64 = 1000;

/// What one cause led to, or a piece of it.
#[derive(Debug)]
pub struct Story {
    /// The events, each followed by what it led to.
    pub chapters: Vec<Chapter>,
    /// Position of the newest event, if there may be more.
    pub next: Option<i64>,
}

/// An event of a story.
#[derive(Debug)]
pub struct Chapter {
    /// The event.
    pub event: RecordedEvent,
    /// How many events stand between it and the beginning.
    pub depth: usize,
    /// How what it belongs to has ended, if it ends something.
    pub outcome: Option<Outcome>,
    /// What webhooks were told of it.
    pub deliveries: Vec<ToldDelivery>,
}

/// How something has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it was meant.
    Succeeded,
    /// Not as it was meant.
    Failed,
    /// By somebody who did not want it any more.
    Cancelled,
    /// Not yet: it will be tried again.
    Retried,
}

/// What became of telling one webhook.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ToldDelivery {
    /// Key of the delivery.
    pub id: Uuid,
    /// Whose it is.
    pub webhook_id: Uuid,
    event_id: Uuid,
    /// `pending`, `delivered`, `failed` or `dead_letter`.
    pub status: String,
    /// Attempts that have ended.
    pub attempts: i32,
    /// The receiver's last answer.
    pub response_code: Option<i32>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was delivered or given up.
    pub ended_at: Option<DateTime<Utc>>,
}

/// At most `limit` events with this correlation after position `after`, as a tree: what an event led to follows it. Causes that are not
/// in this piece are left out.
///
/// # Errors
/// [`SearchError`].
pub async fn story(pool: &PgPool, correlation: &str, after: i64, limit: i64) -> Result<Story, SearchError> {
    let filter = LogFilter {
        correlation: Some(correlation.to_owned()),
        first: Some(after.saturating_add(1)),
        ..LogFilter::default()
    };
    let events = search(pool, &filter, LogOrder::OldestFirst, limit).await?;
    let next = events.last().filter(|_| events.len() as i64 == limit).map(|event| event.position);
    let mut deliveries = deliveries(pool, &events).await?;
    let chapters = in_order(events).into_iter().map(|(event, depth)| Chapter {
        depth,
        outcome: outcome(&event),
        deliveries: deliveries.remove(&told_id(&event)).unwrap_or_default(),
        event,
    });
    Ok(Story { chapters: chapters.collect(), next })
}

/// Each event with its depth, followed by those that it led to.
fn in_order(events: Vec<RecordedEvent>) -> Vec<(RecordedEvent, usize)> {
    let mut waiting: BTreeMap<i64, RecordedEvent> =
        events.into_iter().map(|event| (event.position, event)).collect();
    let (mut led_to, mut begins) = (HashMap::<i64, Vec<i64>>::new(), Vec::new());
    for (position, event) in &waiting {
        // A cause always comes before what it leads to.
        match event.metadata["causation"]
            .as_i64()
            .filter(|cause| cause < position && waiting.contains_key(cause))
        {
            Some(cause) => led_to.entry(cause).or_default().push(*position),
            None => begins.push(*position),
        }
    }
    let mut stack: Vec<_> = begins.into_iter().rev().map(|position| (position, 0)).collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    while let Some((position, depth)) = stack.pop() {
        stack.extend(led_to.remove(&position).into_iter().flatten().rev().map(|child| (child, depth + 1)));
        ordered.extend(waiting.remove(&position).map(|event| (event, depth)));
    }
    ordered
}

async fn deliveries(
    pool: &PgPool,
    events: &[RecordedEvent],
) -> Result<HashMap<Uuid, Vec<ToldDelivery>>, sqlx::Error> {
    let told = events.iter().filter(|event| TOLD.contains(&event.event_type.as_str()));
    let ids: Vec<_> = told.map(told_id).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<ToldDelivery> = sqlx::query_as(
        "SELECT id, webhook_id, event_id, status, attempts, response_code, last_error, ended_at
           FROM read.deliveries WHERE event_id = ANY($1) ORDER BY position, id LIMIT $2",
    )
    .bind(ids)
    .bind(MAX_DELIVERIES)
    .fetch_all(pool)
    .await?;
    let mut of_events = HashMap::<_, Vec<_>>::new();
    for delivery in found {
        of_events.entry(delivery.event_id).or_default().push(delivery);
    }
    Ok(of_events)
}

fn outcome(event: &RecordedEvent) -> Option<Outcome> {
    let word = event.event_type.as_str();
    match word {
        "transfer_completed" | "extraction_completed" | "firmware_completed" | "firmware_rolled_back" => {
            Some(Outcome::Succeeded)
        }
        "transfer_failed" | "extraction_failed" | "firmware_failed" | "firmware_rollback_failed" => {
            Some(Outcome::Failed)
        }
        "transfer_cancelled" | "extraction_cancelled" => Some(Outcome::Cancelled),
        "transfer_requeued" | "extraction_released" => Some(Outcome::Retried),
        _ if event.aggregate_type == Consignment::TYPE => of_attempts(event),
        _ => None,
    }
}

fn of_attempts(event: &RecordedEvent) -> Option<Outcome> {
    let Ok(ConsignmentEvent::AttemptsEnded { attempts, .. }) = event.decode::<Consignment>() else {
        return None;
    };
    let is = |wanted: fn(&Verdict) -> bool| attempts.iter().any(|ended| wanted(&ended.verdict));
    if is(|verdict| matches!(verdict, Verdict::DeadLetter)) {
        Some(Outcome::Failed)
    } else if is(|verdict| matches!(verdict, Verdict::Retry { .. })) {
        Some(Outcome::Retried)
    } else {
        Some(Outcome::Succeeded)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(position: i64, cause: Option<i64>) -> RecordedEvent {
        RecordedEvent {
            position,
            aggregate_type: "job".to_owned(),
            aggregate_id: Uuid::nil(),
            sequence: position,
            event_type: "it_went_on".to_owned(),
            event_version: "1".to_owned(),
            payload: json!({}),
            metadata: json!({ "causation": cause }),
            recorded_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_an_event_led_to_follows_it() {
        let events = vec![
            event(3, Some(1)), // its cause is in an earlier piece
            event(4, None),
            event(5, Some(4)),
            event(6, Some(3)),
            event(7, Some(5)),
            event(8, Some(4)),
            event(9, Some(9)), // what cannot be is shown nevertheless
            event(10, Some(11)),
            event(11, Some(10)),
        ];
        let ordered: Vec<_> =
            in_order(events).into_iter().map(|(event, depth)| (event.position, depth)).collect();
        let expected = [(3, 0), (6, 1), (4, 0), (5, 1), (7, 2), (8, 1), (9, 0), (10, 0), (11, 1)];
        assert_eq!(ordered, expected);
    }
}
