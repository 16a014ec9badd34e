use signalbox_clock::Clock;
use signalbox_event_store::{
    Fault, HeadError, SignedHead, Verification, chain_head, extend_chain, head_position, verify_chain,
};
use signalbox_test_support::fresh_database;
use sqlx::{Executor, PgPool};

use crate::made::make_events;

const EVENTS: i64 = 2500;
const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIFaT0ESf+5bZeIloodUwywwKBxhFAPMUhaB4varEtBeQ
-----END PRIVATE KEY-----
";
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAnBOQ9N2qPtC23km0gcmwdbE+9Iw9Ny6BVey+FA/5yHw=
-----END PUBLIC KEY-----
";
const ANOTHER_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAz0lb6BtVKfplYlk8sok0ZjYFfSSHN7Kdc8J8i6jyht4=
-----END PUBLIC KEY-----
";

async fn chained_log() -> PgPool {
    let pool = signalbox_database::connect(&fresh_database().await, 4).await.unwrap();
    make_events(&pool, EVENTS).await;
    chain(&pool).await;
    pool
}

async fn chain(pool: &PgPool) {
    while extend_chain(pool, Clock::system().now(), 700).await.unwrap() > 0 {}
}

async fn verify(pool: &PgPool, published: Option<&SignedHead>) -> Verification {
    verify_chain(pool, published, |_, _| {}).await.unwrap()
}

async fn fault(pool: &PgPool) -> Option<Fault> {
    verify(pool, None).await.fault
}

/// Changes the log as an attacker with access to the database could.
async fn tamper(pool: &PgPool, statement: &str) {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    transaction.execute("SET LOCAL session_replication_role = replica").await.unwrap();
    transaction.execute(statement).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn an_unchanged_log_verifies() {
    let pool = signalbox_database::connect(&fresh_database().await, 4).await.unwrap();
    let empty = Verification { head: 0, verified: 0, unchained: 0, fault: None };
    assert_eq!(verify(&pool, None).await, empty);
    make_events(&pool, EVENTS).await;
    extend_chain(&pool, Clock::system().now(), 700).await.unwrap();
    let lagging = Verification { head: EVENTS, verified: 700, unchained: EVENTS - 700, fault: None };
    assert_eq!(verify(&pool, None).await, lagging);
    chain(&pool).await;
    let mut progress = Vec::new();
    let whole = verify_chain(&pool, None, |position, of| progress.push((position, of))).await.unwrap();
    assert_eq!(whole, Verification { head: EVENTS, verified: EVENTS, unchained: 0, fault: None });
    assert_eq!(progress.last(), Some(&(EVENTS, EVENTS)));
}

#[tokio::test]
async fn two_concurrent_writers_make_one_chain() {
    let pool = signalbox_database::connect(&fresh_database().await, 8).await.unwrap();
    make_events(&pool, EVENTS).await;
    while head_position(&pool).await.unwrap()
        > chain_head(&pool).await.unwrap().map_or(0, |head| head.position)
    {
        let extend = || extend_chain(&pool, Clock::system().now(), 100);
        let done = tokio::join!(extend(), extend(), extend());
        assert!(done.0.is_ok() && done.1.is_ok() && done.2.is_ok(), "{done:?}");
    }
    assert_eq!(verify(&pool, None).await.verified, EVENTS);
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM log_chain").fetch_one(&pool).await.unwrap();
    assert_eq!(rows, EVENTS / 100);
}

#[tokio::test]
async fn one_changed_bit_in_any_column_is_found_and_named() {
    let pool = chained_log().await;
    for (position, column, changed, original) in [
        (
            1234,
            "payload",
            "jsonb_set(payload, '{text}', '\"drop 1235\"')",
            "jsonb_set(payload, '{text}', '\"drop 1234\"')",
        ),
        (
            1,
            "metadata",
            "metadata || '{\"actor\": \"system:moon\"}'",
            "metadata || '{\"actor\": \"system:cloud\"}'",
        ),
        (
            EVENTS,
            "recorded_at",
            "recorded_at + interval '1 microsecond'",
            "recorded_at - interval '1 microsecond'",
        ),
        (1000, "event_type", "'it_shines'", "'it_shone'"),
        (1001, "event_version", "'2'", "'1'"),
        (1400, "aggregate_type", "'rarE'", "'rare'"),
        (1402, "aggregate_id", "upper(aggregate_id)", "lower(aggregate_id)"),
        (699, "sequence", "sequence + 1000", "sequence - 1000"),
    ] {
        let set = |value: &str| format!("UPDATE events SET {column} = {value} WHERE position = {position}");
        tamper(&pool, &set(changed)).await;
        assert_eq!(fault(&pool).await, Some(Fault::Altered { position }), "{column}");
        tamper(&pool, &set(original)).await;
        assert_eq!(fault(&pool).await, None, "{column}");
    }
}

#[tokio::test]
async fn one_deleted_event_is_found_and_named() {
    for position in [1, 1777, EVENTS] {
        let pool = chained_log().await;
        tamper(&pool, &format!("DELETE FROM events WHERE position = {position}")).await;
        assert_eq!(fault(&pool).await, Some(Fault::Missing { position }));
        // Not even together with their chain entries.
        tamper(&pool, &format!("DELETE FROM log_chain WHERE last_position >= {position}")).await;
        assert_eq!(fault(&pool).await, Some(Fault::Missing { position }));
    }
    let pool = chained_log().await;
    tamper(&pool, &format!("DELETE FROM events WHERE position = {EVENTS}")).await;
    tamper(&pool, &format!("UPDATE log_head SET position = {} WHERE log = 'events'", EVENTS - 1)).await;
    assert_eq!(fault(&pool).await, Some(Fault::Missing { position: EVENTS }));
}

#[tokio::test]
async fn two_swapped_events_are_found_and_named() {
    let pool = chained_log().await;
    tamper(
        &pool,
        "UPDATE events SET position = -position WHERE position IN (17, 2017);
         UPDATE events SET position = 2034 + position WHERE position < 0",
    )
    .await;
    assert_eq!(fault(&pool).await, Some(Fault::Reordered { position: 17, recorded_at: 2017 }));
}

#[tokio::test]
async fn a_change_of_the_chain_is_no_change_of_an_event() {
    let pool = chained_log().await;
    tamper(
        &pool,
        "UPDATE log_chain SET hashes = set_byte(hashes, 32 * 99 + 7, 0) WHERE first_position = 701",
    )
    .await;
    assert_eq!(fault(&pool).await, Some(Fault::ChainAltered { position: 800 }));
    tamper(&pool, "DELETE FROM log_chain WHERE first_position = 701").await;
    assert_eq!(fault(&pool).await, Some(Fault::ChainBroken { position: 701 }));
}

#[tokio::test]
async fn a_published_head_reveals_a_rewrite_of_log_and_chain() {
    let pool = chained_log().await;
    let published = chain_head(&pool).await.unwrap().unwrap().sign(PRIVATE_KEY).unwrap();
    let written = serde_json::to_string(&published).unwrap();
    let published: SignedHead = serde_json::from_str(&written).unwrap();
    published.check(PUBLIC_KEY).unwrap();
    assert_eq!(verify(&pool, Some(&published)).await.fault, None);
    // The head stays valid when the log grows.
    tamper(&pool, "DELETE FROM log_chain WHERE first_position > 1").await;
    assert_eq!(verify(&pool, Some(&published)).await.fault, None);
    tamper(&pool, "UPDATE events SET event_version = '2' WHERE position = 1500; TRUNCATE log_chain").await;
    chain(&pool).await;
    assert_eq!(fault(&pool).await, None);
    assert_eq!(verify(&pool, Some(&published)).await.fault, Some(Fault::NotAsPublished { position: EVENTS }));
    tamper(
        &pool,
        "DELETE FROM events WHERE position > 1400; TRUNCATE log_chain;
         UPDATE log_head SET position = 1400 WHERE log = 'events'",
    )
    .await;
    chain(&pool).await;
    assert_eq!(fault(&pool).await, None);
    let cut = Fault::CutOff { position: 1401, published: EVENTS };
    assert_eq!(verify(&pool, Some(&published)).await.fault, Some(cut));
}

#[tokio::test]
async fn a_head_is_believed_only_with_the_signature_of_its_key() {
    let pool = chained_log().await;
    let head = chain_head(&pool).await.unwrap().unwrap();
    let signed = head.sign(PRIVATE_KEY).unwrap();
    assert!(matches!(signed.check(ANOTHER_KEY), Err(HeadError::Signature)));
    assert!(matches!(signed.check(PRIVATE_KEY), Err(HeadError::PublicKey)));
    assert!(matches!(head.sign(PUBLIC_KEY), Err(HeadError::PrivateKey)));
    assert!(matches!(head.unsigned().check(PUBLIC_KEY), Err(HeadError::Unsigned)));
    let forged = SignedHead { position: signed.position - 1, ..signed };
    assert!(matches!(forged.check(PUBLIC_KEY), Err(HeadError::Signature)));
}
