//! Spans of traces as a collector gets them from processes that have one role each.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Client, Collector, Receiver, Separate, Spanned, eventually, seconds};

const WEBHOOKS: &str = "/api/v1/webhooks";
const EXPERIMENTS: &str = "/api/v1/experiments";
const ENDPOINT: &str = "SIGNALBOX_TELEMETRY__OTLP_ENDPOINT";

/// A trace that a client began.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

fn traceparent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CLIENT}-{flags}")
}

/// Starts an experiment within the client's trace.
async fn start_experiment(client: &Client, name: &str, traceparent: &str) -> Value {
    let request = client.request(Method::POST, EXPERIMENTS).header("traceparent", traceparent);
    let started = client.send(request.json(&json!({ "name": name }))).await.expect(201);
    let stop = format!("{EXPERIMENTS}/{}/stop", started["public_id"].as_str().unwrap());
    client.send(client.request(Method::PUT, &stop)).await.expect(200);
    started
}

/// `span` is what a process with `roles` did because of `parent`.
async fn assert_follows(collector: &Collector, span: &Spanned, parent: &str, kind: SpanKind, roles: &str) {
    assert_eq!(collector.until_parent(span).await.name, parent, "{span:?}");
    assert_eq!((span.kind, span.roles.as_str()), (kind, roles), "{span:?}");
    assert!(span.began <= span.ended && !span.failed, "{span:?}");
}

#[tokio::test]
async fn one_request_is_followed_from_the_client_through_every_process_to_the_receiver() {
    let collector = Collector::start().await;
    let mut service = Separate::start(&[(ENDPOINT, &collector.url())]).await;
    let receiver = Receiver::start().await;
    let webhook = json!({"url": receiver.url(), "events": ["experiment.started"]});
    service.admin.post(WEBHOOKS, webhook).await.expect(201);
    start_experiment(&service.admin, "a", &traceparent(TRACE, "01")).await;
    receiver.until_got(1).await;
    let named = async |name: &str| collector.until_named(TRACE, name).await;
    let request = named("POST /api/v1/experiments").await;
    assert_eq!((request.parent.as_str(), request.kind), (CLIENT, SpanKind::Server));
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/api/v1/experiments"),
        ("http.response.status_code", "201"),
    ] {
        assert_eq!(request.attribute(key), value);
    }
    let last = named("POST").await;
    assert_eq!(last.attribute("http.response.status_code"), "200");
    let (handle, queued) = ("handle cmd.monitoring", "handle cmd.automation");
    let published = "publish event.monitoring.experiment.experiment_started";
    for (name, parent, kind, roles) in [
        ("send cmd.monitoring", "POST /api/v1/experiments", SpanKind::Client, "gateway"),
        (handle, "send cmd.monitoring", SpanKind::Server, "commands"),
        ("decide experiment", handle, SpanKind::Internal, "commands"),
        ("append experiment", handle, SpanKind::Internal, "commands"),
        ("project monitoring", handle, SpanKind::Consumer, "projections"),
        (published, handle, SpanKind::Producer, "workers"),
        ("work webhook-fan-out", handle, SpanKind::Consumer, "workers"),
        (queued, "send cmd.automation", SpanKind::Server, "commands"),
        ("work webhook-delivery", queued, SpanKind::Consumer, "workers"),
        ("POST", "work webhook-delivery", SpanKind::Client, "workers"),
    ] {
        assert_follows(&collector, &named(name).await, parent, kind, roles).await;
    }
    // The claim and the outcome of the attempt are commands within it.
    let delivery = named("work webhook-delivery").await;
    let sent = async || {
        let spans = collector.spans();
        spans.iter().filter(|span| span.parent == delivery.id && span.name == "send cmd.automation").count()
            == 2
    };
    eventually(seconds(20), sent).await;
    let logged: String = sqlx::query_scalar(
        "SELECT metadata->>'traceparent' FROM events WHERE event_type = 'experiment_started'",
    )
    .fetch_one(&service.servers.pool)
    .await
    .unwrap();
    assert_eq!(logged, format!("00-{TRACE}-{}-01", named(handle).await.id));
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}

#[tokio::test]
async fn a_datapoint_its_firing_and_the_webhook_share_one_trace() {
    let collector = Collector::start().await;
    let mut service = Separate::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let (admin, receiver) = (&service.admin, Receiver::start().await);
    let webhook = json!({"url": receiver.url(), "events": ["sensor.threshold_exceeded"]});
    admin.post(WEBHOOKS, webhook).await.expect(201);
    let event = json!({"name": "boiler", "type": "sensor"});
    let event = admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let rule = json!({"name": "hot", "event_public_id": event, "operator": "gt", "threshold": 10,
        "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded", "cooldown_seconds": 0});
    admin.post("/api/v1/rules", rule).await.expect(201);
    let value = json!({"event_public_id": event, "value": 11});
    admin.post("/api/v1/datapoints", value).await.expect(201);
    receiver.until_got(1).await;
    let request = collector.until(|span| span.name == "POST /api/v1/datapoints").await;
    assert_eq!(request.parent, "", "a request has no cause");
    let named = async |name: &str| collector.until_named(&request.trace, name).await;
    let last = named("POST").await;
    assert_eq!(last.attribute("http.response.status_code"), "200");
    let ingested = "handle ingest.datapoints";
    for (name, parent, kind, roles) in [
        ("send ingest.datapoints", "POST /api/v1/datapoints", SpanKind::Client, "gateway"),
        (ingested, "send ingest.datapoints", SpanKind::Server, "commands"),
        ("append datapoints", ingested, SpanKind::Internal, "commands"),
        ("work rules", ingested, SpanKind::Consumer, "workers"),
        ("append rule", "handle cmd.automation", SpanKind::Internal, "commands"),
        ("POST", "work webhook-delivery", SpanKind::Client, "workers"),
    ] {
        assert_follows(&collector, &named(name).await, parent, kind, roles).await;
    }
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}

#[tokio::test]
async fn a_scheduled_firing_starts_a_trace_of_its_own() {
    let collector = Collector::start().await;
    let service = Separate::start(&[(ENDPOINT, &collector.url())]).await;
    let mut agents = Vec::new();
    for name in ["from", "to"] {
        agents
            .push(service.admin.post("/api/agents", json!({ "name": name })).await.expect(201)["id"].clone());
    }
    let job = json!({"name": "each second", "source_agent_id": agents[0], "destination_agent_id": agents[1],
        "source_path": "/a", "destination_path": "/b", "schedule": "* * * * * *"});
    service.admin.post("/api/jobs", job).await.expect(201);
    let firing = collector.until(|span| span.name == "work scheduler").await;
    assert_eq!((firing.parent.as_str(), firing.roles.as_str()), ("", "workers"));
    let dispatched = collector.until_named(&firing.trace, "work dispatch").await;
    assert_follows(&collector, &dispatched, "handle cmd.transfer", SpanKind::Consumer, "workers").await;
}

#[tokio::test]
async fn what_a_client_does_not_want_recorded_is_not_and_neither_is_what_the_ratio_leaves_out() {
    let collector = Collector::start().await;
    let ratio = ("SIGNALBOX_TELEMETRY__SAMPLE_RATIO", "0");
    let mut service = Separate::start(&[(ENDPOINT, &collector.url()), ratio]).await;
    let other = TRACE.replace('0', "1");
    start_experiment(&service.admin, "unrecorded", &traceparent(&other, "00")).await;
    start_experiment(&service.admin, "recorded", &traceparent(TRACE, "01")).await;
    collector.until_named(TRACE, "project monitoring").await;
    // Remaining spans are sent before the processes end.
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
    let strangers: Vec<_> = collector.spans().into_iter().filter(|span| span.trace != TRACE).collect();
    assert!(strangers.is_empty(), "{strangers:#?}");
    let logged: String = sqlx::query_scalar(
        "SELECT metadata->>'traceparent' FROM events WHERE payload->>'name' = 'unrecorded'",
    )
    .fetch_one(&service.servers.pool)
    .await
    .unwrap();
    assert!(logged.starts_with(&format!("00-{other}-")) && logged.ends_with("-00"), "{logged}");
}

/// Part of each secret that is planted.
const MARK: &str = "gehe1m";

#[tokio::test]
async fn no_secret_is_sent_to_the_collector() {
    let collector = Collector::start().await;
    let mut service = Separate::start(&[(ENDPOINT, &collector.url())]).await;
    let admin = &service.admin;
    let password = format!("{MARK} password");
    let user =
        json!({"email": "sam@example.org", "username": "sam", "password": password, "role": "operator"});
    admin.post("/api/v1/users", user).await.expect(201);
    let sam = admin.anonymous().log_in("sam", &password).await;
    let wrong = json!({"email": "sam", "password": format!("{MARK} wrong")});
    admin.anonymous().post("/api/auth/login", wrong).await.expect(401);
    let token = sam.post("/api/v1/tokens", json!({"name": "t"})).await.expect(201)["token"].clone();
    let token = token.as_str().unwrap();
    let by_token = admin.anonymous().with_token(token);
    let secret = format!("{MARK} secret");
    let receiver = Receiver::signed(&secret).await;
    let url = receiver.url_of(&format!("{MARK}-path?token={MARK}"));
    let webhook = json!({"url": url, "events": ["experiment.started"], "secret": secret});
    admin.post(WEBHOOKS, webhook).await.expect(201);
    let session = sam.token.clone().unwrap();
    admin.anonymous().get(&format!("/ws/datapoints/stream?token={session}")).await;
    admin.get(&format!("/api/v1/{MARK}?token={MARK}")).await.expect(404);
    admin
        .send(admin.request(Method::from_bytes(MARK.to_uppercase().as_bytes()).unwrap(), "/api/v1/users"))
        .await;
    let config = json!({"rate": 1, "mqtt": {"api_key": format!("{MARK} key")}}).to_string();
    let plugin = json!({"plugin_id": "simulated", "instance_name": "p", "auto_create_events": false,
        "config_json": config});
    admin.post("/api/v1/plugins", plugin).await.expect(201);
    start_experiment(&by_token, "a", &traceparent(TRACE, "01")).await;
    receiver.until_got(1).await;
    collector.until_named(TRACE, "POST").await;
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
    let everything = collector.everything();
    assert!(everything.contains("POST /api/v1/users"));
    for secret in [MARK, &MARK.to_uppercase(), token, &session, service.admin.token.as_deref().unwrap()] {
        assert!(!everything.contains(secret), "{secret}");
    }
    // Hashes of secrets stay away too.
    assert!(!everything.contains("argon2"));
}

#[tokio::test]
async fn a_collector_that_is_dead_fails_no_request_and_is_mentioned_once() {
    // A dropped listener leaves its address without a server.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut service = Separate::start(&[(ENDPOINT, &format!("http://{address}"))]).await;
    const MENTIONED: &str = "the collector takes no spans";
    let mentioned = |service: &Separate| service.log("gateway").matches(MENTIONED).count();
    eventually(seconds(30), async || mentioned(&service) == 1).await;
    for number in 0..50 {
        start_experiment(&service.admin, &number.to_string(), &traceparent(TRACE, "01")).await;
    }
    let ended = service.stop().await;
    assert!(ended.iter().all(|(_, status)| status.success()), "{ended:?}");
    assert_eq!(mentioned(&service), 1, "{}", service.log("gateway"));
}

#[tokio::test]
async fn a_collector_that_does_not_answer_holds_up_neither_requests_nor_the_end() {
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", deaf.local_addr().unwrap());
    let mut service = Separate::start(&[(ENDPOINT, &endpoint)]).await;
    for number in 0..20 {
        start_experiment(&service.admin, &number.to_string(), &traceparent(TRACE, "01")).await;
    }
    let ended = service.stop().await;
    assert!(ended.iter().all(|(_, status)| status.success()), "{ended:?}");
    drop(deaf);
}
