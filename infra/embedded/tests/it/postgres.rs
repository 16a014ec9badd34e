use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use signalbox_embedded::{EmbeddedError, Postgres, PostgresOptions};
use sqlx::{Connection, Executor, PgConnection};

use crate::{kill_dash_nine, mode, runs, wait_until};

fn options(data_dir: &Path) -> PostgresOptions {
    PostgresOptions::new(data_dir)
}

pub(crate) async fn write_row(postgres: &Postgres) {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await.unwrap();
    connection.execute("CREATE TABLE kept (word text)").await.unwrap();
    connection.execute("INSERT INTO kept VALUES ('still here')").await.unwrap();
    connection.close().await.unwrap();
}

pub(crate) async fn read_row(postgres: &Postgres) -> String {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await.unwrap();
    sqlx::query_scalar("SELECT word FROM kept").fetch_one(&mut connection).await.unwrap()
}

async fn setting(postgres: &Postgres, name: &str) -> String {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await.unwrap();
    sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn data_outlive_a_stop_and_a_start() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    write_row(&postgres).await;
    let pid = postgres.pid();
    postgres.stop().await;
    assert!(!runs(pid));
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    assert_eq!(read_row(&postgres).await, "still here");
}

#[tokio::test]
async fn a_new_server_is_durable_private_and_checked() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    let expected = [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
        ("lc_collate", "C"),
        ("lc_ctype", "C.UTF-8"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("jit", "off"),
    ];
    for (name, value) in expected {
        assert_eq!(setting(&postgres, name).await, value, "{name}");
    }
    assert_eq!(mode(&place.path().join("password")), 0o600);
    assert_eq!(mode(&place.path().join("cluster")), 0o700);
    assert_eq!(mode(&place.path().join("log")), 0o600);
    assert!(!place.path().join("password.initdb").exists());
}

#[tokio::test]
async fn a_wrong_password_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    let url = format!("postgres://signalbox:guess@127.0.0.1:{}/postgres", postgres.port());
    let error = PgConnection::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("password authentication failed"), "{error}");
}

#[tokio::test]
async fn given_settings_win_over_the_defaults() {
    let place = tempfile::tempdir().unwrap();
    let settings =
        vec![("fsync".to_owned(), "off".to_owned()), ("max_connections".to_owned(), "37".to_owned())];
    let postgres = Postgres::start(PostgresOptions { settings, ..options(place.path()) }).await.unwrap();
    assert_eq!(setting(&postgres, "fsync").await, "off");
    assert_eq!(setting(&postgres, "max_connections").await, "37");
}

#[tokio::test]
async fn committed_data_outlive_kill_dash_nine() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    write_row(&postgres).await;
    kill_dash_nine(postgres.pid());
    drop(postgres);
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    assert_eq!(read_row(&postgres).await, "still here");
}

#[tokio::test]
async fn a_dropped_handle_ends_the_server() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    let pid = postgres.pid();
    drop(postgres);
    wait_until("the dropped server is gone", || !runs(pid)).await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error =
        Postgres::start(PostgresOptions { port: Some(port), ..options(place.path()) }).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::PortTaken { port: taken } if taken == port), "{error}");
}

#[tokio::test]
async fn a_folder_in_use_is_refused_and_its_server_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let postgres = Postgres::start(options(place.path())).await.unwrap();
    let error = Postgres::start(options(place.path())).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::InUse { .. }), "{error}");
    write_row(&postgres).await;
}

#[tokio::test]
async fn a_server_that_ends_at_its_start_says_why() {
    let place = tempfile::tempdir().unwrap();
    let settings = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error =
        Postgres::start(PostgresOptions { settings, ..options(place.path()) }).await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL ended while it started"), "{error}");
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
}

#[tokio::test]
async fn data_of_another_major_version_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let cluster = place.path().join("cluster");
    std::fs::create_dir(&cluster).unwrap();
    std::fs::write(cluster.join("PG_VERSION"), "99\n").unwrap();
    let error = Postgres::start(options(place.path())).await.unwrap_err().to_string();
    assert!(error.contains("was written by PostgreSQL 99, which is not installed"), "{error}");
}

#[tokio::test]
async fn a_layout_that_was_cut_short_starts_anew() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("cluster.new/base")).unwrap();
    Postgres::start(options(place.path())).await.unwrap();
}

#[tokio::test]
async fn a_closed_parent_folder_works_and_stays_closed() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
    let data_dir = place.path().join("clone/data/postgres");
    let postgres = Postgres::start(options(&data_dir)).await.unwrap();
    write_row(&postgres).await;
    assert_eq!(mode(place.path()), 0o700);
}

#[tokio::test]
async fn a_start_may_run_on_any_thread() {
    let place = tempfile::tempdir().unwrap();
    tokio::spawn(Postgres::start(options(place.path()))).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_replica_follows_its_primary_and_catches_up_after_kill_dash_nine() {
    let place = tempfile::tempdir().unwrap();
    let primary = Postgres::start(options(&place.path().join("primary"))).await.unwrap();
    let replica_options =
        PostgresOptions { primary: Some(primary.as_primary()), ..options(&place.path().join("replica")) };
    let replica = Postgres::start(replica_options.clone()).await.unwrap();
    assert_eq!(setting(&replica, "transaction_read_only").await, "on");
    kill_dash_nine(replica.pid());
    let port = Some(replica.port());
    drop(replica);
    write_row(&primary).await;
    let replica = Postgres::start(PostgresOptions { port, ..replica_options }).await.unwrap();
    let shown = async || {
        let mut connection = PgConnection::connect(&replica.url("postgres")).await.ok()?;
        sqlx::query_scalar::<_, String>("SELECT word FROM kept").fetch_optional(&mut connection).await.ok()?
    };
    let begun = std::time::Instant::now();
    while shown().await.is_none() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "the replica does not follow");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
