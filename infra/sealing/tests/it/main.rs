//! Sealing on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use chrono::DateTime;
use signalbox_clock::Clock;
use signalbox_sealing::{SealError, Sealer};
use signalbox_test_support::TestServers;
use sqlx::PgPool;
use uuid::Uuid;

const RESOURCE: Uuid = Uuid::from_u128(7);
const SECRET: &str = "correct horse battery staple";

async fn sealer(pool: &PgPool) -> Sealer {
    Sealer::open(pool, &Clock::manual(DateTime::UNIX_EPOCH)).await.unwrap()
}

#[tokio::test]
async fn what_is_sealed_opens_in_every_process_and_shows_nothing() {
    let servers = TestServers::start().await;
    let (one, other) = (sealer(&servers.pool).await, sealer(&servers.pool).await);
    let sealed = one.seal(RESOURCE, SECRET).unwrap();
    assert!(!sealed.contains("horse"));
    assert_eq!(other.unseal(RESOURCE, &sealed).await.unwrap().expose(), SECRET);
    assert_ne!(one.seal(RESOURCE, SECRET).unwrap(), sealed, "each time with another nonce");
}

#[tokio::test]
async fn a_key_that_another_process_made_is_found() {
    let servers = TestServers::start().await;
    let old = sealer(&servers.pool).await;
    sqlx::query("INSERT INTO ops.sealing_keys (name, secret, created_at) VALUES ('new', $1, now())")
        .bind([7_u8; 32].as_slice())
        .execute(&servers.pool)
        .await
        .unwrap();
    let sealed = sealer(&servers.pool).await.seal(RESOURCE, SECRET).unwrap();
    assert!(sealed.starts_with("v1.new."));
    assert_eq!(old.unseal(RESOURCE, &sealed).await.unwrap().expose(), SECRET);
}

#[tokio::test]
async fn what_was_changed_or_is_another_resources_does_not_open() {
    let servers = TestServers::start().await;
    let sealer = sealer(&servers.pool).await;
    let sealed = sealer.seal(RESOURCE, SECRET).unwrap();
    assert!(matches!(sealer.unseal(Uuid::nil(), &sealed).await, Err(SealError::Broken)));
    let (head, text) = sealed.rsplit_once('.').unwrap();
    let flipped = if text.starts_with('A') { "B" } else { "A" };
    for wrong in [
        format!("{head}.{flipped}{}", &text[1..]),
        format!("{head}.{}", &text[..8]),
        format!("{head}."),
        format!("v1.unknown.{text}"),
        format!("v2.{text}"),
        String::new(),
    ] {
        assert!(matches!(sealer.unseal(RESOURCE, &wrong).await, Err(SealError::Broken)), "{wrong}");
    }
}
