//! Transports, and the way from one to the other.

use crate::{
    folder::Folder,
    gateway::{Gateway, TOKEN},
    harness::{Agent, Site, bytes, config},
};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn both_transports_echo_tests_and_send_signs_of_life() {
    for transport in ["websocket", "polling"] {
        let site =
            Site::start_with(transport, |config| config.timing.heartbeat = Duration::from_millis(20)).await;
        site.gateway.echo("ping").await;
        site.gateway.nth("heartbeat", 2).await;
        site.agent.stop().await;
    }
}

#[tokio::test]
async fn polling_takes_over_and_gives_way_again() {
    let (gateway, folder) = (Gateway::start().await, Folder::new());
    std::fs::create_dir(folder.path("in")).unwrap();
    gateway.faults(|faults| faults.refuses_websockets = true);
    let mut config = config(&gateway.url(), TOKEN, &folder.path("in"), "auto");
    config.timing.websocket_probe = Duration::from_millis(100);
    let agent = Agent::start(config);
    assert_eq!(gateway.nth("agent_info", 1).await["transport_mode"], "polling");
    folder.write("in/f", bytes(100));
    gateway.request("upload", 1, json!({ "source_path": "f" }));
    assert_eq!(gateway.report(1).await["type"], "transfer_complete");
    gateway.faults(|faults| faults.refuses_websockets = false);
    assert_eq!(gateway.nth("agent_info", 2).await["transport_mode"], "websocket");
    gateway.request("upload", 2, json!({ "source_path": "f" }));
    assert_eq!(gateway.report(2).await["type"], "transfer_complete");
    agent.stop().await;
    gateway.until("close", |inner| (inner.websockets == 0).then_some(())).await;
}

#[tokio::test]
async fn a_silent_connection_is_given_up() {
    let (gateway, folder) = (Gateway::start().await, Folder::new());
    std::fs::create_dir(folder.path("in")).unwrap();
    gateway.faults(|faults| faults.falls_silent = true);
    let mut config = config(&gateway.url(), TOKEN, &folder.path("in"), "websocket");
    config.timing.silence = Duration::from_millis(100);
    let agent = Agent::start(config);
    gateway.nth("agent_info", 3).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_gateway_with_nothing_to_say_answers_pings() {
    let site =
        Site::start_with("websocket", |config| config.timing.silence = Duration::from_millis(500)).await;
    let again = tokio::time::timeout(Duration::from_secs(2), site.gateway.nth("agent_info", 2)).await;
    assert!(again.is_err(), "the connection was given up");
    site.agent.stop().await;
}

#[tokio::test]
async fn a_refused_token_is_tried_again_but_moves_nothing() {
    for transport in ["auto", "polling"] {
        let (gateway, folder) = (Gateway::start().await, Folder::new());
        std::fs::create_dir(folder.path("in")).unwrap();
        let agent = Agent::start(config(&gateway.url(), "wrong", &folder.path("in"), transport));
        gateway.request("upload", 1, json!({ "source_path": "f" }));
        let proxied = tokio::time::timeout(Duration::from_millis(300), gateway.nth("agent_info", 1)).await;
        assert!(proxied.is_err());
        agent.stop().await;
    }
}

#[tokio::test]
async fn unknown_and_broken_messages_are_acknowledged_and_ignored() {
    let site = Site::start("auto").await;
    for (kind, data) in [
        ("chunk_ack", json!({})),
        ("transfer_request", json!({ "transfer": { "id": 5 } })),
        ("cancel_transfer", json!(null)),
    ] {
        let mail = site.gateway.post(kind, data);
        site.gateway.acknowledged(mail).await;
    }
    site.gateway.echo("still there").await;
}
