use signalbox_projections::Leases;
use signalbox_test_support::{TestServers, eventually, seconds};
use sqlx::{Connection, Executor, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

const LOCK: &str = "SELECT pg_advisory_lock(hashtextextended('work', 0))";

/// A session of a process that hangs: it holds the lease and sends no heartbeat.
async fn hung(pool: &PgPool) -> PgConnection {
    let options = PgConnectOptions::clone(&pool.connect_options()).application_name("signalbox leases");
    let mut session = PgConnection::connect_with(&options).await.unwrap();
    session.execute(LOCK).await.unwrap();
    session
}

#[tokio::test]
async fn a_lease_has_one_holder_and_can_be_handed_over() {
    let servers = TestServers::start().await;
    let (one, other) = (Leases::new(&servers.pool), Leases::new(&servers.pool));
    let held = one.acquire("work").await;
    let own = one.acquire("other work").await;
    assert!(timeout(seconds(2), other.acquire("work")).await.is_err());
    assert!(timeout(seconds(2), one.acquire("work")).await.is_err(), "the same session got it twice");
    drop(held);
    let taken = timeout(seconds(20), other.acquire("work")).await.expect("it was given back");
    assert!(taken.holds().await && own.holds().await);
    servers.finish().await;
}

#[tokio::test]
async fn the_lease_of_a_process_that_hangs_is_taken_from_it() {
    let servers = TestServers::start().await;
    let mut hung = hung(&servers.pool).await;
    let leases = Leases::new(&servers.pool);
    let _kept = leases.acquire("other work").await;
    let lease = timeout(seconds(20), leases.acquire("work")).await.expect("the hung one keeps the lease");
    assert!(hung.ping().await.is_err());
    assert!(lease.holds().await);
    servers.finish().await;
}

#[tokio::test]
async fn a_holder_notices_that_its_session_was_ended() {
    let servers = TestServers::start().await;
    let leases = Leases::new(&servers.pool);
    let lease = leases.acquire("work").await;
    let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'signalbox leases'";
    servers.pool.execute(ended).await.unwrap();
    eventually(seconds(20), async || !lease.holds().await).await;
    drop(lease);
    let again = leases.acquire("work").await;
    assert!(again.holds().await);
    servers.finish().await;
}
