use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::{
    automation::{AlarmLine, LineKind},
    kernel::{AlarmId, ContactId, Decider, DeliveryId, Rejection, WebhookId},
};

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
    let (started_at, status, retry_after_seconds) = (at(seconds), Some(status), None);
    AttemptResult { id, started_at, duration_ms: 0, status, error, retry_after_seconds, is_final: false }
}

fn record(number: u128, results: Vec<AttemptResult>) -> DeliveryBatchCommand {
    DeliveryBatchCommand::Record { claim: claim(number), results, retry: RetryPolicy::Default }
}

/// The outcome of attempt after attempt of one delivery, each made when it is due: its number and the verdict.
fn attempts(retry: RetryPolicy, results: &[(u16, Option<u32>)]) -> Vec<(u32, Verdict)> {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE])).unwrap();
    let (mut now, mut ended) = (0, Vec::new());
    for (number, (status, retry_after_seconds)) in (1..).zip(results) {
        let begun = begun(&run(&mut batch, begin(number, now, &[ONE])).unwrap())[0].1;
        let result = AttemptResult { retry_after_seconds: *retry_after_seconds, ..result(ONE, now, *status) };
        let record = DeliveryBatchCommand::Record { claim: claim(number), results: vec![result], retry };
        let verdict = verdict(&run(&mut batch, record).unwrap());
        if let Verdict::Retry { due_at, .. } = verdict {
            assert!(run(&mut batch, begin(0, due_at.timestamp() - 1, &[ONE])).is_err(), "it is not due yet");
            now = due_at.timestamp();
        }
        ended.push((begun, verdict));
    }
    assert_eq!(ended.last().is_some_and(|(_, verdict)| !matches!(verdict, Verdict::Retry { .. })), {
        run(&mut batch, begin(0, now, &[ONE])).is_err()
    });
    ended
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
    assert_eq!(attempt(1, 0), Ok(Verdict::Retry { due_at: at(2), postponed: false }));
    assert!(attempt(2, 1).is_err(), "it is not due yet");
    assert_eq!(attempt(2, 2), Ok(Verdict::Retry { due_at: at(6), postponed: false }));
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

#[test]
fn a_message_is_queued_once_for_a_contact_that_exists() {
    let mut batch = DeliveryBatch::default();
    let contact = ContactId(Uuid::from_u128(9));
    let alarms = vec![AlarmLine { alarm: AlarmId(Uuid::from_u128(1)), kind: LineKind::Fired }];
    let queue = || {
        DeliveryBatchCommand::QueueMessage(MessageDelivery {
            contact,
            delivery: new(ONE),
            alarms: alarms.clone(),
        })
    };
    let events = run(&mut batch, queue()).unwrap();
    let claims = DeliveryBatch::claims(Uuid::nil(), &events[0]);
    assert!(format!("{claims:?}").contains(&contact.to_string()), "{claims:?}");
    assert_eq!(run(&mut batch, queue()), Ok(vec![]));
    assert_eq!(begun(&run(&mut batch, begin(1, 0, &[ONE])).unwrap()), [(1, 1)]);
}

#[test]
fn no_attempt_follows_a_final_refusal() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE])).unwrap();
    run(&mut batch, begin(1, 0, &[ONE])).unwrap();
    let refused = AttemptResult { is_final: true, ..result(ONE, 0, 550) };
    let results = vec![refused];
    let record = DeliveryBatchCommand::Record { claim: claim(1), results, retry: RetryPolicy::Standard };
    assert_eq!(verdict(&run(&mut batch, record).unwrap()), Verdict::DeadLetter);
}

#[test]
fn the_standard_schedule_has_ten_attempts() {
    let ended = attempts(RetryPolicy::Standard, &[(500, None); 10]);
    let numbers: Vec<_> = ended.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, Vec::from_iter(1..=10));
    assert_eq!(ended[0].1, Verdict::Retry { due_at: at(5), postponed: false });
    assert_eq!(ended[8].1, Verdict::Retry { due_at: at(272_105), postponed: false });
    assert_eq!(ended[9].1, Verdict::DeadLetter);
}

#[test]
fn retry_after_postpones_an_attempt_by_an_hour_at_most() {
    let ended = attempts(RetryPolicy::Standard, &[(429, Some(7)), (503, Some(90_000)), (200, None)]);
    let expected = [
        (1, Verdict::Retry { due_at: at(7), postponed: true }),
        (1, Verdict::Retry { due_at: at(3607), postponed: true }),
        (1, Verdict::Delivered),
    ];
    assert_eq!(ended, expected);
}

#[test]
fn a_delivery_is_postponed_twenty_times() {
    let ended = attempts(RetryPolicy::Standard, &[(503, Some(1)); 30]);
    let counts: Vec<_> =
        ended.iter().map(|(_, verdict)| !matches!(verdict, Verdict::Retry { postponed: true, .. })).collect();
    assert_eq!(counts, [[false; 20].as_slice(), &[true; 10]].concat());
    assert_eq!((ended[20].0, ended[29]), (1, (10, Verdict::DeadLetter)));
}

#[test]
fn other_answers_postpone_nothing() {
    for (status, retry_after_seconds) in [(429, None), (500, Some(9)), (502, Some(9))] {
        let ended = attempts(RetryPolicy::Standard, &[(status, retry_after_seconds)]);
        assert_eq!(ended, [(1, Verdict::Retry { due_at: at(5), postponed: false })]);
    }
    let ended = attempts(RetryPolicy::Default, &[(429, Some(9)), (410, None), (503, Some(9))]);
    let expected = [
        (1, Verdict::Retry { due_at: at(2), postponed: false }),
        (2, Verdict::Retry { due_at: at(6), postponed: false }),
        (3, Verdict::DeadLetter),
    ];
    assert_eq!(ended, expected);
}

#[test]
fn gone_is_the_last_answer_under_the_standard_policy() {
    assert_eq!(attempts(RetryPolicy::Standard, &[(410, Some(9))]), [(1, Verdict::DeadLetter)]);
}

#[test]
fn a_redelivery_may_be_postponed_again() {
    let mut batch = DeliveryBatch::default();
    run(&mut batch, queue(&[ONE])).unwrap();
    let mut postponed = |number: u128, now: i64| {
        run(&mut batch, begin(number, now, &[ONE])).unwrap();
        let result = AttemptResult { retry_after_seconds: Some(1), ..result(ONE, now, 503) };
        let retry = RetryPolicy::Standard;
        let record = DeliveryBatchCommand::Record { claim: claim(number), results: vec![result], retry };
        let ended = verdict(&run(&mut batch, record).unwrap());
        if number == 20 {
            let now = now + 1;
            run(&mut batch, begin(21, now, &[ONE])).unwrap();
            let gone = DeliveryBatchCommand::Record {
                claim: claim(21),
                results: vec![self::result(ONE, now, 410)],
                retry,
            };
            run(&mut batch, gone).unwrap();
            run(&mut batch, DeliveryBatchCommand::Redeliver { at: at(now), ids: vec![ONE] }).unwrap();
        }
        ended
    };
    for number in (1..=20).chain(22..=41) {
        let now = i64::try_from(number).unwrap();
        let due_at = at(now + 1);
        assert_eq!(postponed(number, now), Verdict::Retry { due_at, postponed: true }, "{number}");
    }
    assert_eq!(postponed(42, 42), Verdict::Retry { due_at: at(47), postponed: false });
}

#[test]
fn a_receiver_that_asks_for_no_wait_is_asked_again_after_a_second_and_it_does_not_count() {
    let ended = attempts(RetryPolicy::Standard, &[(503, Some(0)), (429, Some(0)), (200, None)]);
    let expected = [
        (1, Verdict::Retry { due_at: at(1), postponed: true }),
        (1, Verdict::Retry { due_at: at(2), postponed: true }),
        (1, Verdict::Delivered),
    ];
    assert_eq!(ended, expected);
}

#[test]
fn what_waits_for_its_next_attempt_may_be_delivered_at_once() {
    for retry_after_seconds in [Some(3600), None] {
        let mut batch = DeliveryBatch::default();
        run(&mut batch, queue(&[ONE])).unwrap();
        let redeliver = |seconds: i64| DeliveryBatchCommand::Redeliver { at: at(seconds), ids: vec![ONE] };
        run(&mut batch, begin(1, 0, &[ONE])).unwrap();
        assert!(run(&mut batch, redeliver(0)).is_err(), "it is being attempted");
        let result = AttemptResult { retry_after_seconds, ..result(ONE, 0, 503) };
        let retry = RetryPolicy::Standard;
        let record = DeliveryBatchCommand::Record { claim: claim(1), results: vec![result], retry };
        run(&mut batch, record).unwrap();
        assert!(run(&mut batch, begin(2, 1, &[ONE])).is_err(), "it waits");
        run(&mut batch, redeliver(1)).unwrap();
        assert!(run(&mut batch, redeliver(1)).is_err(), "it is due");
        assert_eq!(begun(&run(&mut batch, begin(2, 1, &[ONE])).unwrap()), [(2, 1)]);
    }
}
