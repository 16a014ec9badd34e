//! Connections whose network stops carrying data without closing them.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::net::SocketAddr;

use futures::future::join_all;
use signalbox_database::{Class, OwnConnection, begin_as, connect, connect_as};
use signalbox_test_support::{SilentLink, fresh_database, seconds};
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio::time::timeout;

/// A link to a fresh database, and the database's address over it and without it.
async fn linked_database() -> (SilentLink, String, String) {
    let url = fresh_database().await;
    let options: PgConnectOptions = url.parse().unwrap();
    let target: SocketAddr = format!("{}:{}", options.get_host(), options.get_port()).parse().unwrap();
    let link = SilentLink::to(target).await;
    let over_link = link.instead_of(&url, target);
    assert_ne!(over_link, url);
    (link, over_link, url)
}

async fn answers(pool: &PgPool) -> i32 {
    timeout(seconds(15), sqlx::query_scalar("SELECT 1").fetch_one(pool)).await.unwrap().unwrap()
}

/// Waits until `count` sessions of this database execute `pg_sleep`.
async fn asleep(watching: &PgPool, count: i64) {
    signalbox_test_support::eventually(seconds(20), async || {
        let asked = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep($1)'",
        );
        asked.fetch_one(watching).await.unwrap() == count
    })
    .await;
}

/// Waits until at least `count` other sessions of this database have rested for `interval`, by the server's clock.
async fn rested(watching: &PgPool, count: i64, interval: &str) {
    signalbox_test_support::eventually(seconds(30), async || {
        let asked = sqlx::query_scalar::<_, i64>(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                AND state = 'idle' AND state_change < clock_timestamp() - $1::interval",
        );
        asked.bind(interval).fetch_one(watching).await.unwrap() >= count
    })
    .await;
}

async fn sleep_in(pool: PgPool, seconds: f64) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_sleep($1)").bind(seconds).execute(&pool).await.map(|_| ())
}

#[tokio::test]
async fn statements_on_silent_connections_fail_and_free_the_pool() {
    let (link, over_link, url) = linked_database().await;
    let (watching, pool) = (connect(&url, 1).await.unwrap(), connect(&over_link, 4).await.unwrap());
    let busy: Vec<_> = (0..4).map(|_| tokio::spawn(sleep_in(pool.clone(), 2.0))).collect();
    asleep(&watching, 4).await;
    link.silence();
    link.restore();
    for ended in timeout(seconds(15), join_all(busy)).await.unwrap() {
        assert!(matches!(ended.unwrap(), Err(sqlx::Error::Io(_))));
    }
    assert_eq!(answers(&pool).await, 1);
}

#[tokio::test]
async fn idle_connections_that_went_silent_are_replaced() {
    let (link, over_link, url) = linked_database().await;
    let (watching, pool) = (connect(&url, 1).await.unwrap(), connect(&over_link, 8).await.unwrap());
    let busy: Vec<_> = (0..8).map(|_| tokio::spawn(sleep_in(pool.clone(), 0.5))).collect();
    asleep(&watching, 8).await;
    for ended in join_all(busy).await {
        ended.unwrap().unwrap();
    }
    signalbox_test_support::eventually(seconds(10), async || pool.num_idle() == 8).await;
    // A connection that was just used is not pinged.
    rested(&watching, 8, "150 milliseconds").await;
    link.silence();
    link.restore();
    for one in join_all((0..8).map(|_| answers(&pool))).await {
        assert_eq!(one, 1);
    }
}

#[tokio::test]
async fn an_own_connection_that_went_silent_is_replaced() {
    let (link, over_link, _) = linked_database().await;
    let pool = connect(&over_link, 1).await.unwrap();
    let mut own = OwnConnection::new(&pool, &[]);
    let first = own.take().await.unwrap();
    own.keep(first);
    link.silence();
    // The first use may still find the connection fresh, and fails within the deadline.
    link.restore();
    let used = timeout(seconds(15), async {
        loop {
            let mut connection = own.take().await.unwrap();
            let asked = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut connection).await;
            if let Ok(one) = asked {
                own.keep(connection);
                return one;
            }
        }
    });
    assert_eq!(used.await.unwrap(), 1);
}

#[tokio::test]
async fn a_connection_is_not_opened_for_ever() {
    let (link, over_link, _) = linked_database().await;
    let pool = connect(&over_link, 1).await.unwrap();
    let mut own = OwnConnection::new(&pool, &[]);
    link.silence();
    assert!(timeout(seconds(15), own.take()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_long_statement_that_the_server_executes_is_not_ended() {
    let (_link, over_link, _) = linked_database().await;
    let pool = connect_as(&over_link, 1, Class::Background).await.unwrap();
    sleep_in(pool, 11.0).await.unwrap();
}

#[tokio::test]
async fn idle_connections_are_kept() {
    let (_link, over_link, url) = linked_database().await;
    let (watching, pool) = (connect(&url, 1).await.unwrap(), connect(&over_link, 1).await.unwrap());
    let session = async |pool: &PgPool| {
        let asked = sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()");
        asked.fetch_one(pool).await.unwrap()
    };
    let mut own = OwnConnection::new(&pool, &[]);
    let mut kept = own.take().await.unwrap();
    let own_session: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut kept).await.unwrap();
    own.keep(kept);
    let first = session(&pool).await;
    // Longer than a busy connection may be silent.
    rested(&watching, 2, "9 seconds").await;
    assert_eq!(session(&pool).await, first);
    let mut kept = own.take().await.unwrap();
    let now: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut kept).await.unwrap();
    assert_eq!(now, own_session);
}

#[tokio::test]
async fn statements_are_limited_by_class() {
    let url = fresh_database().await;
    let shown = "SELECT current_setting('statement_timeout'), current_setting('application_name')";
    for (class, limit, name) in [
        (Class::Interactive, "10s", "signalbox"),
        (Class::Background, "1min", "signalbox background"),
        (Class::Export, "5min", "signalbox export"),
        (Class::Maintenance, "4h", "signalbox maintenance"),
    ] {
        let pool = connect_as(&url, 1, class).await.unwrap();
        let found: (String, String) = sqlx::query_as(shown).fetch_one(&pool).await.unwrap();
        assert_eq!(found, (limit.to_owned(), name.to_owned()));
    }
    let pool = connect(&url, 1).await.unwrap();
    let mut export = begin_as(&pool, Class::Export, "BEGIN READ ONLY").await.unwrap();
    let (limit, _): (String, String) = sqlx::query_as(shown).fetch_one(&mut *export).await.unwrap();
    assert_eq!(limit, "5min");
    export.commit().await.unwrap();
    let (limit, _): (String, String) = sqlx::query_as(shown).fetch_one(&pool).await.unwrap();
    assert_eq!(limit, "10s");
}

#[tokio::test]
async fn the_server_notices_silent_clients_of_every_class() {
    let url = fresh_database().await;
    for class in [Class::Interactive, Class::Background, Class::Export, Class::Maintenance] {
        let pool = connect_as(&url, 1, class).await.unwrap();
        let settings = "SELECT current_setting('tcp_keepalives_idle')::int, current_setting('tcp_keepalives_interval')::int,
                               current_setting('tcp_keepalives_count')::int, current_setting('tcp_user_timeout')::int";
        // Seconds, but for the last: milliseconds.
        let found: (i32, i32, i32, i32) = sqlx::query_as(settings).fetch_one(&pool).await.unwrap();
        assert_eq!(found, (5, 2, 3, 10_000), "{class:?}");
    }
}
