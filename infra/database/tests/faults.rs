//! Faults are kept with the time of their first report until they are cleared.

use signalbox_database::{Host, clear_fault, connect, faults, note_check, report_fault};
use signalbox_test_support::fresh_database;

#[tokio::test]
async fn a_repeated_report_keeps_the_time_of_the_first() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    report_fault(&pool, "projection.transfer", "an event cannot be applied").await.unwrap();
    let first = faults(&pool).await.unwrap();
    report_fault(&pool, "projection.transfer", "two events\0 cannot be applied").await.unwrap();
    let second = faults(&pool).await.unwrap();

    assert_eq!((second.len(), second[0].since), (1, first[0].since));
    assert!(second[0].reported_at > first[0].reported_at);
    assert_eq!(second[0].reason, "two events cannot be applied");
    assert!(clear_fault(&pool, "projection.transfer").await.unwrap());
    assert!(!clear_fault(&pool, "projection.transfer").await.unwrap());
    assert_eq!(faults(&pool).await.unwrap(), []);
}

#[tokio::test]
async fn a_fault_that_is_no_longer_reported_lapses() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    report_fault(&pool, "disk.press", "3 MiB are free").await.unwrap();
    let age = "UPDATE ops.faults SET reported_at = reported_at - interval '4 minutes'";
    sqlx::query(age).execute(&pool).await.unwrap();
    assert_eq!(faults(&pool).await.unwrap(), []);
}

/// PostgreSQL's clock was ahead when it was reported, and is set right.
#[tokio::test]
async fn a_fault_that_was_reported_in_the_future_lapses() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    report_fault(&pool, "clock", "the clocks differ").await.unwrap();
    let ahead = "UPDATE ops.faults SET since = since + interval '1 day', reported_at = reported_at + interval '1 day'";
    sqlx::query(ahead).execute(&pool).await.unwrap();
    assert_eq!(faults(&pool).await.unwrap(), []);
    report_fault(&pool, "clock", "the clocks differ").await.unwrap();
    let again = faults(&pool).await.unwrap();
    assert!(again.len() == 1 && again[0].since <= again[0].reported_at, "{again:?}");
    sqlx::query(ahead).execute(&pool).await.unwrap();
    note_check(&pool, &[]).await.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM ops.faults").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn without_a_check_for_a_minute_the_workers_are_missing() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    note_check(&pool, &[]).await.unwrap();
    assert_eq!(faults(&pool).await.unwrap(), []);
    let age = "UPDATE ops.fault_checks SET checked_at = checked_at - interval '2 minutes'";
    sqlx::query(age).execute(&pool).await.unwrap();
    assert_eq!(faults(&pool).await.unwrap()[0].part, "workers");
}

#[tokio::test]
async fn a_new_process_clears_the_faults_of_the_one_before() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for part in [format!("clock.{name}"), "clock.elsewhere".to_owned()] {
        report_fault(&pool, &part, "the clock is a day ahead").await.unwrap();
    }
    Host::default().check(&pool, &std::env::temp_dir()).await.unwrap();
    let parts: Vec<_> = faults(&pool).await.unwrap().into_iter().map(|fault| fault.part).collect();
    assert!(
        !parts.contains(&format!("clock.{name}")) && parts.contains(&"clock.elsewhere".to_owned()),
        "{parts:?}"
    );
}
