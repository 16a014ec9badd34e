//! When contacts are notified of alarms, and of which together.

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_workers::{Alarms, Notifications, Parts, WebhookDelivery, Worker};

use super::{
    change_often,
    contacts::{create, messages},
    listed, path, standing, until, waiting_changes,
};
use crate::{
    api::v1::{
        datapoints::event,
        rules::{self, above_10, send},
    },
    harness::{Got, Receiver, World, eventually, seconds},
};

/// A contact whose messages are posted to `receiver`.
async fn contact(world: &World, name: &str, receiver: &Receiver) -> Value {
    create(world, json!({"name": name, "kind": "webhook", "url": receiver.url_of(name)})).await
}

/// A rule on `channel` whose alarms are sent to `contact`.
async fn notifying(world: &World, name: &str, channel: &str, contact: &Value, settings: Value) -> Value {
    let mut rule = above_10(name, channel);
    rule["contact_ids"] = json!([contact["public_id"]]);
    for (field, value) in settings.as_object().unwrap() {
        rule[field] = value.clone();
    }
    rules::create(world, rule).await
}

/// The alarms in a message: kind and channel.
fn lines(got: &Got) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let body = got.json();
    let alarms = body["alarms"].as_array().unwrap();
    alarms.iter().map(|alarm| (text(&alarm["kind"]), text(&alarm["sensor"]))).collect()
}

fn line(kind: &str, channel: &str) -> (String, String) {
    (kind.to_owned(), channel.to_owned())
}

/// Waits until `count` notices wait for their message.
async fn until_noticed(world: &World, count: i64) {
    let waiting = "SELECT count(*) FROM ops.notices";
    eventually(seconds(20), async || {
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&world.servers.pool).await.unwrap() == count
    })
    .await;
}

#[tokio::test]
async fn a_critical_alarm_is_sent_at_once_with_all_there_is_to_know() {
    let world = World::at(Clock::manual(Clock::system().now()), |config| {
        config.server.public_url = "https://plant.example.org".to_owned();
    })
    .await;
    let receiver = Receiver::lenient().await;
    let (boiler, day) = (event(&world, "boiler").await, contact(&world, "day", &receiver).await);
    let settings = json!({"severity": "critical", "summary": "{channel} is over {threshold}, at {value}"});
    let rule = notifying(&world, "too hot", &boiler, &day, settings).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    let got = receiver.until_got(1).await;
    let body = got[0].json();
    let shown = &body["alarms"][0];
    for (field, expected) in [
        ("alarm_id", &alarm["public_id"]),
        ("kind", &json!("firing")),
        ("severity", &json!("critical")),
        ("summary", &json!("boiler is over 10, at 11")),
        ("value", &json!(11.0)),
        ("rule_id", &rule["public_id"]),
        ("sensor_id", &json!(boiler)),
        (
            "link",
            &json!(format!("https://plant.example.org/alarms/{}", alarm["public_id"].as_str().unwrap())),
        ),
    ] {
        assert_eq!(&shown[field], expected, "{field}");
    }
    assert_eq!(got[0].header("webhook-id"), body["id"].as_str().unwrap());
    let sent =
        world.admin.until(path(&alarm), |alarm| alarm["notifications"][0]["status"] == "delivered").await;
    let notification = &sent["notifications"][0];
    assert_eq!(
        (&notification["contact_public_id"], &notification["kind"]),
        (&day["public_id"], &json!("firing"))
    );
    assert_eq!((&notification["attempts"], &notification["error"]), (&json!(1), &json!(null)));
    assert!(!notification["sent_on"].is_null());
    // At most one message in a minute.
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [9.0]).await;
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(30));
    assert_eq!(messages(&world, &day).await.len(), 1);
    world.clock.advance(TimeDelta::seconds(30));
    let got = receiver.until_got(2).await;
    assert_eq!(lines(&got[1]), [line("cleared", "boiler")]);
    let then = format!("{}?at={}", path(&alarm), world.position().await);
    assert_eq!(world.admin.get(&then).await.expect(200)["notifications"].as_array().unwrap().len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn a_critical_alarm_does_not_wait_for_hundreds_of_changes_of_another() {
    let world = World::start().await;
    let receiver = Receiver::lenient().await;
    let (often, boiler) = (event(&world, "often").await, event(&world, "boiler").await);
    let day = contact(&world, "day", &receiver).await;
    let mut rule = above_10("often", &often);
    rule["alarm"] = json!(true);
    rules::create(&world, rule).await;
    notifying(&world, "too hot", &boiler, &day, json!({"severity": "critical"})).await;
    change_often(&world, &often).await;
    send(&world.admin, &boiler, [11.0]).await;
    receiver.until_got(1).await;
    assert!(waiting_changes(&world).await > 0, "all changes of the other one were recorded first");
    eventually(seconds(90), async || waiting_changes(&world).await == 0).await;
    world.finish().await;
}

#[tokio::test]
async fn what_happens_within_ten_seconds_is_one_message() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    notifying(&world, "boiler hot", &boiler, &day, json!({})).await;
    notifying(&world, "vat hot", &vat, &day, json!({})).await;
    send(&world.admin, &boiler, [11.0]).await;
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &vat, [11.0]).await;
    until_noticed(&world, 2).await;
    world.clock.advance(TimeDelta::seconds(4));
    send(&world.admin, &boiler, [9.0]).await;
    until_noticed(&world, 3).await;
    world.clock.advance(TimeDelta::seconds(6));
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "vat"), line("fired_and_cleared", "boiler")]);
    world.finish().await;
}

#[tokio::test]
async fn an_alarm_that_fires_is_reminded_of_and_escalated_until_it_is_acknowledged() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let (day, boss) = (contact(&world, "day", &receiver).await, contact(&world, "boss", &receiver).await);
    let boiler = event(&world, "boiler").await;
    let settings = json!({"remind_seconds": 600, "escalate_seconds": 900, "escalation_contact_ids": [boss["public_id"]]});
    notifying(&world, "too hot", &boiler, &day, settings).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    until_noticed(&world, 1).await;
    let expect = async |after: i64, count: usize, contact: &str, kind: &str| {
        world.clock.advance(TimeDelta::seconds(after));
        until_noticed(&world, 1).await;
        world.clock.advance(TimeDelta::seconds(10));
        let got = receiver.until_got(count).await;
        let newest = got.last().unwrap();
        assert_eq!(
            (newest.json()["contact"].as_str().unwrap(), lines(newest)[0].0.as_str()),
            (contact, kind)
        );
    };
    expect(0, 1, "day", "firing").await;
    expect(600, 2, "day", "reminder").await;
    expect(300, 3, "boss", "escalation").await;
    let acknowledge = format!("{}/acknowledge", path(&alarm));
    world.admin.post(&acknowledge, json!({})).await.expect(200);
    let seen = "SELECT is_acknowledged FROM ops.notified_alarms";
    eventually(seconds(20), async || {
        sqlx::query_scalar::<_, bool>(seen).fetch_one(&world.servers.pool).await.unwrap()
    })
    .await;
    world.clock.advance(TimeDelta::seconds(3600));
    // Both know of it, so both are notified of its end, and of no reminder before.
    send(&world.admin, &boiler, [9.0]).await;
    until_noticed(&world, 2).await;
    world.clock.advance(TimeDelta::seconds(10));
    let got = receiver.until_got(5).await;
    assert!(got[3..].iter().all(|got| lines(got) == [line("cleared", "boiler")]));
    let left = "SELECT count(*) FROM ops.notified_alarms";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&world.servers.pool).await.unwrap(), 0);
    world.finish().await;
}

#[tokio::test]
async fn contacts_learn_the_end_of_an_alarm_also_when_its_rule_or_channel_is_gone() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let critical = json!({"severity": "critical"});
    let rule = notifying(&world, "boiler hot", &boiler, &day, critical.clone()).await;
    send(&world.admin, &boiler, [11.0]).await;
    receiver.until_got(1).await;
    // The rule makes no alarms any more, and names no contact.
    let path = format!("/api/v1/rules/{}", rule["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"alarm": false})).await.expect(200);
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(60));
    let got = receiver.until_got(2).await;
    assert_eq!(lines(&got[1]), [line("cleared", "boiler")]);
    let on_vat = notifying(&world, "vat hot", &vat, &day, critical).await;
    world.clock.advance(TimeDelta::seconds(60));
    send(&world.admin, &vat, [11.0]).await;
    receiver.until_got(3).await;
    world.admin.delete(&format!("/api/v1/events/{vat}")).await.expect(200);
    let path = format!("/api/v1/rules/{}", on_vat["public_id"].as_str().unwrap());
    assert_eq!(world.admin.get(&path).await.expect(200)["enabled"], false);
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(60));
    let got = receiver.until_got(4).await;
    assert_eq!(lines(&got[3])[0].0, "cleared");
    world.finish().await;
}

#[tokio::test]
async fn a_contact_that_is_added_while_an_alarm_fires_does_not_learn_its_end() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let (day, late) = (contact(&world, "day", &receiver).await, contact(&world, "late", &receiver).await);
    let boiler = event(&world, "boiler").await;
    let rule = notifying(&world, "boiler hot", &boiler, &day, json!({"severity": "critical"})).await;
    send(&world.admin, &boiler, [11.0]).await;
    receiver.until_got(1).await;
    let both = json!({"contact_ids": [day["public_id"], late["public_id"]]});
    world.admin.put(&rules::path(&rule), both).await.expect(200);
    world.clock.advance(TimeDelta::seconds(60));
    send(&world.admin, &boiler, [9.0]).await;
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(60));
    let got = receiver.until_got(2).await;
    assert_eq!((&got[1].json()["contact"], lines(&got[1])), (&json!("day"), vec![line("cleared", "boiler")]));
    // The next one is for both.
    world.clock.advance(TimeDelta::seconds(60));
    send(&world.admin, &boiler, [11.0]).await;
    let got = receiver.until_got(4).await;
    let mut named: Vec<_> = got[2..].iter().map(|got| got.json()["contact"].clone()).collect();
    named.sort_by_key(ToString::to_string);
    assert_eq!(named, [json!("day"), json!("late")]);
    assert!(messages(&world, &late).await.len() == 1);
    world.finish().await;
}

#[tokio::test]
async fn quiet_hours_hold_back_all_but_critical_alarms() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let now = world.clock.now();
    let text = |time: DateTime<Utc>| time.format("%H:%M").to_string();
    let (from, to) = (now - TimeDelta::minutes(30), now + TimeDelta::minutes(30));
    let quiet = json!({"from": text(from), "to": text(to), "timezone": "UTC"});
    let day = json!({"name": "day", "kind": "webhook", "url": receiver.url(), "quiet_hours": quiet});
    let day = create(&world, day).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    notifying(&world, "boiler hot", &boiler, &day, json!({})).await;
    notifying(&world, "vat hot", &vat, &day, json!({"severity": "critical"})).await;
    send(&world.admin, &boiler, [11.0]).await;
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(60));
    send(&world.admin, &vat, [11.0]).await;
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "vat")]);
    world.clock.advance(TimeDelta::minutes(30));
    let got = receiver.until_got(2).await;
    assert_eq!(lines(&got[1]), [line("firing", "boiler")]);
    world.finish().await;
}

/// A contact that quiet hours hold everything back from but critical alarms, from half an hour ago on for `minutes`.
async fn contact_in_quiet_hours(world: &World, receiver: &Receiver, minutes: i64) -> Value {
    let now = world.clock.now();
    let text = |time: DateTime<Utc>| time.format("%H:%M").to_string();
    let (from, to) = (now - TimeDelta::minutes(30), now + TimeDelta::minutes(minutes - 30));
    let quiet = json!({"from": text(from), "to": text(to), "timezone": "UTC"});
    create(world, json!({"name": "day", "kind": "webhook", "url": receiver.url(), "quiet_hours": quiet}))
        .await
}

#[tokio::test]
async fn quiet_hours_gather_one_line_of_an_alarm_that_is_reminded_of() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact_in_quiet_hours(&world, &receiver, 600).await;
    let boiler = event(&world, "boiler").await;
    notifying(&world, "too hot", &boiler, &day, json!({"remind_seconds": 60})).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    until_noticed(&world, 1).await;
    let reminded = "SELECT reminders FROM ops.notified_alarms";
    for count in 1..=3 {
        world.clock.advance(TimeDelta::seconds(60));
        eventually(seconds(20), async || {
            sqlx::query_scalar::<_, i32>(reminded).fetch_one(&world.servers.pool).await.unwrap() == count
        })
        .await;
    }
    until_noticed(&world, 1).await;
    world.admin.post(&format!("{}/acknowledge", path(&alarm)), json!({})).await.expect(200);
    world.clock.advance(TimeDelta::minutes(580));
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "boiler")]);
    world.finish().await;
}

#[tokio::test]
async fn a_critical_alarm_passes_hundreds_of_notices_that_quiet_hours_hold_back() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact_in_quiet_hours(&world, &receiver, 600).await;
    let held = "INSERT INTO ops.notices (contact_id, alarm_id, kind, number, severity, arrived_at)
                SELECT $1::uuid, gen_random_uuid(), 'firing', 1, 'warning', $2 FROM generate_series(1, 600)";
    sqlx::query(held)
        .bind(day["public_id"].as_str().unwrap())
        .bind(world.clock.now())
        .execute(&world.servers.pool)
        .await
        .unwrap();
    let vat = event(&world, "vat").await;
    notifying(&world, "vat hot", &vat, &day, json!({"severity": "critical"})).await;
    send(&world.admin, &vat, [11.0]).await;
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "vat")]);
    let forget = "DELETE FROM ops.notices";
    sqlx::query(forget).execute(&world.servers.pool).await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn a_silenced_rule_notifies_of_alarms_that_still_fire_at_its_end() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let boiler = event(&world, "boiler").await;
    let rule = notifying(&world, "too hot", &boiler, &day, json!({"severity": "critical"})).await;
    let silence = format!("{}/silence", rules::path(&rule));
    let end = (world.clock.now() + TimeDelta::seconds(600)).to_rfc3339();
    world.admin.post(&silence, json!({"until": end, "comment": "maintenance"})).await.expect(200);
    send(&world.admin, &boiler, [11.0]).await;
    until(&world, "firing").await;
    world.clock.advance(TimeDelta::seconds(100));
    assert!(messages(&world, &day).await.is_empty());
    world.clock.advance(TimeDelta::seconds(500));
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "boiler")]);
    world.finish().await;
}

/// Silences `rule` for `after` seconds.
async fn silence(world: &World, rule: &Value, after: i64) {
    let until = (world.clock.now() + TimeDelta::seconds(after)).to_rfc3339();
    let body = json!({"until": until, "comment": "maintenance"});
    world.admin.post(&format!("{}/silence", rules::path(rule)), body).await.expect(200);
}

#[tokio::test]
async fn a_silence_holds_back_waiting_notices_and_drops_those_of_cleared_alarms() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let hot = notifying(&world, "boiler hot", &boiler, &day, json!({})).await;
    let other = notifying(&world, "vat hot", &vat, &day, json!({})).await;
    send(&world.admin, &boiler, [11.0]).await;
    send(&world.admin, &vat, [11.0]).await;
    until_noticed(&world, 2).await;
    silence(&world, &hot, 600).await;
    silence(&world, &other, 600).await;
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [9.0]).await;
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(60));
    assert!(messages(&world, &day).await.is_empty());
    world.clock.advance(TimeDelta::seconds(540));
    let got = receiver.until_got(1).await;
    assert_eq!(lines(&got[0]), [line("firing", "vat")]);
    world.finish().await;
}

#[tokio::test]
async fn an_alarm_acknowledged_in_a_silence_is_not_reminded_of() {
    let world = standing().await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let boiler = event(&world, "boiler").await;
    let rule = notifying(&world, "too hot", &boiler, &day, json!({"remind_seconds": 60})).await;
    silence(&world, &rule, 600).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    world.admin.post(&format!("{}/acknowledge", path(&alarm)), json!({})).await.expect(200);
    world.clock.advance(TimeDelta::seconds(600));
    until_noticed(&world, 1).await;
    world.clock.advance(TimeDelta::seconds(10));
    receiver.until_got(1).await;
    let seen = "SELECT is_acknowledged FROM ops.notified_alarms";
    assert!(sqlx::query_scalar::<_, bool>(seen).fetch_one(&world.servers.pool).await.unwrap());
    world.finish().await;
}

/// Steps of all that leads to messages, until nothing is left to do.
async fn work(world: &World, notifications: &[Notifications]) {
    let context = world.worker_context().await;
    let alarms = Alarms::default();
    while alarms.step(&context).await.unwrap() {}
    world.read_models.show_all().await;
    let each = notifications.iter().map(|one| async { while one.step(&context).await.unwrap() {} });
    join_all(each).await;
    world.read_models.show_all().await;
}

#[tokio::test]
async fn several_processes_and_crashes_make_one_message_of_each_step() {
    let world = World::without_workers(Clock::manual(Clock::system().now()), |_| {}).await;
    let receiver = Receiver::lenient().await;
    let day = contact(&world, "day", &receiver).await;
    let boiler = event(&world, "boiler").await;
    notifying(&world, "too hot", &boiler, &day, json!({"severity": "critical"})).await;
    world.read_models.show_all().await;
    let workers: Vec<_> =
        (0..4).map(|_| Notifications::new(&world.config.server, &world.config.sso)).collect();
    for _ in 0..5 {
        send(&world.admin, &boiler, [11.0]).await;
        work(&world, &workers).await;
        world.clock.advance(TimeDelta::seconds(1));
        send(&world.admin, &boiler, [9.0]).await;
        work(&world, &workers).await;
        world.clock.advance(TimeDelta::seconds(60));
        work(&world, &workers).await;
    }
    // As if the process had crashed after it sent a message, and before it removed it.
    let pool = &world.servers.pool;
    sqlx::query(
        "INSERT INTO ops.message_outbox (id, message, composed_at)
         SELECT aggregate_id::uuid, payload - 'type', recorded_at FROM events WHERE event_type = 'message_queued'",
    )
    .execute(pool)
    .await
    .unwrap();
    work(&world, &workers).await;
    let sent = messages(&world, &day).await;
    assert_eq!(sent.len(), 10, "five alarms fired and were cleared");
    assert_eq!(world.count_events("message_queued").await, 10);
    let Parts { context, senders, config, .. } = world.worker_parts().await;
    let delivery = WebhookDelivery::new(senders, &config.webhooks);
    eventually(seconds(30), async || {
        delivery.step(&context).await.unwrap();
        world.read_models.show_all().await;
        messages(&world, &day).await.iter().all(|message| message["status"] == "delivered")
    })
    .await;
    let ids: std::collections::BTreeSet<_> =
        receiver.got().iter().map(|got| got.header("webhook-id").to_owned()).collect();
    assert_eq!((receiver.got().len(), ids.len()), (10, 10));
    assert_eq!(listed(&world, "state=cleared").await.len(), 5);
    world.finish().await;
}
