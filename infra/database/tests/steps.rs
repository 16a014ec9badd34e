//! A step that does not return is a fault until it does.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::time::Duration;

use signalbox_database::{Steps, connect, faults};
use signalbox_test_support::{eventually, fresh_database, seconds};
use sqlx::PgPool;

async fn parts(pool: &PgPool) -> Vec<String> {
    faults(pool).await.unwrap().into_iter().map(|fault| fault.part).collect()
}

#[tokio::test]
async fn a_step_that_does_not_return_is_a_fault_until_it_does() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let steps = Steps::default();
    let quick = steps.begin("worker.relay.step", Duration::from_secs(3600));
    let hung = steps.begin("worker.cleanup.step", Duration::from_millis(300));
    let _watch = steps.watch(&pool).unwrap();
    eventually(seconds(20), async || parts(&pool).await == ["worker.cleanup.step"]).await;
    let fault = faults(&pool).await.unwrap().remove(0);
    let reported_after = fault.reported_at - fault.since;
    assert!(reported_after.num_milliseconds() >= 300, "it lasts since the step began: {fault:?}");
    assert!(fault.reason.contains("has not returned for "), "{fault:?}");
    drop(hung);
    eventually(seconds(20), async || parts(&pool).await.is_empty()).await;
    drop(quick);
}

#[tokio::test]
async fn a_part_of_two_hung_steps_is_a_fault_until_both_return() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let steps = Steps::default();
    let [first, second] = [0, 1].map(|_| steps.begin("worker.extraction.job", Duration::ZERO));
    let third = steps.begin("worker.cleanup.step", Duration::ZERO);
    let _watch = steps.watch(&pool).unwrap();
    let both = ["worker.cleanup.step", "worker.extraction.job"];
    eventually(seconds(20), async || parts(&pool).await == both).await;
    drop((first, third));
    eventually(seconds(20), async || parts(&pool).await == ["worker.extraction.job"]).await;
    drop(second);
    eventually(seconds(20), async || parts(&pool).await.is_empty()).await;
}

/// Its thread runs no task meanwhile, not even those that the step has woken there.
#[tokio::test]
async fn a_step_that_blocks_the_only_thread_is_reported() {
    let url = fresh_database().await;
    let (pool, steps) = (connect(&url, 2).await.unwrap(), Steps::default());
    let _watch = steps.watch(&pool).unwrap();
    let _hung = steps.begin("worker.cleanup.step", Duration::ZERO);
    // Another thread looks, as another process would.
    let seen = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pool = connect(&url, 2).await.unwrap();
            eventually(seconds(20), async || parts(&pool).await == ["worker.cleanup.step"]).await;
        });
    });
    seen.join().unwrap();
}
