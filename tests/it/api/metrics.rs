//! What Prometheus reads.

use serde_json::json;

use crate::harness::{World, eventually, seconds};

#[tokio::test]
async fn an_admin_reads_numbers_about_the_process_and_the_installation() {
    let world = World::start().await;
    let agents = json!({"name": "press"});
    world.admin.post("/api/agents", agents).await.expect(201);
    let number = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    let read = async || {
        let answer = world.admin.get("/metrics").await;
        assert_eq!(
            answer.header("content-type"),
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        answer.text()
    };
    let text = read().await;
    for name in [
        "signalbox_http_request_duration_seconds_count{method=\"POST\",route=\"/api/agents\",status=\"201\"}",
        "signalbox_command_duration_seconds_count{context=\"transfer\",outcome=\"done\"}",
        "signalbox_append_commands_count",
        "signalbox_events_appended_total",
        "signalbox_log_position",
    ] {
        assert!(number(&text, name) >= Some(1.0), "{name} in\n{text}");
    }
    for kind in ["transfer", "webhook_delivery", "extraction"] {
        assert_eq!(number(&text, &format!("signalbox_outstanding_work{{work=\"{kind}\"}}")), Some(0.0));
    }
    assert_eq!(number(&text, "signalbox_mailbox_messages"), Some(0.0));
    // Stored positions of read models follow when they rest.
    let lag = "signalbox_projection_lag_events{projection=\"transfer\"}";
    eventually(seconds(10), async || number(&read().await, lag) == Some(0.0)).await;
    world.finish().await;
}

#[tokio::test]
async fn numbers_are_for_admins_and_made_up_paths_are_counted_together() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    viewer.get("/metrics").await.expect(403);
    let anonymous = world.anonymous();
    anonymous.get("/metrics").await.expect(401);
    anonymous.get("/made/up/by-a-stranger").await.expect(404);
    let text = world.admin.get("/metrics").await.text();
    assert!(text.contains("route=\"none\",status=\"404\""), "{text}");
    assert!(!text.contains("by-a-stranger"), "{text}");
    world.finish().await;
}
