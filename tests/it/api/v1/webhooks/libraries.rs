//! The reference libraries of Standard Webhooks verify the deliveries of the service, and refuse what was tampered with: those of
//! PyPI, npm and crates.io, by secrets of all forms. None of them knows `v1a`; Node's own cryptography verifies that.

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use super::{WEBHOOKS, path};
use crate::harness::{ReferenceReceiver, Report, World, eventually_some, seconds};

/// The seed unless the variable `SEED` names another.
const SEED: u64 = 20_261_125;
/// Subscriptions by secrets, for each library.
const SUBSCRIPTIONS: usize = 6;
const OTHER_FORM: &str = " pässwort, with spaces ";

/// Subscribes `receiver` by secrets of all forms, and has it trust them.
async fn subscribe(world: &World, receiver: &ReferenceReceiver) {
    // 24 and 64 bytes, the bounds of the specification, and one byte.
    let [short, long] = [24, 64].map(|length| format!("whsec_{}", base64_of(&vec![0xfe; length])));
    let given = [short.as_str(), &long, "whsec_AA==", OTHER_FORM];
    for (number, secret) in given.into_iter().enumerate() {
        let place = number.to_string();
        made(world, receiver, &place, json!({ "secret": secret })).await;
        receiver.trust(&place, &json!([{"secret": secret, "raw": secret == OTHER_FORM}])).await;
    }
    let trust = async |place: &str, secrets: &[&Value]| {
        let keys: Vec<_> = secrets.iter().map(|secret| json!({"secret": secret, "raw": false})).collect();
        receiver.trust(place, &json!(keys)).await;
    };
    let single = made(world, receiver, "made", json!({"generate_secret": true})).await;
    trust("made", &[&single["secret"]]).await;
    // During a rotation, receivers may verify by either secret.
    let first = made(world, receiver, "rotated", json!({"generate_secret": true})).await;
    let second = rotated(world, &first).await;
    trust("rotated", &[&first["secret"], &second["secret"]]).await;
}

/// Subscribes `receiver` by a key pair that has been rotated.
async fn subscribe_by_key(world: &World, receiver: &ReferenceReceiver) {
    let first = made(world, receiver, "key", json!({"signature": "v1a"})).await;
    let second = rotated(world, &first).await;
    let keys = json!([{"public_key": first["public_key"]}, {"public_key": second["public_key"]}]);
    receiver.trust("key", &keys).await;
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(bytes)
}

async fn made(world: &World, receiver: &ReferenceReceiver, place: &str, more: Value) -> Value {
    let mut body = json!({"url": receiver.url_of(place), "events": ["log.entry"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.admin.post(WEBHOOKS, body).await.expect(201)
}

async fn rotated(world: &World, webhook: &Value) -> Value {
    let rotate = format!("{}/rotate-secret", path(webhook));
    world.admin.post(&rotate, json!({"keep_old_seconds": 86_400})).await.expect(200)
}

/// Text that JSON escapes, that other programs normalise, and that takes one to four bytes a character.
fn odd_text(rng: &mut StdRng) -> String {
    let pieces =
        ["a", " b", "ä", "a\u{308}", "\"", "\\", "/", "€", "😀", "\u{2028}", "</p>", "\u{7f}", "1e400", "漢"];
    let count = rng.random_range(1..120);
    let text: String = (0..count).map(|_| pieces[rng.random_range(0..pieces.len())]).collect();
    format!("x{text}x")
}

async fn the_libraries_verify_each(events: usize) {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let world = World::with(|config| {
        config.webhooks.concurrent_requests = 48;
        config.webhooks.concurrent_per_subscription = 4;
    })
    .await;
    let node = ReferenceReceiver::node(seed).await;
    subscribe_by_key(&world, &node).await;
    let libraries = [
        ("PyPI", ReferenceReceiver::python(seed).await),
        ("npm", node),
        ("crates.io", ReferenceReceiver::rust(seed).await),
    ];
    for (_, receiver) in &libraries {
        subscribe(&world, receiver).await;
    }
    let texts: Vec<_> = (0..events).map(|_| odd_text(&mut rng)).collect();
    let entry = |text| json!({"type": "error", "content": text, "source": "press"});
    for page in texts.chunks(16) {
        let written = page.iter().map(|text| world.admin.post("/api/v1/logging", entry(text)));
        join_all(written).await.into_iter().for_each(|written| drop(written.expect(201)));
    }
    for (name, receiver) in &libraries {
        let expected = events * (SUBSCRIPTIONS + usize::from(*name == "npm"));
        let report = eventually_some(seconds(900), async || {
            let report = receiver.report().await;
            (report.distinct >= expected || !report.faults.is_empty()).then_some(report)
        })
        .await;
        let Report { verified, distinct, faults, refused, accepted } = &report;
        println!(
            "{name}: {distinct} verified, {} of them again; tampered and refused: {refused:?}",
            verified - distinct
        );
        assert!(faults.is_empty() && accepted.is_empty(), "seed {seed}: {faults:#?} {accepted:#?}");
        // A busy service adds entries of its own.
        assert!(*distinct >= expected, "{distinct} of {expected}");
        assert_eq!(refused.values().sum::<usize>(), *verified);
        assert!(refused.len() == 4 && refused.values().all(|count| *count >= expected / 4), "{refused:?}");
    }
    world.finish().await;
}

#[tokio::test]
async fn the_reference_libraries_verify_deliveries() {
    the_libraries_verify_each(50).await;
}

/// `make webhook-libraries` runs it.
#[tokio::test]
#[ignore = "it lasts for minutes"]
async fn the_reference_libraries_verify_ten_thousand_deliveries() {
    the_libraries_verify_each(10_000_usize.div_ceil(SUBSCRIPTIONS)).await;
}
