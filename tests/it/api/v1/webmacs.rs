//! Clients of the WebMACS family against the gateway: their everyday requests must work unchanged.

use serde_json::{Value, json};

use crate::harness::{
    ADMIN, Client, PASSWORD, World, eventually, seconds,
    webmacs::{Account, Browser, Controller, LoadTest, Telemetry},
};

const TYPES: [&str; 4] = ["sensor", "actuator", "range", "cmd_button"];

fn password() -> Account {
    Account::Password { email: ADMIN.to_owned(), password: PASSWORD.to_owned() }
}

/// One event of each of several types, as the originals make them; their ids.
async fn events(world: &World) -> Vec<String> {
    let mut ids = Vec::new();
    for kind in TYPES {
        let event = json!({"name": kind, "type": kind, "unit": "V", "min_value": 0, "max_value": 100.5});
        let made = world.admin.post("/api/v1/events", event).await.expect(201);
        ids.push(made["public_id"].as_str().unwrap().to_owned());
    }
    ids
}

fn values(events: &[String], tick: u32) -> Vec<(String, f64)> {
    let value = |index: u32| f64::from(tick) + f64::from(index) / 8.0;
    events.iter().zip(0..).map(|(event, index)| (event.clone(), value(index))).collect()
}

/// The controller's log entries, oldest first.
async fn notes(world: &World) -> Vec<(Value, Value)> {
    let page = world.admin.get("/api/v1/logging?source=api").await.expect(200);
    let rows = page["data"].as_array().unwrap().iter().rev();
    rows.map(|row| (row["content"].clone(), row["logging_type"].clone())).collect()
}

#[tokio::test]
async fn a_controller_sends_values_over_http_and_reads_them_back() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let events = events(&world).await;
    let page = Browser::open(&world.admin.at(&elsewhere)).await;
    let controller = Controller::start(world.anonymous(), password(), Telemetry::Http).await;
    assert_eq!(controller.events.len(), TYPES.len());
    for tick in 0..20 {
        let sent = values(&events, tick);
        let newest = controller.tick(&sent).await;
        for (event, value) in &sent {
            assert_eq!(newest.get(event), Some(value), "tick {tick}");
        }
    }
    // Somebody at a page turns a knob; the controller sees it at its next look.
    world
        .admin
        .post("/api/v1/datapoints", json!({"event_public_id": events[2], "value": 99.5}))
        .await
        .expect(201);
    assert_eq!(controller.latest().await.get(&events[2]), Some(&99.5));
    controller.set(&events[1], 1.0).await;
    assert_eq!(controller.latest().await.get(&events[1]), Some(&1.0));
    let mut last = values(&events, 19);
    last[2].1 = 99.5;
    last[1].1 = 1.0;
    page.until_shows(&last).await;
    page.close();
    controller.stop().await;
    let expected = [("Controller started", "info"), ("Controller stopped", "warning")];
    assert_eq!(notes(&world).await, expected.map(|(content, kind)| (json!(content), json!(kind))));
    world.finish().await;
}

#[tokio::test]
async fn a_controller_on_an_empty_system_makes_a_plant_and_sends_its_values() {
    let world = World::start().await;
    let controller = Controller::start(world.anonymous(), password(), Telemetry::Socket).await;
    controller.seed().await;
    let plugins = controller.plugins().await;
    let [(plugin, channels)] = plugins.as_slice() else { panic!("{plugins:?}") };
    assert_eq!((plugin.plugin_id.as_str(), plugin.instance_name.as_str()), ("simulated", "Simulated Device"));
    assert!(plugin.demo_mode);
    assert_eq!(channels.len(), 9);
    assert!(channels.iter().all(|channel| !channel.channel_id.is_empty()));
    let events: Vec<_> = channels.iter().filter_map(|channel| channel.event_public_id.clone()).collect();
    assert_eq!(events.len(), 9);
    let sent = values(&events, 3);
    controller.tick(&sent).await;
    eventually(seconds(20), async || {
        let newest = controller.latest().await;
        sent.iter().all(|(event, value)| newest.get(event) == Some(value))
    })
    .await;
    // A second start finds it.
    controller.seed().await;
    assert_eq!(controller.plugins().await.len(), 1);
    controller.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_controller_sends_values_over_its_socket() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let events = events(&world).await;
    let mut page = Browser::open(&world.admin.at(&elsewhere)).await;
    page.ping().await;
    let controller = Controller::start(world.anonymous(), password(), Telemetry::Socket).await;
    for tick in 0..20 {
        controller.tick(&values(&events, tick)).await;
    }
    let last = values(&events, 19);
    eventually(seconds(20), async || {
        let newest = controller.latest().await;
        last.iter().all(|(event, value)| newest.get(event) == Some(value))
    })
    .await;
    page.until_shows(&last).await;
    let series = json!({"event_public_ids": events, "minutes": 5, "max_points": 500});
    let series = world.admin.post("/api/v1/datapoints/series", series).await.expect(200);
    for event in &events {
        assert_eq!(series[event].as_array().unwrap().len(), 20, "every tick is kept");
    }
    page.close();
    controller.stop().await;
    world.finish().await;
}

/// Its day from an empty system on, by both ways of telemetry: seeding, values of all channels, outputs, notes.
#[tokio::test]
async fn a_controller_does_all_that_it_does_by_both_ways() {
    for telemetry in [Telemetry::Http, Telemetry::Socket] {
        let world = World::start().await;
        let controller = Controller::start(world.anonymous(), password(), telemetry).await;
        controller.seed().await;
        let plugins = controller.plugins().await;
        let channels = &plugins[0].1;
        let linked = channels.iter().filter_map(|channel| channel.event_public_id.clone());
        let events: Vec<_> = linked.collect();
        assert_eq!(events.len(), 9, "{telemetry:?}");
        for tick in 0..10 {
            controller.tick(&values(&events, tick)).await;
        }
        // Its largest batch: five hundred values, of which the last of each event is its newest.
        let many: Vec<_> = (0..500).map(|number| (events[number % 9].clone(), number as f64)).collect();
        controller.tick(&many).await;
        eventually(seconds(20), async || {
            let newest = controller.latest().await;
            many[491..].iter().all(|(event, value)| newest.get(event) == Some(value))
        })
        .await;
        assert_eq!(world.admin.get("/api/v1/datapoints").await.expect(200)["total"], 590);
        // Somebody at a page moves an output; it sees the order at its next look.
        let order = json!({"event_public_id": events[8], "value": 12.5});
        world.admin.post("/api/v1/datapoints", order).await.expect(201);
        assert_eq!(controller.latest().await.get(&events[8]), Some(&12.5), "{telemetry:?}");
        controller.set(&events[7], 1.0).await;
        // An instance that is turned off is gone at its next look.
        let instance = format!("/api/v1/plugins/{}", plugins[0].0.public_id);
        world.admin.put(&instance, json!({"enabled": false})).await.expect(200);
        assert_eq!(controller.plugins().await.len(), 0);
        controller.stop().await;
        assert_eq!(notes(&world).await.len(), 2);
        world.finish().await;
    }
}

#[tokio::test]
async fn a_controller_with_an_api_token_of_an_operator_needs_no_login() {
    let world = World::with(|config| {
        config.identity.api_token_prefix = signalbox_config::ApiTokenPrefix::Webmacs;
    })
    .await;
    let events = events(&world).await;
    let operator = world.user("controller", "operator").await;
    let token = operator.post("/api/v1/tokens", json!({"name": "controller"})).await.expect(201);
    let token = token["token"].as_str().unwrap();
    assert!(token.starts_with("wm_"));
    for telemetry in [Telemetry::Http, Telemetry::Socket] {
        let account = Account::ApiToken(token.to_owned());
        let controller = Controller::start(world.anonymous(), account, telemetry).await;
        let sent = values(&events, 7);
        controller.tick(&sent).await;
        eventually(seconds(20), async || controller.latest().await.get(&events[0]) == Some(&7.0)).await;
        assert_eq!(controller.logins(), 0);
        controller.stop().await;
    }
    // It shows live values too.
    let page = Browser::open(&world.anonymous().with_token(token)).await;
    page.close();
    world.finish().await;
}

#[tokio::test]
async fn a_controller_whose_login_has_ended_logs_in_again_and_loses_nothing() {
    let world = World::start().await;
    let events = events(&world).await;
    let controller = Controller::start(world.anonymous(), password(), Telemetry::Http).await;
    controller.tick(&values(&events, 1)).await;
    // All sessions of the admin end.
    let change = json!({"old_password": PASSWORD, "new_password": PASSWORD});
    let changed = world.admin.post("/api/auth/password", change).await.expect(200);
    let admin = world.anonymous().with_token(changed["token"].as_str().unwrap());
    let old = controller.client();
    eventually(seconds(5), async || old.get("/api/v1/auth/me").await.status == 401).await;
    let newest = controller.tick(&values(&events, 2)).await;
    assert_eq!((newest.get(&events[0]), controller.logins()), (Some(&2.0), 2));
    assert_eq!(admin.get("/api/v1/datapoints").await.expect(200)["total"], 2 * TYPES.len());
    controller.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_throttled_controller_waits_for_the_announced_time() {
    let world = World::with(|config| {
        config.limits.requests_per_minute = 600;
        config.limits.request_burst = 30;
    })
    .await;
    let events = events(&world).await;
    let controller = Controller::start(world.anonymous(), password(), Telemetry::Http).await;
    for tick in 0..40 {
        controller.tick(&values(&events, tick)).await;
    }
    controller.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_page_whose_user_logs_out_is_closed() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let user = world.user("watcher", "viewer").await;
    let page = Browser::open(&user.at(&elsewhere)).await;
    user.post("/api/v1/auth/logout", json!({})).await.expect(200);
    eventually(seconds(20), async || page.is_closed()).await;
    page.close();
    world.finish().await;
}

#[tokio::test]
async fn the_load_test_finds_no_error() {
    let world = World::start().await;
    let plugin = json!({"plugin_id": "system", "instance_name": "System", "auto_create_events": false});
    world.admin.post("/api/v1/plugins", plugin).await.expect(201);
    let page = Browser::open(&world.admin).await;
    let test = LoadTest::prepare(world.admin.clone(), 120).await;
    let outcome = test.run(25).await;
    println!(
        "load test: {} values in {} batches, p95 {:?}, newest values p95 {:?}",
        outcome.accepted,
        outcome.batches.len(),
        outcome.batch_p95(),
        outcome.look_p95()
    );
    assert_eq!((outcome.errors, outcome.accepted), (0, 120 * 25));
    assert!(page.points() <= 120 * 25, "no value is recorded twice");
    test.clean_up().await;
    assert_eq!(world.admin.get("/api/v1/events").await.expect(200)["total"], 0);
    // Recorded values stay.
    assert_eq!(world.admin.get("/api/v1/datapoints").await.expect(200)["total"], 120 * 25);
    page.close();
    world.finish().await;
}

/// The calls of the shipped pages, with the parameters that they add to every GET.
async fn page_calls(client: &Client) -> Vec<(&'static str, u16)> {
    let mut answers = Vec::new();
    for path in [
        "/api/v1/auth/me",
        "/api/v1/users/",
        "/api/v1/logging/",
        "/api/v1/tokens",
        "/api/v1/events",
        "/api/v1/experiments",
        "/api/v1/dashboards",
        "/api/v1/datapoints",
        "/api/v1/datapoints/latest",
        "/api/v1/plugins",
        "/api/v1/plugins/available",
        "/api/v1/plugins/packages",
        "/health",
    ] {
        let answer = client.get(&format!("{path}?_t=1760000000000&page=1&page_size=50")).await;
        answers.push((path, answer.status));
    }
    answers
}

#[tokio::test]
async fn the_pages_find_what_they_ask_for() {
    let world = World::start().await;
    let answers = page_calls(&world.admin).await;
    assert!(answers.iter().all(|(_, status)| *status == 200), "{answers:?}");
    let login = json!({"email": ADMIN, "password": PASSWORD});
    let login = world.anonymous().post("/api/v1/auth/login", login).await.expect(200);
    for field in ["status", "message", "access_token", "public_id", "username"] {
        assert!(login[field].is_string(), "{field}");
    }
    let me = world.admin.get("/api/v1/auth/me").await.expect(200);
    for field in ["role", "username", "public_id", "email", "registered_on"] {
        assert!(me[field].is_string(), "{field}");
    }
    let user = json!({"email": "new@example.org", "username": "new", "password": PASSWORD, "role": "viewer"});
    world.admin.post("/api/v1/users/", user).await.expect(201);
    let dashboard = world.admin.post("/api/v1/dashboards", json!({"name": "Hall"})).await.expect(201);
    assert!(dashboard["public_id"].is_string() && dashboard["widgets"].is_array());
    let widgets = format!("/api/v1/dashboards/{}/widgets", dashboard["public_id"].as_str().unwrap());
    let widget = json!({"widget_type": "stat_card", "title": "t", "event_public_id": "", "w": 3, "h": 2});
    assert!(world.admin.post(&widgets, widget).await.expect(201)["public_id"].is_string());
    let token = json!({"name": "t", "expires_at": "2030-01-31T12:00:00.000Z"});
    assert!(world.admin.post("/api/v1/tokens", token).await.expect(201)["token"].is_string());
    // The text of an error is shown to the user.
    let refused = world.admin.post("/api/v1/events", json!({"name": "x"})).await.expect(422);
    assert!(refused["detail"].is_string());
    world.finish().await;
}
