use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use async_nats::{Client, ConnectOptions, ServerAddr, jetstream};
use signalbox_embedded::{EmbeddedError, Nats, NatsCluster, NatsOptions};

use crate::{kill_dash_nine, mode, runs, wait_until};

pub(crate) async fn publish(nats: &Nats) {
    let jetstream = jetstream::new(connect(nats).await);
    let config = jetstream::stream::Config {
        name: "KEPT".into(),
        subjects: vec!["kept.>".into()],
        ..Default::default()
    };
    jetstream.create_stream(config).await.unwrap();
    jetstream.publish("kept.one", "still here".into()).await.unwrap().await.unwrap();
}

pub(crate) async fn read_back(nats: &Nats) -> String {
    let jetstream = jetstream::new(connect(nats).await);
    let stream = jetstream.get_stream("KEPT").await.unwrap();
    let message = stream.get_raw_message(1).await.unwrap();
    String::from_utf8(message.payload.to_vec()).unwrap()
}

async fn connect(nats: &Nats) -> Client {
    let server: ServerAddr = nats.url().parse().unwrap();
    let (user, password) = (server.username().unwrap().to_owned(), server.password().unwrap().to_owned());
    ConnectOptions::with_user_and_password(user, password).connect(server).await.unwrap()
}

async fn start(data_dir: &Path, port: Option<u16>) -> Result<Nats, EmbeddedError> {
    Nats::start(NatsOptions { port, ..NatsOptions::new(data_dir) }).await
}

#[tokio::test]
async fn streams_and_credentials_outlive_a_stop_and_a_start_on_the_same_port() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(place.path(), None).await.unwrap();
    publish(&nats).await;
    let (url, port, pid) = (nats.url(), nats.port(), nats.pid());
    nats.stop().await;
    assert!(!runs(pid));
    let nats = start(place.path(), Some(port)).await.unwrap();
    assert_eq!(nats.url(), url);
    assert_eq!(read_back(&nats).await, "still here");
}

#[tokio::test]
async fn acknowledged_messages_outlive_kill_dash_nine() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(place.path(), None).await.unwrap();
    publish(&nats).await;
    kill_dash_nine(nats.pid());
    drop(nats);
    let nats = start(place.path(), None).await.unwrap();
    assert_eq!(read_back(&nats).await, "still here");
}

#[tokio::test]
async fn a_server_that_was_left_behind_gives_way_to_a_new_one() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(place.path(), None).await.unwrap();
    publish(&nats).await;
    let program = std::fs::read_link(format!("/proc/{}/exe", nats.pid())).unwrap();
    nats.stop().await;
    let folder = place.path().canonicalize().unwrap();
    let mut left_behind = Command::new(program)
        .arg("--config")
        .arg(folder.join("nats.conf"))
        .arg("--store_dir")
        .arg(&folder)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reaper = std::thread::spawn(move || left_behind.wait().unwrap());
    let nats = start(place.path(), None).await.unwrap();
    reaper.join().unwrap();
    assert_eq!(read_back(&nats).await, "still here");
}

#[tokio::test]
async fn the_server_is_private_and_takes_large_messages() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(place.path(), None).await.unwrap();
    let client = connect(&nats).await;
    assert_eq!(client.server_info().max_payload, 8 * 1024 * 1024);
    let stranger = async_nats::connect(format!("nats://127.0.0.1:{}", nats.port())).await;
    assert!(stranger.is_err(), "let in without a password");
    for name in ["nats.conf", "password", "name"] {
        assert_eq!(mode(&place.path().join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_dropped_handle_ends_the_server() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(place.path(), None).await.unwrap();
    let pid = nats.pid();
    drop(nats);
    wait_until("the dropped server is gone", || !runs(pid)).await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = start(place.path(), Some(port)).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::PortTaken { port: taken } if taken == port), "{error}");
}

#[tokio::test]
async fn a_folder_in_use_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let _nats = start(place.path(), None).await.unwrap();
    let error = start(place.path(), None).await.unwrap_err();
    assert!(matches!(error, EmbeddedError::InUse { .. }), "{error}");
}

#[tokio::test]
async fn a_path_with_quotes_and_spaces_works() {
    let place = tempfile::tempdir().unwrap();
    let nats = start(&place.path().join("a \"quoted\" $PLACE ü"), None).await.unwrap();
    publish(&nats).await;
}

#[tokio::test]
async fn a_cluster_keeps_what_a_majority_has_when_one_server_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = NatsCluster::start(place.path(), 3).await.unwrap();
    let servers: Vec<ServerAddr> = cluster.url().split(',').map(|server| server.parse().unwrap()).collect();
    let (user, password) = (servers[0].username().unwrap(), servers[0].password().unwrap());
    let options = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
    let jetstream = jetstream::new(options.connect(servers.clone()).await.unwrap());
    let config = jetstream::stream::Config { name: "KEPT".into(), num_replicas: 3, ..Default::default() };
    let begun = std::time::Instant::now();
    while let Err(error) = jetstream.create_stream(&config).await {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "no leader: {error}");
    }
    jetstream.publish("KEPT", "still here".into()).await.unwrap().await.unwrap();
    let stream = jetstream.get_stream("KEPT").await.unwrap();
    let leader = stream.cached_info().cluster.as_ref().unwrap().leader.clone().unwrap();
    let leader = cluster.index_of(&leader).unwrap();
    cluster.kill(leader);
    let begun = std::time::Instant::now();
    let message = loop {
        match stream.get_raw_message(1).await {
            Ok(message) => break message,
            Err(error) => assert!(begun.elapsed().as_secs() < 30, "no new leader: {error}"),
        }
    };
    assert_eq!(&message.payload[..], b"still here");
    cluster.restart(leader).await.unwrap();
}
