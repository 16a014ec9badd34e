//! The callers of the routes, and their subjects.

use serde_json::{Value, json};
use signalbox_domain::{
    automation::{
        Alarm, AlarmCommand, AlarmMark, AlarmReason, Condition, NewAlarm, Operator, Severity, StepKind,
    },
    extraction::{
        ExtractionJob, ExtractionJobCommand, ExtractionOptions, ExtractionResult, NewExtractionJob,
    },
    kernel::Sha256Hex,
};
use signalbox_test_support::metadata;
use uuid::Uuid;

use crate::harness::{ADMIN, AgentAccount, Client, Receiver, World, eventually, seconds};

/// One resource of each kind, owned by the admin.
pub struct Subjects {
    pub agent: AgentAccount,
    pub job: i64,
    pub transfer: i64,
    pub user: String,
    pub api_token: String,
    pub experiment: String,
    pub log_entry: String,
    pub dashboard: String,
    pub widget: String,
    pub event: String,
    pub rule: String,
    pub alarm: Uuid,
    pub webhook: String,
    pub delivery: String,
    pub contact: String,
    pub message: String,
    pub datapoint: String,
    pub extraction: Uuid,
    pub document: Uuid,
    pub plugin_instance: String,
    pub channel_mapping: String,
    pub firmware: String,
}

/// A client of each kind.
pub struct Clients {
    pub anonymous: Client,
    pub viewer: Client,
    pub operator: Client,
    pub admin: Client,
    pub agent: Client,
}

impl Clients {
    pub async fn new(world: &World, subjects: &Subjects) -> Self {
        Self {
            anonymous: world.anonymous(),
            viewer: world.user("viewer", "viewer").await,
            operator: world.user("operator", "operator").await,
            admin: world.admin.clone(),
            agent: world.as_agent(&subjects.agent),
        }
    }
}

impl Subjects {
    pub async fn new(world: &World) -> Self {
        let agent = world.agent("subject").await;
        let job = json!({"name": "subject", "source_agent_id": agent.id, "destination_agent_id": agent.id,
            "source_path": "/a", "destination_path": "/b"});
        let job = world.admin.post("/api/jobs", job).await.id();
        let transfer = world.transfer(&agent, &agent, "/a", "/b").await;
        world.until_phase(transfer, "dispatched").await;
        let user = json!({"email": "subject@example.org", "username": "subject", "password": "long enough"});
        let user = world.admin.post("/api/v1/users", user).await.expect(201);
        let token = world.admin.post("/api/v1/tokens", json!({"name": "subject"})).await.expect(201);
        let event = json!({"name": "subject", "type": "sensor"});
        let event = world.admin.post("/api/v1/events", event).await.expect(201);
        let id = |made: &Value| made["public_id"].as_str().unwrap().to_owned();
        let (user, api_token, event) = (id(&user), id(&token), id(&event));
        let made = async |path: &str, body: Value| id(&world.admin.post(path, body).await.expect(201));
        let datapoint = made("/api/v1/datapoints", json!({"value": 1.5, "event_public_id": event})).await;
        let rule = json!({"name": "subject", "event_public_id": event, "operator": "gt", "threshold": 9000,
            "action_type": "log"});
        let rule = made("/api/v1/rules", rule).await;
        let alarm = alarm(world, &rule, &event).await;
        let (webhook, delivery) = delivered(world).await;
        let (contact, message) = notified(world).await;
        let experiment = made("/api/v1/experiments", json!({"name": "subject"})).await;
        let log_entry = made("/api/v1/logging", json!({"content": "subject"})).await;
        let dashboard = made("/api/v1/dashboards", json!({"name": "subject"})).await;
        let widgets = format!("/api/v1/dashboards/{dashboard}/widgets");
        let widget = made(&widgets, json!({"widget_type": "gauge", "title": "subject"})).await;
        let plugin =
            json!({"plugin_id": "simulated", "instance_name": "subject", "auto_create_events": false});
        let plugin_instance = made("/api/v1/plugins", plugin).await;
        let channels =
            world.admin.get(&format!("/api/v1/plugins/{plugin_instance}/channels")).await.expect(200);
        let channel_mapping = id(&channels[0]);
        let firmware = made("/api/v1/ota", json!({"version": "1.0.0"})).await;
        Self {
            agent,
            job,
            transfer,
            user,
            api_token,
            event,
            rule,
            alarm,
            webhook,
            delivery,
            contact,
            message,
            datapoint,
            experiment,
            log_entry,
            dashboard,
            widget,
            extraction: extraction(world).await,
            document: document(world).await,
            plugin_instance,
            channel_mapping,
            firmware,
        }
    }
}

/// A pending job: there are no document parsers here.
pub(super) async fn extraction(world: &World) -> Uuid {
    submitted(world, false).await
}

/// A document whose text is kept, without the text.
pub(super) async fn document(world: &World) -> Uuid {
    let (id, claim) = (submitted(world, true).await, world.clock.new_id());
    let result = ExtractionResult {
        mime_type: "text/plain".to_owned(),
        size: 1,
        sha256: Sha256Hex::from_bytes(&[2; 32]),
        extractor_used: "native".to_owned(),
        ocr_engine_used: None,
        page_count: None,
        confidence: 1.0,
        cached: false,
        milliseconds: 1,
        warnings: Vec::new(),
    };
    let begin = ExtractionJobCommand::Begin { claim, at: world.clock.now() };
    for command in [begin, ExtractionJobCommand::Complete { claim, result }] {
        world.servers.bus.send::<ExtractionJob>(id, None, &metadata(), &command).await.unwrap();
    }
    let is_indexed = |list: &Value| {
        let found = list["data"].as_array().into_iter().flatten().find(|one| one["id"] == id.to_string());
        found.is_some_and(|document| document["searchable"] == true)
    };
    world.admin.until("/api/v1/documents".to_owned(), is_indexed).await;
    // Its file is removed, so that nothing happens to it any more by itself.
    world.admin.until(format!("/api/v1/jobs/{id}"), |job| job["input_kept"] == false).await;
    id
}

async fn submitted(world: &World, keep: bool) -> Uuid {
    let admin = "SELECT id FROM read.users WHERE email = $1";
    let admin: Uuid = sqlx::query_scalar(admin).bind(ADMIN).fetch_one(&world.servers.pool).await.unwrap();
    let new = NewExtractionJob {
        owner: Some(admin.into()),
        filename: "subject.txt".to_owned(),
        size: 1,
        sha256: Sha256Hex::from_bytes(&[1; 32]),
        input: world.clock.new_id(),
        options: ExtractionOptions {
            output_format: "markdown".to_owned(),
            engine: "auto".to_owned(),
            ocr_engine: "none".to_owned(),
            language: "deu".to_owned(),
            processors: Vec::new(),
            front_matter: false,
            words: false,
            chunks: false,
            chunk_words: None,
            keep_input: false,
            keep,
        },
        callback: None,
    };
    let (id, command) = (world.clock.new_id(), ExtractionJobCommand::Submit(new));
    world.servers.bus.send::<ExtractionJob>(id, None, &metadata(), &command).await.unwrap();
    let path = format!("/api/v1/jobs/{id}");
    eventually(seconds(10), async || world.admin.get(&path).await.status == 200).await;
    id
}

/// A firing alarm of the rule `rule` on `event`; nothing judges it.
pub(super) async fn alarm(world: &World, rule: &str, event: &str) -> Uuid {
    let (id, on) = (world.clock.new_id(), world.clock.now());
    let alarm = NewAlarm {
        rule_id: rule.parse().unwrap(),
        rule_name: "subject".to_owned(),
        channel_id: event.parse().unwrap(),
        channel_name: "subject".to_owned(),
        reason: AlarmReason::Condition,
        severity: Severity::Warning,
        condition: Condition { operator: Operator::Gt, threshold: 9000.0, threshold_high: None },
        rate_window_seconds: None,
        started_on: on,
        value: Some(9001.0),
    };
    let mark = AlarmMark { kind: StepKind::Fired, on, value: Some(9001.0), silenced: false };
    let command = AlarmCommand::Record { alarm, marks: vec![mark] };
    world.servers.bus.send::<Alarm>(id, None, &metadata(), &command).await.unwrap();
    let path = format!("/api/v1/alarms/{id}");
    eventually(seconds(10), async || world.admin.get(&path).await.status == 200).await;
    id
}

/// A webhook and a delivery that has come: nothing happens to it any more by itself.
async fn delivered(world: &World) -> (String, String) {
    let receiver = Receiver::start().await;
    let webhook = json!({"url": receiver.url(), "events": ["system.health_changed"]});
    tested(world, ("/api/v1/webhooks", "deliveries"), webhook).await
}

/// A contact and a message that has come.
async fn notified(world: &World) -> (String, String) {
    let receiver = Receiver::start().await;
    let contact = json!({"name": "subject", "kind": "webhook", "url": receiver.url()});
    tested(world, ("/api/v1/contacts", "messages"), contact).await
}

/// A receiver that was made with `body`, and its test.
async fn tested(world: &World, (collection, sent): (&str, &str), body: Value) -> (String, String) {
    let made = world.admin.post(collection, body).await.expect(201)["public_id"].clone();
    let made = made.as_str().unwrap().to_owned();
    let path = format!("{collection}/{made}");
    let test = world.admin.post(&format!("{path}/test"), json!({})).await.expect(201)["public_id"].clone();
    let test = test.as_str().unwrap().to_owned();
    eventually(seconds(20), async || {
        world.admin.get(&format!("{path}/{sent}/{test}")).await.expect(200)["status"] == "delivered"
    })
    .await;
    (made, test)
}
