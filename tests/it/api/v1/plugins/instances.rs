use chrono::{SubsecRound, TimeDelta};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::WEATHER;
use crate::harness::{Receiver, Wheel, World, eventually, seconds};

pub async fn instance(world: &World, body: Value) -> Value {
    world.admin.post("/api/v1/plugins", body).await.expect(201)
}

pub fn path(instance: &Value) -> String {
    format!("/api/v1/plugins/{}", instance["public_id"].as_str().unwrap())
}

async fn events(world: &World) -> Vec<Value> {
    let page = world.admin.get("/api/v1/events?page_size=100").await.expect(200);
    page["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_instance_finds_its_channels_and_links_them_to_events() {
    let world = World::start().await;
    // One of them is there already.
    let event = json!({"name": "Plant – Humidity", "type": "sensor"});
    let known = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let made =
        instance(&world, json!({"plugin_id": "simulated", "instance_name": "Plant", "demo_mode": true}))
            .await;
    assert_eq!(
        (&made["status"], &made["enabled"], &made["demo_mode"]),
        (&json!("inactive"), &json!(true), &json!(true))
    );
    let mappings = made["channel_mappings"].as_array().unwrap();
    let ids: Vec<_> = mappings.iter().map(|mapping| mapping["channel_id"].as_str().unwrap()).collect();
    let expected = [
        "temp_reactor",
        "temp_inlet",
        "temp_outlet",
        "pressure_chamber",
        "pressure_diff",
        "volume_flow",
        "humidity",
        "heater_power",
        "valve_position",
    ];
    assert_eq!(ids, expected);
    let events = events(&world).await;
    assert_eq!(events.len(), 9);
    for mapping in mappings {
        let event = events.iter().find(|event| event["public_id"] == mapping["event_public_id"]).unwrap();
        let name = format!("Plant – {}", mapping["channel_name"].as_str().unwrap());
        let kind = if mapping["direction"] == "output" { "actuator" } else { "sensor" };
        assert_eq!((&event["name"], &event["type"]), (&json!(name), &json!(kind)));
    }
    assert_eq!(mappings[6]["event_public_id"], known);
    assert_eq!(world.admin.get(&path(&made)).await.expect(200), made);
    let listed = world.admin.get("/api/v1/plugins?enabled=true&plugin_id=simulated").await.expect(200);
    assert_eq!((&listed["total"], &listed["data"][0]), (&json!(1), &made));
    assert_eq!(world.admin.get("/api/v1/plugins?name=hall").await.expect(200)["total"], 0);
    let bare = json!({"plugin_id": "system", "instance_name": "Bare", "auto_create_events": false});
    let bare = instance(&world, bare).await;
    assert!(
        bare["channel_mappings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|mapping| mapping["event_public_id"].is_null())
    );
    world.finish().await;
}

#[tokio::test]
async fn wrong_instances_are_refused_and_leave_no_events() {
    let world = World::start().await;
    instance(&world, json!({"plugin_id": "system", "instance_name": "One", "auto_create_events": false}))
        .await;
    let refused = async |body: Value, status| world.admin.post("/api/v1/plugins", body).await.error(status);
    refused(json!({"plugin_id": "nobody", "instance_name": "Two"}), 404).await;
    refused(json!({"plugin_id": "system", "instance_name": "One"}), 409).await;
    for config in ["no json", "[]", r#"{"poll_interval_ms": 5}"#] {
        let message =
            refused(json!({"plugin_id": "system", "instance_name": "Two", "config_json": config}), 422).await;
        assert!(message.starts_with("config_json"), "{message}");
    }
    assert_eq!(events(&world).await, Vec::<Value>::new());
    assert_eq!(world.admin.get("/api/v1/plugins").await.expect(200)["total"], 1);
    world.finish().await;
}

#[tokio::test]
async fn channels_of_a_package_follow_from_the_configuration() {
    let mut world = World::start().await;
    Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).upload(&world.admin).await.expect(201);
    let config = json!({"stations": 3}).to_string();
    let body = json!({"plugin_id": "weather", "instance_name": "Roof", "config_json": config});
    // Also at a gateway that has never seen the package.
    let elsewhere = world.another_gateway().await;
    let made = world.admin.at(&elsewhere).post("/api/v1/plugins", body).await.expect(201);
    assert_eq!(made["channel_mappings"].as_array().unwrap().len(), 4);
    assert_eq!(made["config_json"], json!(config));
    let too_many = json!({"plugin_id": "weather", "instance_name": "B", "config_json": "{\"stations\": 9}"});
    world.admin.post("/api/v1/plugins", too_many).await.error(422);
    // Changes are checked against the schema too.
    world.admin.put(&path(&made), json!({"config_json": "{\"stations\": 0}"})).await.error(422);
    let changed =
        world.admin.put(&path(&made), json!({"config_json": null, "enabled": false})).await.expect(200);
    assert_eq!((&changed["config_json"], &changed["enabled"]), (&Value::Null, &json!(false)));
    // The instance outlives the package; another cannot be made.
    let packages = world.admin.get("/api/v1/plugins/packages").await.expect(200);
    let package = format!("/api/v1/plugins/packages/{}", packages[0]["public_id"].as_str().unwrap());
    world.admin.delete(&package).await.expect(200);
    world.admin.get(&path(&made)).await.expect(200);
    world
        .admin
        .post("/api/v1/plugins", json!({"plugin_id": "weather", "instance_name": "C"}))
        .await
        .error(404);
    world.finish().await;
}

#[tokio::test]
async fn instances_and_mappings_are_changed_linked_and_deleted() {
    let world = World::start().await;
    let made =
        instance(&world, json!({"plugin_id": "system", "instance_name": "One", "auto_create_events": false}))
            .await;
    instance(&world, json!({"plugin_id": "system", "instance_name": "Two", "auto_create_events": false}))
        .await;
    let path = path(&made);
    world.admin.put(&path, json!({"instance_name": "Two"})).await.error(409);
    let renamed = world.admin.put(&path, json!({"instance_name": "First"})).await.expect(200);
    assert_eq!(renamed["instance_name"], "First");
    let event = world.admin.post("/api/v1/events", json!({"name": "e", "type": "sensor"})).await.expect(201);
    let event = event["public_id"].as_str().unwrap();
    let channels = format!("{path}/channels");
    let extra = json!({"channel_id": "extra", "channel_name": "Extra", "direction": "output", "unit": "%", "event_public_id": event});
    let extra_made = world.admin.post(&channels, extra.clone()).await.expect(201);
    assert_eq!((&extra_made["status"], &extra_made["event_public_id"]), (&json!("success"), &json!(event)));
    world.admin.post(&channels, extra.clone()).await.error(409);
    let mut unknown = extra.clone();
    unknown["channel_id"] = json!("other");
    unknown["event_public_id"] = json!("018f0000-0000-7000-8000-000000000000");
    world.admin.post(&channels, unknown).await.error(404);
    let mapping = format!("{channels}/{}", extra_made["public_id"].as_str().unwrap());
    let unlinked = world.admin.put(&mapping, json!({"event_public_id": null})).await.expect(200);
    assert_eq!(unlinked["event_public_id"], Value::Null);
    world.admin.put(&mapping, json!({"event_public_id": event, "unit": "bar"})).await.expect(200);
    let listed = world.admin.get(&channels).await.expect(200);
    let last = listed.as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["event_public_id"], &last["unit"]), (&json!(event), &json!("bar")));
    // An event that is deleted is linked no longer, and another one can be.
    world.admin.delete(&format!("/api/v1/events/{event}")).await.expect(200);
    let listed = world.admin.get(&channels).await.expect(200);
    assert_eq!(listed.as_array().unwrap().last().unwrap()["event_public_id"], Value::Null);
    world.admin.delete(&mapping).await.expect(200);
    world.admin.delete(&mapping).await.error(404);
    world.admin.delete(&path).await.expect(200);
    world.admin.get(&channels).await.error(404);
    assert_eq!(world.admin.get("/api/v1/plugins").await.expect(200)["total"], 1);
    world.finish().await;
}

#[tokio::test]
async fn receivers_see_the_plugin_instance_of_a_value() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let made = instance(&world, json!({"plugin_id": "system", "instance_name": "Cellar"})).await;
    let webhook = json!({"url": receiver.url(), "events": ["sensor.reading"]});
    world.admin.post("/api/v1/webhooks", webhook).await.expect(201);
    let point = json!({"value": 4.5, "event_public_id": made["channel_mappings"][0]["event_public_id"]});
    world.admin.post("/api/v1/datapoints", point).await.expect(201);
    assert_eq!(receiver.until_got(1).await.remove(0).json()["device"], "Cellar");
    world.finish().await;
}

#[tokio::test]
async fn a_repeated_creation_is_one() {
    let world = World::start().await;
    let create = async || {
        let request = world.admin.request(reqwest::Method::POST, "/api/v1/plugins");
        let body = json!({"plugin_id": "system", "instance_name": "One"});
        world.admin.send(request.header("idempotency-key", "once").json(&body)).await.expect(201)
    };
    let first = create().await;
    world.lose_kept_answers().await;
    assert_eq!(create().await, first);
    assert_eq!(world.count_events("plugin_instance_created").await, 1);
    let made = first["channel_mappings"].as_array().unwrap().len() as i64;
    assert_eq!((made > 0, world.count_events("channel_created").await), (true, made));
    world.finish().await;
}

#[tokio::test]
async fn a_status_is_believed_for_a_minute_and_recorded_when_it_changes() {
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let world = World::at(clock.clone(), |_| {}).await;
    let made =
        instance(&world, json!({"plugin_id": "system", "instance_name": "One", "auto_create_events": false}))
            .await;
    let path = path(&made);
    let operator = world.user("operator", "operator").await;
    let report = async |status: &str, error: Option<&str>| {
        let body = json!({"status": status, "error_message": error});
        operator.put(&format!("{path}/status"), body).await.expect(200)
    };
    let shown = report("error", Some("no device")).await;
    assert_eq!((&shown["status"], &shown["error_message"]), (&json!("error"), &json!("no device")));
    assert_eq!(shown["updated_on"], made["updated_on"]);
    for _ in 0..3 {
        report("connected", None).await;
    }
    assert_eq!(world.count_events("plugin_instance_reported").await, 2);
    clock.advance(TimeDelta::seconds(50));
    assert_eq!(world.admin.get(&path).await.expect(200)["status"], "connected");
    clock.advance(TimeDelta::seconds(20));
    assert_eq!(world.admin.get(&path).await.expect(200)["status"], "inactive");
    assert_eq!(report("demo", None).await["status"], "demo");
    world.finish().await;
}

#[tokio::test]
async fn configurations_that_cannot_work_are_refused_when_made_and_when_changed() {
    let world = World::start().await;
    for (plugin, good, wrong) in [
        (
            "mqtt",
            json!({"topics": [{"channel": "a", "topic": "t"}]}),
            vec![
                json!({"topics": [{"channel": "a", "topic": "t"}, {"channel": "a", "topic": "u"}]}),
                json!({"topics": [{"channel": "a", "topic": " "}]}),
                json!({"topics": [{"channel": "a", "topic": "t", "command_topic": "t/#"}]}),
            ],
        ),
        (
            "opcua",
            json!({"nodes": [{"channel": "a", "node": "ns=2;s=A"}]}),
            vec![
                json!({"nodes": [{"channel": "a", "node": "ns=2;s=A"}, {"channel": "a", "node": "ns=2;s=B"}]}),
                json!({"nodes": [{"channel": "a", "node": "A"}]}),
            ],
        ),
        (
            "modbus",
            json!({"registers": [{"channel": "a", "address": 1}]}),
            vec![json!({"registers": [{"channel": "a", "address": 1, "table": "input", "writable": true}]})],
        ),
    ] {
        let body = |name: &str, config: &Value| {
            json!({"plugin_id": plugin, "instance_name": name, "auto_create_events": false,
                "config_json": config.to_string()})
        };
        let made = instance(&world, body(plugin, &good)).await;
        for wrong in wrong {
            for refused in [
                world.admin.post("/api/v1/plugins", body("other", &wrong)).await,
                world.admin.put(&path(&made), json!({"config_json": wrong.to_string()})).await,
            ] {
                let problem = refused.expect(422);
                assert_eq!(problem["errors"][0]["pointer"], "/config_json", "{wrong}: {problem}");
            }
        }
        assert_eq!(world.admin.get(&path(&made)).await.expect(200)["config_json"], good.to_string());
    }
    world.finish().await;
}

#[tokio::test]
async fn an_instance_of_many_channels_is_made_at_once() {
    let world = World::start().await;
    let topics: Vec<_> = (0..900)
        .map(|number| json!({"channel": format!("c{number}"), "topic": format!("t/{number}")}))
        .collect();
    let body = json!({"plugin_id": "mqtt", "instance_name": "Hall", "config_json": json!({"topics": topics}).to_string()});
    let made = instance(&world, body).await;
    // The log commits simultaneous events together.
    let commits = "SELECT count(DISTINCT recorded_at) FROM events WHERE event_type = 'channel_created'";
    let commits: i64 = sqlx::query_scalar(commits).fetch_one(&world.servers.pool).await.unwrap();
    assert!(commits < 450, "900 events were made in {commits} commits");
    let mappings = made["channel_mappings"].as_array().unwrap();
    assert_eq!(mappings.len(), 900);
    let linked: std::collections::BTreeSet<_> =
        mappings.iter().map(|mapping| mapping["event_public_id"].as_str().unwrap()).collect();
    assert_eq!(linked.len(), 900, "each has an event of its own");
    assert_eq!(mappings[899]["channel_id"], "c899", "in the order of the configuration");
    assert_eq!(world.admin.get("/api/v1/events?page_size=1&name=Hall").await.expect(200)["total"], 900);
    world.finish().await;
}

#[tokio::test]
async fn an_instance_is_claimed_by_one_controller_until_it_lets_go_or_is_silent() {
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let world = World::at(clock.clone(), |_| {}).await;
    let mut ids = Vec::new();
    for name in ["One", "Two"] {
        let body = json!({"plugin_id": "system", "instance_name": name, "auto_create_events": false});
        ids.push(instance(&world, body).await["public_id"].as_str().unwrap().to_owned());
    }
    let (one, two) = (ids[0].clone(), ids[1].clone());
    let operator = world.user("operator", "operator").await;
    let claim = async |controller: &str, instances: &[&String]| {
        let body = json!({"controller": controller, "instances": instances});
        let held = operator.post("/api/v1/plugins/claims", body).await.expect(200);
        let mut held: Vec<String> = serde_json::from_value(held["instances"].clone()).unwrap();
        held.sort();
        held
    };
    let mut both = ids.clone();
    both.sort();
    assert_eq!(claim("a", &[&one, &two, &"unknown".to_owned()]).await, both);
    assert_eq!(claim("b", &[&one, &two]).await, Vec::<String>::new());
    clock.advance(TimeDelta::seconds(20));
    // An instance that is not claimed again is free at once.
    assert_eq!(claim("a", &[&one]).await, vec![one.clone()]);
    assert_eq!(claim("b", &[&one, &two]).await, vec![two.clone()]);
    clock.advance(TimeDelta::seconds(20));
    assert_eq!(claim("b", &[&one, &two]).await, vec![two.clone()]);
    clock.advance(TimeDelta::seconds(11));
    assert_eq!(claim("b", &[&one, &two]).await, both);
    assert_eq!(claim("a", &[&one, &two]).await, Vec::<String>::new());
    let many = vec![one; 1001];
    let body = json!({"controller": "a", "instances": many});
    operator.post("/api/v1/plugins/claims", body).await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn a_second_controller_of_one_name_is_refused() {
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let world = World::at(clock.clone(), |_| {}).await;
    let body = json!({"plugin_id": "system", "instance_name": "One", "auto_create_events": false});
    let one = instance(&world, body).await["public_id"].clone();
    let claim = async |session: &str, previous: Option<&str>| {
        let body = json!({"controller": "hall", "session": session, "previous_session": previous, "instances": [one]});
        world.admin.post("/api/v1/plugins/claims", body).await
    };
    assert_eq!(claim("s1", None).await.expect(200)["instances"], json!([one]));
    assert_eq!(claim("s1", None).await.expect(200)["instances"], json!([one]));
    assert_eq!(claim("copy", None).await.expect(409)["code"], "controller_name_taken");
    // The same one after it was started again has its instances at once, and the run before is refused.
    assert_eq!(claim("s2", Some("s1")).await.expect(200)["instances"], json!([one]));
    assert_eq!(claim("s1", None).await.expect(409)["code"], "controller_name_taken");
    // A controller that is silent loses its name with its claims.
    clock.advance(TimeDelta::seconds(31));
    assert_eq!(claim("copy", None).await.expect(200)["instances"], json!([one]));
    world.finish().await;
}

#[tokio::test]
async fn instances_are_listed_oldest_first_unless_sorted() {
    let world = World::start().await;
    for name in ["One", "Two", "Three"] {
        let body = json!({"plugin_id": "system", "instance_name": name, "auto_create_events": false});
        instance(&world, body).await;
    }
    let names = async |query: &str| {
        let page = world.admin.get(&format!("/api/v1/plugins?{query}")).await.expect(200);
        let names = page["data"].as_array().unwrap().iter().map(|row| row["instance_name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["One", "Two", "Three"]);
    assert_eq!(names("page_size=1").await, ["One"]);
    assert_eq!(names("sort=newest").await, ["Three", "Two", "One"]);
    // Every other list of service 2 is the newest first, and sorted the same way.
    for path in
        ["experiments", "dashboards", "logging", "webhooks", "rules", "ota", "users", "tokens", "events"]
    {
        for sort in ["newest", "oldest"] {
            world.admin.get(&format!("/api/v1/{path}?sort={sort}")).await.expect(200);
        }
        world.admin.get(&format!("/api/v1/{path}?sort=sideways")).await.error(422);
    }
    world.finish().await;
}

fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

fn linked(mapping: &Value) -> String {
    mapping["event_public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn deleted_instance_takes_the_events_that_it_created_with_it() {
    let world = World::start().await;
    // One of its channels finds an event that is there already.
    let known = json!({"name": "Plant – Humidity", "type": "sensor"});
    world.admin.post("/api/v1/events", known).await.expect(201);
    let made = instance(&world, json!({"plugin_id": "simulated", "instance_name": "Plant"})).await;
    let mappings = made["channel_mappings"].as_array().unwrap();
    assert_eq!(events(&world).await.len(), 9);
    // Another instance maps one of its events, and a rule watches two others.
    let bare = json!({"plugin_id": "system", "instance_name": "Bare", "auto_create_events": false});
    let bare = instance(&world, bare).await;
    let (shared, first, unmapped) = (linked(&mappings[0]), linked(&mappings[1]), linked(&mappings[2]));
    let extra = json!({"channel_id": "x", "channel_name": "x", "direction": "input", "unit": "", "event_public_id": shared});
    world.admin.post(&format!("{}/channels", path(&bare)), extra).await.expect(201);
    for (name, event) in [("on first", &first), ("on shared", &shared)] {
        let rule = json!({"name": name, "event_public_id": event, "operator": "gt", "threshold": 1,
            "action_type": "log"});
        world.admin.post("/api/v1/rules", rule).await.expect(201);
    }
    let point = json!({"value": 4.5, "event_public_id": first});
    let point = world.admin.post("/api/v1/datapoints", point).await.expect(201);
    // It created this one too, though it maps it no longer.
    let mapping = format!("{}/channels/{}", path(&made), mappings[2]["public_id"].as_str().unwrap());
    world.admin.delete(&mapping).await.expect(200);
    let stale = world.admin.request(reqwest::Method::DELETE, &path(&made)).header("if-match", "\"1\"");
    world.admin.send(stale).await.error(412);
    assert_eq!(events(&world).await.len(), 9);
    let tag = world.admin.get(&path(&made)).await.header("etag").unwrap().to_owned();
    let one_of = world.admin.request(reqwest::Method::DELETE, &path(&made));
    let gone = world.admin.send(one_of.header("if-match", format!("\"1\", {tag}"))).await.expect(200);
    assert_eq!(gone["status"], "success");
    let deleted = names(&gone["deleted_events"]);
    assert_eq!(deleted.len(), 7, "{deleted:?}");
    assert!(
        gone["deleted_events"].as_array().unwrap().iter().any(|event| event["public_id"] == json!(unmapped))
    );
    assert_eq!(names(&gone["disabled_rules"]), ["on first"]);
    let left = events(&world).await;
    let mut left: Vec<_> = left.iter().map(|event| event["public_id"].as_str().unwrap().to_owned()).collect();
    left.sort();
    let mut expected = vec![shared, linked(&mappings[6])];
    expected.sort();
    assert_eq!(left, expected);
    let rules = world.admin.get("/api/v1/rules?sort=oldest").await.expect(200);
    let enabled: Vec<_> =
        rules["data"].as_array().unwrap().iter().map(|rule| rule["enabled"].clone()).collect();
    assert_eq!(enabled, [false, true]);
    // Datapoints stay.
    let shown = format!("/api/v1/datapoints/{}", point["public_id"].as_str().unwrap());
    assert_eq!(world.admin.get(&shown).await.expect(200)["value"], 4.5);
    // Their names are free: the same instance can be made again.
    instance(&world, json!({"plugin_id": "simulated", "instance_name": "Plant"})).await;
    world.finish().await;
}

#[tokio::test]
async fn deleted_instance_takes_datapoints_of_its_events_when_asked_to() {
    let world = World::start().await;
    let made = instance(&world, json!({"plugin_id": "system", "instance_name": "One"})).await;
    let event = events(&world).await[0]["public_id"].clone();
    let point = json!({"value": 4.5, "event_public_id": event});
    world.admin.post("/api/v1/datapoints", point).await.expect(201);
    // As by a request without `values` that was broken off.
    world.admin.delete(&format!("/api/v1/events/{}", event.as_str().unwrap())).await.expect(200);
    let gone = world.admin.delete(&format!("{}?values=true", path(&made))).await.expect(200);
    let deleted = gone["deleted_events"].as_array().unwrap();
    assert!(deleted.iter().any(|one| one["public_id"] == event), "{gone}");
    assert_eq!(world.count_events("channel_values_deleted").await, deleted.len() as i64);
    eventually(seconds(30), async || world.admin.get("/api/v1/datapoints").await.expect(200)["total"] == 0)
        .await;
    world.finish().await;
}

#[tokio::test]
async fn deleted_instance_leaves_its_events_when_asked_to() {
    let world = World::start().await;
    let made = instance(&world, json!({"plugin_id": "system", "instance_name": "One"})).await;
    let before = events(&world).await;
    assert!(!before.is_empty());
    world.admin.delete(&format!("{}?keep_events=perhaps", path(&made))).await.error(422);
    world.admin.delete(&format!("{}?keep_events=true&values=true", path(&made))).await.error(422);
    let gone = world.admin.delete(&format!("{}?keep_events=true", path(&made))).await.expect(200);
    assert_eq!((&gone["deleted_events"], &gone["disabled_rules"]), (&json!([]), &json!([])));
    assert_eq!(events(&world).await, before);
    world.finish().await;
}
