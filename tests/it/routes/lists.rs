//! Every list of the description in every order that it offers.

use std::cmp::Ordering;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::{Value, json};

use super::{
    cases::{Route, routes},
    subjects::{Clients, Subjects, alarm, document, extraction},
};
use crate::harness::{Client, Receiver, World, eventually, seconds};

/// Lists that may have millions of entries: they offer only the order of creation, which an index serves.
const LONG: [&str; 7] = [
    "list_alarms",
    "list_datapoints",
    "list_deliveries",
    "list_extraction_jobs",
    "list_log",
    "list_log_entries",
    "list_transfers",
];

fn parameter<'a>(route: &'a Route, name: &str) -> Option<&'a Value> {
    route.operation["parameters"]
        .as_array()?
        .iter()
        .find(|known| known["in"] == "query" && known["name"] == name)
}

/// Routes that answer with pages of a list.
fn lists() -> Vec<Route> {
    let is_list = |route: &Route| {
        ["offset", "page", "from_position"].iter().any(|name| parameter(route, name).is_some())
    };
    routes().into_iter().filter(is_list).collect()
}

fn values(route: &Route) -> Vec<String> {
    let sort = parameter(route, "sort").unwrap_or_else(|| panic!("{} cannot be sorted", route.name()));
    sort["schema"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_str().unwrap().to_owned())
        .collect()
}

/// The rows of an answer; those of a stream of the log are its events.
fn rows(answer: &Value) -> Vec<Value> {
    let listed = if answer.is_array() { answer } else { &answer["data"] };
    let listed = if listed.is_null() { &answer["events"]["data"] } else { listed };
    listed.as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

/// Whether `one` may stand before `other` in ascending order of a field.
fn in_order(field: &str, one: &Value, other: &Value) -> bool {
    let time = |value: &Value| {
        let text = value.as_str()?;
        let naive = || text.parse::<NaiveDateTime>().ok().map(|time| time.and_utc());
        DateTime::parse_from_rfc3339(text).map(|time| time.to_utc()).ok().or_else(naive)
    };
    let release = |value: &Value| {
        let parts = value.as_str()?.split('.').map(str::parse::<u64>);
        parts.collect::<Result<Vec<_>, _>>().ok()
    };
    let ordering = match (field, one, other) {
        ("version", Value::String(_), _) => release(one).cmp(&release(other)),
        (_, Value::Number(one), Value::Number(other)) => one.as_i64().cmp(&other.as_i64()),
        _ => match (time(one), time(other)) {
            (Some(one), Some(other)) => DateTime::<Utc>::cmp(&one, &other),
            _ => one.as_str().unwrap().cmp(other.as_str().unwrap()),
        },
    };
    ordering != Ordering::Greater
}

/// Several resources of each kind, many of them alike in what they can be sorted by.
async fn fill(world: &World, subjects: &mut Subjects, receiver: &Receiver) {
    let admin = &world.admin;
    for name in ["zeta", "beta"] {
        let agent = world.agent(name).await;
        let job = json!({"name": name, "source_agent_id": agent.id, "destination_agent_id": agent.id,
            "source_path": "/a", "destination_path": "/b", "enabled": name == "zeta"});
        admin.post("/api/jobs", job).await.expect(201);
        let transfer = world.transfer(&subjects.agent, &subjects.agent, "/a", "/b").await;
        world.until_phase(transfer, "dispatched").await;
        world.user(name, "viewer").await;
        admin.post("/api/v1/tokens", json!({"name": name})).await.expect(201);
        admin.post("/api/v1/events", json!({"name": name, "type": "actuator"})).await.expect(201);
        let point =
            json!({"value": 1, "event_public_id": subjects.event, "timestamp": "2026-03-01T10:00:00Z"});
        admin.post("/api/v1/datapoints", point).await.expect(201);
        let rule = json!({"name": name, "event_public_id": subjects.event, "operator": "gt", "threshold": 9000,
            "action_type": "log"});
        admin.post("/api/v1/rules", rule).await.expect(201);
        admin.post("/api/v1/logging", json!({"content": name})).await.expect(201);
        admin.post("/api/v1/dashboards", json!({"name": name})).await.expect(201);
        let plugin = json!({"plugin_id": "system", "instance_name": name, "auto_create_events": false});
        admin.post("/api/v1/plugins", plugin).await.expect(201);
        extraction(world).await;
        document(world).await;
        alarm(world, &subjects.rule, &subjects.event).await;
    }
    for version in ["1.10.0", "1.9.0"] {
        admin.post("/api/v1/ota", json!({"version": version})).await.expect(201);
    }
    let stop = async |id: &str| {
        admin.put(&format!("/api/v1/experiments/{id}/stop"), json!({})).await.expect(200);
    };
    stop(&subjects.experiment).await;
    for name in ["zeta", "beta"] {
        let experiment = admin.post("/api/v1/experiments", json!({"name": name})).await.expect(201);
        if name == "zeta" {
            stop(experiment["public_id"].as_str().unwrap()).await;
        }
    }
    let webhook = json!({"url": receiver.url(), "events": ["system.health_changed"]});
    subjects.webhook = delivered_twice(admin, ("/api/v1/webhooks", "deliveries"), webhook).await;
    admin
        .post("/api/v1/contacts", json!({"name": "beta", "kind": "email", "address": "b@example.org"}))
        .await
        .expect(201);
    let contact = json!({"name": "zeta", "kind": "webhook", "url": receiver.url()});
    subjects.contact = delivered_twice(admin, ("/api/v1/contacts", "messages"), contact).await;
    for (path, change) in [
        (format!("/api/v1/events/{}", subjects.event), json!({"name": "renamed"})),
        (format!("/api/jobs/{}", subjects.job), json!({"name": "renamed"})),
        (format!("/api/v1/rules/{}", subjects.rule), json!({"name": "renamed"})),
        (format!("/api/v1/webhooks/{}", subjects.webhook), json!({"enabled": false})),
        (format!("/api/v1/dashboards/{}", subjects.dashboard), json!({"name": "renamed"})),
    ] {
        admin.put(&path, change).await.expect(200);
    }
    world.read_models.show_all().await;
}

/// A webhook or contact that nothing happens to any more by itself, with two deliveries.
async fn delivered_twice(admin: &Client, (collection, sent): (&str, &str), body: Value) -> String {
    let made = admin.post(collection, body).await.expect(201);
    let path = format!("{collection}/{}", made["public_id"].as_str().unwrap());
    for _ in 0..2 {
        admin.post(&format!("{path}/test"), json!({})).await.expect(201);
    }
    eventually(seconds(20), async || {
        let delivered = admin.get(&format!("{path}/{sent}?status=delivered")).await.expect(200);
        delivered["total"] == 2
    })
    .await;
    made["public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_list_is_shown_in_every_order_that_it_offers() {
    let world = World::start().await;
    let mut subjects = Subjects::new(&world).await;
    let receiver = Receiver::start().await;
    fill(&world, &mut subjects, &receiver).await;
    let (head, lists) = (world.count_all_events().await, lists());
    assert!(lists.len() >= 20, "{}", lists.len());
    for route in lists {
        let (path, values) = (route.path(&subjects), values(&route));
        // The log grows by itself.
        let is_log = parameter(&route, "from_position").is_some();
        let whole = match (is_log, parameter(&route, "limit")) {
            (true, _) => format!("{path}?limit=500&to_position={head}"),
            (false, Some(_)) => format!("{path}?limit=500"),
            (false, None) => format!("{path}?page_size=100"),
        };
        let list =
            async |sort: &str| rows(&world.admin.get(&format!("{whole}&sort={sort}")).await.expect(200));
        let unsorted = rows(&world.admin.get(&whole).await.expect(200));
        assert!(unsorted.len() >= 2, "{} has nothing to sort: {unsorted:?}", route.name());
        let (newest, oldest) = (list("newest").await, list("oldest").await);
        let is_default =
            if ["list_events", "list_plugin_instances"].contains(&route.id()) { &oldest } else { &newest };
        assert!(route.id() == "list_agents" || unsorted == *is_default, "{}", route.name());
        for value in &values {
            let sorted = list(value).await;
            let field = value.trim_start_matches('-');
            let ascending = match value.strip_prefix('-') {
                Some(field) => list(field).await,
                None if value == "newest" => oldest.clone(),
                None => sorted.clone(),
            };
            let reversed = value.starts_with('-') || value == "newest";
            let expected: Vec<_> = if reversed { ascending.into_iter().rev().collect() } else { ascending };
            // Equal ones are reversed too, so the order is that of a tie-break.
            assert_eq!(sorted, expected, "{} by {value}", route.name());
            assert_eq!(sorted.len(), unsorted.len(), "{} by {value}", route.name());
            if !["newest", "oldest"].contains(&field) {
                let pairs = sorted.windows(2).map(|pair| (&pair[0][field], &pair[1][field]));
                let mut pairs = pairs.map(|(one, other)| if reversed { (other, one) } else { (one, other) });
                assert!(pairs.all(|(one, other)| in_order(field, one, other)), "{} by {value}", route.name());
            }
            if !is_log {
                assert_eq!(
                    by_ones(&world.admin, &route, &path, value).await,
                    sorted,
                    "{} by {value}",
                    route.name()
                );
            }
        }
    }
    world.finish_with_mail().await;
}

/// The list, read in pages of one entry.
async fn by_ones(client: &Client, route: &Route, path: &str, sort: &str) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let page = match parameter(route, "offset") {
            Some(_) => format!("limit=1&offset={}", found.len()),
            None => format!("page_size=1&page={}", found.len() + 1),
        };
        match rows(&client.get(&format!("{path}?sort={sort}&{page}")).await.expect(200)).as_slice() {
            [] => return found,
            [one] => found.push(one.clone()),
            more => panic!("{} entries on a page of one", more.len()),
        }
    }
}

#[tokio::test]
async fn no_list_takes_an_order_that_it_does_not_offer() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    for route in lists() {
        let (path, values) = (route.path(&subjects), values(&route));
        let first = ["newest", "oldest"];
        assert_eq!(values[..2], first, "{}", route.name());
        assert!(!LONG.contains(&route.id()) || values.len() == 4, "{}: {values:?}", route.name());
        for odd in [
            "",
            "-",
            "sideways",
            "Newest",
            "id;",
            "name%2Cid",
            "--name",
            "-newest",
            "%2Bname",
            "number",
            "a'",
        ] {
            let answer = route.least(&clients).get(&format!("{path}?sort={odd}")).await;
            let refusal = answer.error(route.invalid());
            assert_eq!(
                refusal,
                format!("sort must be one of {}", values.join(", ")),
                "{} by {odd}",
                route.name()
            );
        }
    }
    world.finish_with_mail().await;
}
