//! Archives between real databases.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use signalbox_log_archive::{Carried, ImportError, export, import};
use signalbox_test_support::fresh_database;
use sqlx::{Executor, PgPool};

/// Tables whose rows must be the same on both sides.
const COMPARED: [&str; 10] = [
    "ops.kept_rollups",
    "ops.value_removals",
    "events",
    "datapoint_log",
    "datapoint_tombstones",
    "log_head",
    "datapoint_key",
    "claims",
    "command_outcomes",
    "ops.sealing_keys",
];

async fn database() -> PgPool {
    signalbox_database::connect(&fresh_database().await, 4).await.unwrap()
}

/// A log of odd values: every kind of character, numbers that no float holds, bytes, several days.
async fn odd_log() -> PgPool {
    let pool = database().await;
    pool.execute(
        r#"INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata, recorded_at)
           SELECT n, 'odd', gen_random_uuid(), 1, E'a\tb\\c', '1',
                  jsonb_build_object('text', chr(n::int % 55000 + 1) || E'"\\\n\r\t' || chr(128512), 'number', n * 1e300::numeric,
                                     'deep', jsonb_build_array(null, true, jsonb_build_object('a\b', -0.10))),
                  '"only a text"', timestamptz '2026-01-01T00:00:00Z' + n * interval '1 microsecond'
             FROM generate_series(1, 3000) AS n;
           INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata, recorded_at)
           VALUES (3001, 'odd', '{"section"', 1, '\.', '', 'null', '{}', '2026-01-02T00:00:00Z');
           UPDATE log_head SET position = 3001 WHERE log = 'events';
           SELECT add_day('datapoint_log', DATE '2025-12-31'), add_day('datapoint_log', DATE '2026-01-01');
           INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
           SELECT n, DATE '2025-12-31' + (n % 2), '2026-01-01T00:00:00Z', 1, 1, n, decode(lpad(to_hex(n), 4, '0') || '00ff5c0a', 'hex')
             FROM generate_series(1, 500) AS n;
           SELECT add_day('datapoint_tombstones', DATE '2025-12-31');
           INSERT INTO datapoint_tombstones (position, index, day) VALUES (2, 0, DATE '2025-12-31');
           UPDATE log_head SET position = 500, points = 500 WHERE log = 'datapoints';
           INSERT INTO claims (kind, key, owner) VALUES ('name', E'tab\there', 'me'), ('name', 'ÄÖÜ "quoted"', 'you');
           INSERT INTO ops.sealing_keys (name, secret, created_at) VALUES ('k', '\x00ff', now());
           INSERT INTO ops.kept_rollups SELECT 7, 24, 20000 + n, DATE '2025-01-01' + n, 3, 0.3, 1e-18, -1.5, 2.5, 1, 2.5, 9, 0, 2, -1.5, 9, 1
             FROM generate_series(1, 50) AS n;
           INSERT INTO ops.value_removals (day, channels, position) VALUES (DATE '2025-12-31', '{1,7}', 3);
           SELECT setval('ops.user_numbers', 41)"#,
    )
    .await
    .unwrap();
    pool
}

async fn rows(pool: &PgPool, table: &str) -> Vec<String> {
    sqlx::query_scalar(&format!("SELECT t::text FROM {table} AS t ORDER BY 1")).fetch_all(pool).await.unwrap()
}

async fn archive_of(pool: &PgPool) -> (Vec<u8>, Carried) {
    let mut archive = Vec::new();
    let carried = export(pool, &mut archive, |_, _| {}).await.unwrap();
    (archive, carried)
}

#[tokio::test]
async fn what_is_imported_is_what_was_exported() {
    let pool = odd_log().await;
    let (archive, carried) = archive_of(&pool).await;
    assert_eq!((carried.events, carried.datapoint_rows), (3001, 500));
    for line in std::str::from_utf8(&archive).unwrap().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let other = database().await;
    let mut progress = 0;
    let imported = import(&other, archive.as_slice(), |done, all| progress = done.min(all)).await.unwrap();
    assert_eq!(imported, carried);
    for table in COMPARED {
        assert_eq!(rows(&other, table).await, rows(&pool, table).await, "{table}");
    }
    let next: i64 = sqlx::query_scalar("SELECT nextval('ops.user_numbers')").fetch_one(&other).await.unwrap();
    assert_eq!(next, 42);
    // Carried on, it is still the same.
    let (again, _) = archive_of(&other).await;
    let lines = |archive: &[u8]| std::str::from_utf8(archive).unwrap().lines().count();
    assert_eq!(lines(&again), lines(&archive));
}

#[tokio::test]
async fn an_archive_is_imported_only_into_an_empty_system() {
    let (archive, _) = archive_of(&odd_log().await).await;
    let used = odd_log().await;
    let refused = import(&used, archive.as_slice(), |_, _| {}).await;
    assert!(matches!(refused, Err(ImportError::NotEmpty(_))), "{refused:?}");
    let later =
        String::from_utf8(archive).unwrap().replacen("\"signalbox_archive\":1", "\"signalbox_archive\":2", 1);
    let refused = import(&database().await, later.as_bytes(), |_, _| {}).await;
    assert!(matches!(refused, Err(ImportError::NoArchive(_))), "{refused:?}");
}

#[tokio::test]
async fn a_missing_line_in_the_middle_is_not_taken_for_a_cut_end() {
    let (archive, Carried { rows, .. }) = archive_of(&odd_log().await).await;
    let whole = String::from_utf8(archive).unwrap();
    let row = whole.lines().find(|line| line.starts_with("{\"position\"")).expect("a row of a log");
    let without = whole.replacen(&format!("{row}\n"), "", 1);
    let refused = import(&database().await, without.as_bytes(), |_, _| {}).await.unwrap_err();
    assert!(
        matches!(refused, ImportError::Rows { found, expected } if expected == rows && found == rows - 1),
        "{refused}"
    );
    let cut = &whole[..whole.len() - 1];
    let refused = import(&database().await, cut.as_bytes(), |_, _| {}).await.unwrap_err();
    assert!(matches!(refused, ImportError::NotWhole(_)), "{refused}");
}
