//! Many events at once, written past the rules of the aggregates.

use sqlx::PgPool;

/// Appends events until there are `count`: of 100 streams of one type and one of another, every tenth by another actor, every hundredth of
/// another kind, in groups of seven with one correlation.
pub(crate) async fn make_events(pool: &PgPool, count: i64) {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query(
        "INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata, recorded_at)
         SELECT n, CASE WHEN n % 100 = 0 THEN 'rare' ELSE 'common' END,
                CASE WHEN n % 100 = 0 THEN '018f0000-0000-7000-8000-000000000000'
                     ELSE '018f0000-0000-7000-8000-0000000000' || lpad(to_hex(n % 100), 2, '0') END,
                (n + 99) / 100, CASE WHEN n % 100 = 0 THEN 'it_shone' ELSE 'it_rained' END, '1',
                jsonb_build_object('n', n, 'text', 'drop ' || n),
                jsonb_build_object('command_id', gen_random_uuid(), 'correlation', 'c' || n / 7,
                                   'actor', CASE WHEN n % 10 = 0 THEN 'system:sun' ELSE 'system:cloud' END),
                timestamptz '2026-01-01T00:00:00Z' + n * interval '1 second'
           FROM generate_series((SELECT position FROM log_head WHERE log = 'events') + 1, $1) AS n",
    )
    .bind(count)
    .execute(&mut *transaction)
    .await
    .unwrap();
    sqlx::query("UPDATE log_head SET position = $1 WHERE log = 'events'")
        .bind(count)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
}
