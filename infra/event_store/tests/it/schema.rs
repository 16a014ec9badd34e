use signalbox_test_support::fresh_database;
use sqlx::PgPool;

/// Everything that a migration can make, as sorted lines.
const DUMP: &str = r"
SELECT format('column %s.%s.%s %s %s %s %s', table_schema, table_name, column_name, ordinal_position, data_type,
              is_nullable, column_default)
  FROM information_schema.columns WHERE table_schema IN ('public', 'read', 'ops')
UNION ALL
SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
 WHERE connamespace IN ('public'::regnamespace, 'read'::regnamespace, 'ops'::regnamespace)
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname IN ('public', 'read', 'ops')
UNION ALL
SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT format('sequence %s.%s', sequence_schema, sequence_name) FROM information_schema.sequences
 WHERE sequence_schema IN ('public', 'read', 'ops')
ORDER BY 1";

async fn dump(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(DUMP).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn migrating_twice_equals_migrating_once() {
    let pool = signalbox_database::connect(&fresh_database().await, 4).await.unwrap();
    let once = dump(&pool).await;
    assert!(once.len() > 100, "{} lines are too few", once.len());
    let results = tokio::join!(signalbox_database::migrate(&pool), signalbox_database::migrate(&pool));
    results.0.unwrap();
    results.1.unwrap();
    assert_eq!(dump(&pool).await, once);
}
