use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::kernel::{Decider, DeliveryId, Rejection, WebhookId};

const ONE: DeliveryId = DeliveryId(Uuid::from_u128(1));
const TWO: DeliveryId = DeliveryId(Uuid::from_u128(2));
const WEBHOOK: WebhookId = WebhookId(Uuid::from_u128(9));

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn claim(number: u128) -> Uuid {
    Uuid::from_u128(100 + number)
}

fn new(id: DeliveryId) -> NewDelivery {
    NewDelivery { id, event_id: id.0, event_type: "experiment.started".to_owned(), body: "{}".to_owned() }
}

fn run(
    batch: &mut DeliveryBatch,
    command: DeliveryBatchCommand,
) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
    let events = batch.decide(command)?;
    events.iter().for_each(|event| batch.evolve(event.clone()));
    Ok(events)
}

fn queue(ids: &[DeliveryId]) -> DeliveryBatchCommand {
    DeliveryBatchCommand::Queue { webhook: WEBHOOK, deliveries: ids.iter().copied().map(new).collect() }
}

fn begin(number: u128, seconds: i64, ids: &[DeliveryId]) -> DeliveryBatchCommand {
    DeliveryBatchCommand::Begin { claim: claim(number), at: at(seconds), ids: ids.to_vec() }
}

fn result(id: DeliveryId, seconds: i64, status: u16) -> AttemptResult {
    let error = (status != 200).then(|| format!("HTTP {status}"));
    AttemptResult { id, started_at: at(seconds), duration_ms: 0, status: Some(status), error }
}

fn record(number: u128, results: Vec<AttemptResult>) -> DeliveryBatchCommand {
    DeliveryBatchCommand::Record { claim: claim(number), results }
}

fn begun(events: &[DeliveryBatchEvent]) -> Vec<(u32, u32)> {
    let [DeliveryBatchEvent::AttemptsBegun { attempts, .. }] = events else { panic!("{events:?}") };
    attempts.iter().map(|begun| (begun.round, begun.attempt)).collect()
}

fn verdict(events: &[DeliveryBatchEvent]) -> Verdict {
    let [DeliveryBatchEvent::AttemptsEnded { attempts, .. }] = events else { panic!("{events:?}") };
    attempts[0].verdict
}

#[test]
fn what_is_there_is_not_queued_again() {
    let mut batch = DeliveryBatch::default();
    assert_eq!(run(&mut batch, queue(&[ONE, ONE])).unwrap().len(), 1);
    assert_eq!(run(&mut batch, queue(&[ONE])), Ok(vec![]));
    let events = run(&mut batch, queue(&[ONE, TWO])).unwrap();
    let expected = DeliveryBatchEvent::DeliveriesQueued { webhook: WEBHOOK, deliveries: vec![new(TWO)] };
    assert_eq!(events, [expected]);
}

#[test]
fn three_attempts_with_waits_of_two_and_four_seconds_and_then_it_is_dead() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE])).unwrap();
    let mut attempt = |number: u128, seconds: i64| {
        let events = run(&mut batch, begin(number, seconds, &[ONE]))?;
        assert_eq!(begun(&events), [(1, number as u32)]);
        run(&mut batch, record(number, vec![result(ONE, seconds, 500)])).map(|events| verdict(&events))
    };
    assert_eq!(attempt(1, 0), Ok(Verdict::Retry { due_at: at(2) }));
    assert!(attempt(2, 1).is_err(), "it is not due yet");
    assert_eq!(attempt(2, 2), Ok(Verdict::Retry { due_at: at(6) }));
    assert!(attempt(3, 5).is_err(), "it is not due yet");
    assert_eq!(attempt(3, 6), Ok(Verdict::DeadLetter));
    assert!(attempt(4, 100).is_err(), "there is no fourth");
}

#[test]
fn an_attempt_is_claimed_by_one_worker_until_the_claim_lapses() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE])).unwrap();
    run(&mut batch, begin(1, 0, &[ONE])).unwrap();
    assert!(run(&mut batch, begin(2, CLAIM_SECONDS - 1, &[ONE])).is_err());
    // The worker crashed: the attempt is repeated under the same number.
    let again = run(&mut batch, begin(2, CLAIM_SECONDS, &[ONE])).unwrap();
    assert_eq!(begun(&again), [(1, 1)]);
    // The first worker was only slow: its result is refused.
    assert!(run(&mut batch, record(1, vec![result(ONE, 0, 200)])).is_err());
    let ended = run(&mut batch, record(2, vec![result(ONE, CLAIM_SECONDS, 200)])).unwrap();
    assert_eq!(verdict(&ended), Verdict::Delivered);
}

#[test]
fn all_are_claimed_or_none() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE, TWO])).unwrap();
    run(&mut batch, begin(1, 0, &[ONE])).unwrap();
    assert!(run(&mut batch, begin(2, 0, &[ONE, TWO])).is_err());
    assert!(run(&mut batch, begin(2, 0, &[])).is_err());
    assert_eq!(begun(&run(&mut batch, begin(2, 0, &[TWO])).unwrap()), [(1, 1)]);
}

#[test]
fn attempts_that_were_not_made_are_given_back_with_their_number() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE, TWO])).unwrap();
    run(&mut batch, begin(1, 0, &[ONE, TWO])).unwrap();
    let ended = run(&mut batch, record(1, vec![result(ONE, 0, 500)])).unwrap();
    let [DeliveryBatchEvent::AttemptsEnded { attempts, returned, .. }] = ended.as_slice() else { panic!() };
    assert_eq!((attempts.len(), returned.as_slice()), (1, &[TWO][..]));
    assert_eq!(begun(&run(&mut batch, begin(2, 1, &[TWO])).unwrap()), [(1, 1)]);
    // A claim ends once.
    assert!(run(&mut batch, record(1, vec![result(ONE, 0, 200)])).is_err());
}

#[test]
fn what_has_ended_may_be_delivered_again_with_attempts_of_its_own() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE, TWO])).unwrap();
    let redeliver = |ids: &[DeliveryId]| DeliveryBatchCommand::Redeliver { at: at(1), ids: ids.to_vec() };
    assert!(run(&mut batch, redeliver(&[ONE])).is_err(), "it is on its way");
    run(&mut batch, begin(1, 0, &[ONE])).unwrap();
    run(&mut batch, record(1, vec![result(ONE, 0, 200)])).unwrap();
    assert!(run(&mut batch, redeliver(&[ONE, TWO])).is_err(), "one of them is on its way");
    assert!(run(&mut batch, redeliver(&[DeliveryId(Uuid::nil())])).is_err(), "it is unknown");
    run(&mut batch, redeliver(&[ONE, ONE])).unwrap();
    assert_eq!(begun(&run(&mut batch, begin(2, 1, &[ONE])).unwrap()), [(2, 1)]);
}

#[test]
fn a_callback_is_queued_once_and_delivered_like_others() {
    let mut batch = DeliveryBatch::default();
    let queue = || {
        let (url, sealed_secret) = ("https://example.org".to_owned(), "sealed".to_owned());
        let callback = CallbackDelivery {
            receiver: WEBHOOK,
            url,
            sealed_secret,
            no_loopback: false,
            delivery: new(ONE),
        };
        DeliveryBatchCommand::QueueCallback(callback)
    };
    assert_eq!(run(&mut batch, queue()).unwrap().len(), 1);
    assert_eq!(run(&mut batch, queue()).unwrap(), []);
    assert_eq!(begun(&run(&mut batch, begin(1, 0, &[ONE])).unwrap()), [(1, 1)]);
    let ended = run(&mut batch, record(1, vec![result(ONE, 0, 200)])).unwrap();
    assert_eq!(verdict(&ended), Verdict::Delivered);
}
