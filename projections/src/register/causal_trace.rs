use signalbox_boxed::boxed;
use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use signalbox_domain::{
    automation::{DeliveryBatch, DeliveryBatchEvent, DeliveryStatus, Verdict},
    kernel::{Decider, DeliveryId, WebhookId},
};
use signalbox_event_store::{LogFilter, LogOrder, RecordedEvent, SearchError, search};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::Word;
use crate::automation::outgoing::{PUBLISHED, published_id};

/// Limit of the deliveries shown in one page of a trace.
const MAX_DELIVERIES: i64 = 1000;

/// A page of the events that follow from one cause.
#[derive(Debug)]
pub struct CausalTrace {
    /// The events, each followed by its effects.
    pub events: Vec<TracedEvent>,
    /// Position of the newest event, if there may be more.
    pub next: Option<i64>,
}

/// An event of a causal trace.
#[derive(Debug)]
pub struct TracedEvent {
    /// The event.
    pub event: RecordedEvent,
    /// How many events stand between it and the beginning.
    pub depth: usize,
    /// The outcome of the work that the event ends, if any.
    pub outcome: Option<Outcome>,
    /// The event's webhook deliveries.
    pub deliveries: Vec<TracedDelivery>,
}

/// How something has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it was meant.
    Succeeded,
    /// Not as it was meant.
    Failed,
    /// Cancelled on request.
    Cancelled,
    /// Failed, and will be retried.
    Retried,
}

/// The delivery of an event to one webhook.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TracedDelivery {
    /// Key of the delivery.
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    event_id: Uuid,
    pub status: Word<DeliveryStatus>,
    /// Attempts that have ended.
    pub attempts: i32,
    /// The receiver's last answer.
    pub response_code: Option<i32>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// When it was delivered or given up.
    pub ended_at: Option<DateTime<Utc>>,
}

/// At most `limit` events with this correlation after position `after`, as a tree: an event is followed by its
/// effects. Causes outside of this page are left out.
///
/// # Errors
/// [`SearchError`].
#[boxed]
pub async fn causal_trace(
    pool: &PgPool,
    correlation: &str,
    after: i64,
    limit: i64,
) -> Result<CausalTrace, SearchError> {
    let filter = LogFilter {
        correlation: Some(correlation.to_owned()),
        first: Some(after.saturating_add(1)),
        ..LogFilter::default()
    };
    let events = search(pool, &filter, LogOrder::OldestFirst, limit).await?;
    let next = events.last().filter(|_| events.len() as i64 == limit).map(|event| event.position);
    let mut deliveries = deliveries(pool, &events).await?;
    let events = in_order(events).into_iter().map(|(event, depth)| TracedEvent {
        depth,
        outcome: outcome(&event),
        deliveries: deliveries.remove(&published_id(&event)).unwrap_or_default(),
        event,
    });
    Ok(CausalTrace { events: events.collect(), next })
}

/// Each event with its depth, followed by those that it led to.
fn in_order(events: Vec<RecordedEvent>) -> Vec<(RecordedEvent, usize)> {
    let mut waiting: BTreeMap<i64, RecordedEvent> =
        events.into_iter().map(|event| (event.position, event)).collect();
    let (mut led_to, mut roots) = (HashMap::<i64, Vec<i64>>::new(), Vec::new());
    for (position, event) in &waiting {
        // A cause always precedes its effects.
        match event.metadata["causation"]
            .as_i64()
            .filter(|cause| cause < position && waiting.contains_key(cause))
        {
            Some(cause) => led_to.entry(cause).or_default().push(*position),
            None => roots.push(*position),
        }
    }
    let mut stack: Vec<_> = roots.into_iter().rev().map(|position| (position, 0)).collect();
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
) -> Result<HashMap<Uuid, Vec<TracedDelivery>>, sqlx::Error> {
    let published = events.iter().filter(|event| PUBLISHED.contains(&event.event_type.as_str()));
    let ids: Vec<_> = published.map(published_id).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<TracedDelivery> = sqlx::query_as(
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
        _ if event.aggregate_type == DeliveryBatch::TYPE => of_attempts(event),
        _ => None,
    }
}

fn of_attempts(event: &RecordedEvent) -> Option<Outcome> {
    let Ok(DeliveryBatchEvent::AttemptsEnded { attempts, .. }) = event.decode::<DeliveryBatch>() else {
        return None;
    };
    let is = |expected: fn(&Verdict) -> bool| attempts.iter().any(|ended| expected(&ended.verdict));
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
    use std::{fs, path::Path};

    use serde_json::json;

    use super::*;

    /// Ends of the words of events with an outcome.
    const CONCLUDING: [&str; 6] =
        ["_cancelled", "_completed", "_failed", "_released", "_requeued", "_rolled_back"];

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

    /// The golden files name every event of the domain.
    #[test]
    fn every_concluding_event_has_an_outcome() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/event_store/tests/golden");
        let entries = |folder: &Path| -> Vec<_> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let mut found = 0;
        // Attempts of deliveries have outcomes, by their verdicts.
        let aggregates = entries(&golden).into_iter().filter(|folder| !folder.ends_with(DeliveryBatch::TYPE));
        for file in aggregates.flat_map(|aggregate| entries(&aggregate)) {
            let word = file.file_name().unwrap().to_str().unwrap().split_once('.').unwrap().0;
            if CONCLUDING.iter().any(|end| word.ends_with(end)) {
                let event = RecordedEvent { event_type: word.to_owned(), ..event(1, None) };
                assert!(outcome(&event).is_some(), "{word}");
                found += 1;
            }
        }
        assert!(found > 0);
    }
}
