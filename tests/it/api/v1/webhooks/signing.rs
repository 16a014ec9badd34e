//! Secrets that are made, replaced and warned about, and key pairs.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::TimeDelta;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{WEBHOOKS, path};
use crate::harness::{Got, Receiver, World};

const EVENTS: [&str; 1] = ["experiment.started"];

/// The `v1` signature of a request by a secret in standard form.
fn v1(secret: &str, got: &Got) -> String {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(content(got).as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

fn content(got: &Got) -> String {
    format!("{}.{}.{}", got.header("webhook-id"), got.header("webhook-timestamp"), got.body)
}

/// Whether `signature` of a request is by the key pair whose public key is `public`.
fn is_v1a(public: &str, signature: &str, got: &Got) -> bool {
    let key = BASE64_STANDARD.decode(public.strip_prefix("whpk_").unwrap()).unwrap();
    let signature = BASE64_STANDARD.decode(signature.strip_prefix("v1a,").unwrap()).unwrap();
    UnparsedPublicKey::new(&ED25519, key).verify(content(got).as_bytes(), &signature).is_ok()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// Sends a test; returns the request that came.
async fn tested(world: &World, webhook: &Value, receiver: &Receiver) -> Got {
    let count = receiver.got().len() + 1;
    world.admin.post(&format!("{}/test", path(webhook)), json!({})).await.expect(201);
    receiver.until_got(count).await[count - 1].clone()
}

async fn rotated(world: &World, webhook: &Value, keep_old_seconds: u32) -> Value {
    let body = json!({ "keep_old_seconds": keep_old_seconds });
    world.admin.post(&format!("{}/rotate-secret", path(webhook)), body).await.expect(200)
}

#[tokio::test]
async fn a_made_secret_is_shown_once_and_signs() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let body = json!({"url": receiver.url(), "events": EVENTS, "generate_secret": true});
    let create = async || {
        let request = world.admin.request(Method::POST, WEBHOOKS).header("idempotency-key", "made");
        world.admin.send(request.json(&body)).await.expect(201)
    };
    let made = create().await;
    let secret = text(&made, "secret");
    assert_eq!(BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap().len(), 32);
    assert!(made.get("warnings").is_none(), "{made}");
    assert_eq!(create().await["secret"], made["secret"], "the same request, repeated");
    receiver.trust(secret);
    let got = tested(&world, &made, &receiver).await;
    assert_eq!((got.refused, got.header("webhook-signature")), (None, v1(secret, &got).as_str()));
    for shown in [world.admin.get(&path(&made)).await, world.admin.get(WEBHOOKS).await] {
        assert!(!shown.text().contains("whsec_"));
    }
    let rows: String = sqlx::query_scalar("SELECT string_agg(w::text, '') FROM read.webhooks w")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    assert!(!rows.contains("whsec_") && !world.events_of("webhook").await.contains("whsec_"));
    // Later changes make others; one that is made again by the first request is not shown any more.
    let put = json!({"generate_secret": true});
    let other = world.admin.put(&path(&made), put).await.expect(200);
    assert_ne!(other["secret"], made["secret"]);
    world.finish().await;
}

#[tokio::test]
async fn a_secret_of_another_form_is_warned_about() {
    let world = World::start().await;
    let create = async |url: &str, secret: Value| {
        let body = json!({"url": url, "events": EVENTS, "secret": secret});
        world.admin.post(WEBHOOKS, body).await.expect(201)
    };
    let given = create("https://example.org/1", json!("a shared secret")).await;
    assert!(given["warnings"][0].as_str().unwrap().contains("generate_secret"), "{given}");
    assert!(given.get("secret").is_none());
    let standard = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for (url, secret) in [("https://example.org/2", json!(standard)), ("https://example.org/3", json!(null))]
    {
        let made = create(url, secret).await;
        assert!(made.get("warnings").is_none(), "{made}");
    }
    let changed = world.admin.put(&path(&given), json!({"secret": "another"})).await.expect(200);
    assert_eq!(changed["warnings"].as_array().unwrap().len(), 1);
    let changed = world.admin.put(&path(&given), json!({"secret": standard})).await.expect(200);
    assert!(changed.get("warnings").is_none());
    let both =
        json!({"url": "https://example.org/4", "events": EVENTS, "secret": "a", "generate_secret": true});
    world.admin.post(WEBHOOKS, both).await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn a_rotated_secret_signs_beside_the_new_one_until_its_time() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let receiver = Receiver::start().await;
    let body = json!({"url": receiver.url(), "events": EVENTS, "generate_secret": true});
    let made = world.admin.post(WEBHOOKS, body).await.expect(201);
    let old = text(&made, "secret").to_owned();
    let rotated = rotated(&world, &made, 60).await;
    let new = text(&rotated, "secret").to_owned();
    assert!(old != new && rotated["old_secret_until"].is_string(), "{rotated}");
    // A receiver of X-Webhook-Signature knows the old secret alone.
    receiver.trust(&old);
    let got = tested(&world, &made, &receiver).await;
    let both = format!("{} {}", v1(&new, &got), v1(&old, &got));
    assert_eq!((got.refused, got.header("webhook-signature")), (None, both.as_str()));
    clock.advance(TimeDelta::seconds(61));
    receiver.trust(&new);
    let got = tested(&world, &made, &receiver).await;
    assert_eq!((got.refused, got.header("webhook-signature")), (None, v1(&new, &got).as_str()));
    world.finish().await;
}

#[tokio::test]
async fn a_rotation_without_a_time_voids_the_old_secret() {
    let world = World::start().await;
    let receiver = Receiver::signed("a shared secret").await;
    let body = json!({"url": receiver.url(), "events": EVENTS, "secret": "a shared secret"});
    let made = world.admin.post(WEBHOOKS, body).await.expect(201);
    let rotated = rotated(&world, &made, 0).await;
    assert!(rotated["old_secret_until"].is_null(), "{rotated}");
    receiver.trust(text(&rotated, "secret"));
    let got = tested(&world, &made, &receiver).await;
    assert_eq!(got.header("webhook-signature"), v1(text(&rotated, "secret"), &got));
    let rotate = format!("{}/rotate-secret", path(&made));
    world.admin.post(&rotate, json!({"keep_old_seconds": 2_592_001})).await.error(422);
    world.admin.post(&rotate, json!({"keep_old_seconds": -1})).await.error(422);
    world.user("operator", "operator").await.post(&rotate, json!({})).await.error(403);
    world.admin.post(&format!("{WEBHOOKS}/unknown/rotate-secret"), json!({})).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn a_key_pair_signs_by_choice() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let body = json!({"url": receiver.url(), "events": EVENTS, "signature": "v1a"});
    let made = world.admin.post(WEBHOOKS, body).await.expect(201);
    let first = text(&made, "public_key").to_owned();
    assert_eq!((&made["signature"], &made["has_secret"]), (&json!("v1a"), &json!(false)));
    let got = tested(&world, &made, &receiver).await;
    assert!(got.refused.is_none() && is_v1a(&first, got.header("webhook-signature"), &got), "{got:?}");
    // Rotated: both sign, the new one first; it gets no secret by that.
    let rotated = rotated(&world, &made, 3600).await;
    let second = text(&rotated, "public_key").to_owned();
    assert!(first != second && rotated.get("secret").is_none(), "{rotated}");
    let got = tested(&world, &made, &receiver).await;
    let signatures: Vec<_> = got.header("webhook-signature").split(' ').collect();
    assert!(is_v1a(&second, signatures[0], &got) && is_v1a(&first, signatures[1], &got), "{got:?}");
    assert!(!is_v1a(&first, signatures[0], &got));
    // A secret beside it signs the other header, by its bytes as given.
    let changed = world.admin.put(&path(&made), json!({"generate_secret": true})).await.expect(200);
    receiver.trust(text(&changed, "secret"));
    let got = tested(&world, &made, &receiver).await;
    assert!(got.refused.is_none() && got.header("webhook-signature").starts_with("v1a,"), "{got:?}");
    let plain = world.admin.put(&path(&made), json!({"signature": "v1"})).await.expect(200);
    assert_eq!((&plain["signature"], &plain["public_key"]), (&json!("v1"), &json!(null)));
    let got = tested(&world, &made, &receiver).await;
    assert_eq!(got.header("webhook-signature"), v1(text(&changed, "secret"), &got));
    assert!(!world.events_of("webhook").await.contains("whsk_"));
    world.finish().await;
}
