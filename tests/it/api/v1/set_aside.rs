//! Inputs that one read model or worker cannot handle: they stop nothing else.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_database::faults;
use signalbox_workers::{Alarms, Worker};
use sqlx::Executor;
use uuid::Uuid;

use super::{
    alarms::rule,
    datapoints::event,
    rules::{self, send},
};
use crate::harness::{World, eventually, seconds, signalbox};

async fn execute(world: &World, statement: &str) {
    world.servers.pool.execute(statement).await.unwrap();
}

async fn count(world: &World, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&world.servers.pool).await.unwrap()
}

/// Appends an event that no program has written.
async fn append(world: &World, kind: &str, id: &str, word: &str, payload: &str) -> i64 {
    append_version(world, (kind, id), (word, "1"), payload).await
}

async fn append_version(
    world: &World,
    (kind, id): (&str, &str),
    (word, version): (&str, &str),
    payload: &str,
) -> i64 {
    let mut transaction = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    let sql = "UPDATE log_head SET position = position + 1 WHERE log = 'events' RETURNING position";
    let position: i64 = sqlx::query_scalar(sql).fetch_one(&mut *transaction).await.unwrap();
    let insert = "INSERT INTO events
        SELECT $1, $2, $3, (SELECT count(*) + 1 FROM events WHERE aggregate_type = $2 AND aggregate_id = $3), $4, $6,
               $5::jsonb, '{}'::jsonb, now()";
    sqlx::query(insert)
        .bind(position)
        .bind(kind)
        .bind(id)
        .bind(word)
        .bind(payload)
        .bind(version)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    position
}

#[tokio::test]
async fn a_write_whose_event_is_set_aside_is_eventually_consistent() {
    let world = World::start().await;
    let agent = world.agent("press").await;
    let path = format!("/api/agents/{}", agent.id);
    execute(&world, "ALTER TABLE read.agents ADD CONSTRAINT refused CHECK (name <> 'unlucky')").await;
    let answer = world.admin.put(&path, json!({"name": "unlucky"})).await;
    assert_eq!(answer.header("consistency"), Some("eventual"), "{answer:?}");
    assert_eq!(answer.expect(200)["name"], "unlucky");
    assert_eq!(world.admin.get(&path).await.expect(200)["name"], "press");
    // Others are shown at once.
    let other = world.admin.post("/api/agents", json!({"name": "store"})).await;
    assert_eq!((other.status, other.header("consistency")), (201, None));
    let poison = async |arguments: &[&str]| {
        signalbox(&world.config, &[&["projections", "poison"], arguments].concat()).await
    };
    let listed = poison(&["list", "--json"]).await.json_lines();
    assert_eq!((&listed[0]["projection"], &listed[0]["stream_type"]), (&json!("transfer"), &json!("agent")));
    assert_eq!(poison(&["retry"]).await.code, Some(3));
    // Access is revoked all the same.
    let token = world.as_agent(&agent);
    token.get("/api/files/1000000/download").await.error(404);
    world.admin.delete(&path).await.expect(204);
    eventually(seconds(10), async || token.get("/api/files/1000000/download").await.status == 401).await;
    let shown = poison(&["show", &listed[0]["position"].to_string()]).await.well();
    assert!(shown.contains("agent_updated") && shown.contains("agent_deleted"), "{shown}");
    execute(&world, "ALTER TABLE read.agents DROP CONSTRAINT refused").await;
    poison(&["retry"]).await.well();
    assert_eq!(poison(&["list"]).await.well(), "");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_stops_only_its_own_transfer() {
    let world = World::start().await;
    let store = world.agent("store").await;
    let mut cancelled = Vec::new();
    for name in ["a", "b", "c"] {
        let press = world.agent(name).await;
        let id = world.transfer(&press, &store, "/f", "/f").await;
        world.until_phase(id, "dispatched").await;
        cancelled.push((press, id));
    }
    let keys: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM read.transfers ORDER BY number")
        .fetch_all(&world.servers.pool)
        .await
        .unwrap();
    // A file where a folder belongs: removing it as a folder fails.
    let stuck = world.folder().join("blobs/.deleted").join(format!("{}.0", keys[0]));
    std::fs::write(&stuck, "x").unwrap();
    for (_, id) in &cancelled {
        world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    }
    let cleaned = "SELECT count(*) FROM read.transfers WHERE cleaned";
    eventually(seconds(20), async || count(&world, cleaned).await == 2).await;
    for (press, _) in &cancelled {
        let polled = world.as_agent(press).get("/api/agent/poll").await.expect(200);
        assert!(polled.to_string().contains("cancel_transfer"), "{polled}");
    }
    let fault = "SELECT count(*) FROM ops.faults WHERE part = 'worker.cleanup.items'";
    eventually(seconds(10), async || count(&world, fault).await == 1).await;
    std::fs::remove_file(stuck).unwrap();
    eventually(seconds(20), async || count(&world, cleaned).await == 3).await;
    eventually(seconds(20), async || count(&world, fault).await == 0).await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn an_event_that_no_worker_can_read_stops_only_itself() {
    let world = World::start().await;
    let positions = [
        append(
            &world,
            "health",
            "00000000-0000-0000-0000-000000000001",
            "health_changed",
            r#"{"type": "health_changed"}"#,
        )
        .await,
        append(
            &world,
            "rule",
            "00000000-0000-0000-0000-000000000002",
            "rule_triggered",
            r#"{"type": "rule_triggered"}"#,
        )
        .await,
        append(&world, "webhook", "not-a-key", "webhook_updated", "{}").await,
    ];
    let checkpoints = format!(
        "SELECT count(*) FROM ops.relay_checkpoint WHERE position >= {} AND relay IN ('events', 'webhooks', 'rule_log')",
        positions[2]
    );
    eventually(seconds(20), async || count(&world, &checkpoints).await == 3).await;
    let skipped: Vec<(String, i64)> = sqlx::query_as(
        "SELECT projection, position FROM read.poisonous_events WHERE projection LIKE 'worker.%' ORDER BY 1, 2",
    )
    .fetch_all(&world.servers.pool)
    .await
    .unwrap();
    let expected = [
        ("worker.relay", positions[2]),
        ("worker.rule_log", positions[1]),
        ("worker.webhook-fan-out", positions[0]),
        ("worker.webhook-fan-out", positions[2]),
    ];
    assert_eq!(skipped, expected.map(|(name, position)| (name.to_owned(), position)));
    // Index and chain hold all of them.
    let chained = format!("SELECT least(count(*), 1) FROM log_chain WHERE last_position >= {}", positions[2]);
    eventually(seconds(20), async || count(&world, &chained).await == 1).await;
    let indexed = format!("SELECT count(*) FROM log_index_progress WHERE position >= {}", positions[2]);
    eventually(seconds(20), async || count(&world, &indexed).await == 1).await;
    assert!(signalbox(&world.config, &["log", "verify"]).await.well().contains("as it was"));
    world.finish_with_mail().await;
}

/// More of them than the dispatcher takes at once; the log has no such streams, as if the read model had set them aside.
#[tokio::test]
async fn transfers_that_cannot_be_dispatched_keep_no_other_waiting() {
    let world = World::start().await;
    let (press, store) = (world.agent("press").await, world.agent("store").await);
    let first = world.transfer(&press, &store, "/first", "/f").await;
    world.until_phase(first, "dispatched").await;
    execute(
        &world,
        "INSERT INTO read.transfers SELECT (jsonb_populate_record(t, jsonb_build_object(
             'id', gen_random_uuid(), 'number', -n, 'phase', 'queued', 'job_type', 'push'))).*
           FROM read.transfers t, generate_series(1, 300) n WHERE t.number > 0",
    )
    .await;
    let next = world.transfer(&press, &store, "/next", "/f").await;
    world.until_phase(next, "dispatched").await;
    execute(&world, "DELETE FROM read.transfers WHERE number < 0").await;
    world.finish_with_mail().await;
}

/// Its transfer was refused five times a second, and nothing said so.
#[tokio::test]
async fn a_job_that_cannot_be_started_is_reported() {
    let world = World::start().await;
    let (press, store) = (world.agent("press").await, world.agent("store").await);
    let job = json!({"name": "nightly", "source_agent_id": press.id, "destination_agent_id": store.id,
        "source_path": "/f", "destination_path": "/f", "schedule": "0 3 * * *"});
    world.admin.post("/api/jobs", job).await.id();
    // Of the time before paths were limited.
    execute(&world, "UPDATE read.jobs SET source_path = '/' || repeat('x', 300), next_run = now()").await;
    let fault = "SELECT count(*) FROM ops.faults WHERE part = 'worker.scheduler.items'";
    eventually(seconds(20), async || count(&world, fault).await == 1).await;
    execute(&world, "DELETE FROM read.jobs").await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn unreadable_plugin_instance_keeps_its_events_and_says_why() {
    let world = World::start().await;
    let body = json!({"plugin_id": "system", "instance_name": "One"});
    let made = world.admin.post("/api/v1/plugins", body).await.expect(201);
    let id = made["public_id"].as_str().unwrap();
    let events = "SELECT count(*) FROM read.channels WHERE deleted_at IS NULL";
    let before = count(&world, events).await;
    append(&world, "plugin_instance", id, "plugin_instance_reported", r#"{"type": "nonsense"}"#).await;
    world.admin.delete(&format!("/api/v1/plugins/{id}")).await.error(409);
    assert!(before > 0);
    assert_eq!(count(&world, events).await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn commands_of_an_unreadable_history_are_refused_and_health_names_it() {
    let world = World::start().await;
    let made = world.admin.post("/api/v1/experiments", json!({"name": "First"})).await.expect(201);
    let id = made["public_id"].as_str().unwrap();
    append(&world, "experiment", id, "experiment_stopped", r#"{"type": "nonsense"}"#).await;
    world.admin.put(&format!("/api/v1/experiments/{id}/stop"), json!({})).await.error(409);
    eventually(seconds(20), async || {
        let health = world.admin.get("/health").await.expect(200);
        let mut faults = health["faults"].as_array().unwrap().iter();
        faults.any(|fault| fault["part"] == "commands.experiment")
    })
    .await;
    let faults = faults(&world.servers.pool).await.unwrap();
    assert!(faults.iter().any(|fault| fault.reason.contains(id)), "{faults:?}");
    world.finish_with_mail().await;
}

/// While processes are replaced, one that knows it may answer: the client may try again, and is not refused for good.
#[tokio::test]
async fn commands_of_a_history_of_a_newer_release_are_to_be_sent_again() {
    let world = World::start().await;
    for (word, version) in [("channel_deleted", "99"), ("channel_paused", "1")] {
        let id = event(&world, word).await;
        let payload = json!({"type": word}).to_string();
        append_version(&world, ("channel", &id), (word, version), &payload).await;
        let refused =
            world.admin.put(&format!("/api/v1/events/{id}"), json!({"unit": "bar"})).await.error(503);
        assert!(refused.to_string().contains("upgraded"), "{refused}");
    }
    let faults = faults(&world.servers.pool).await.unwrap();
    assert!(faults.iter().any(|fault| fault.reason.contains("newer release")), "{faults:?}");
    world.finish_with_mail().await;
}

/// The note of an alarm is sent again until the release that knows the alarm answers, and keeps no other rule waiting.
#[tokio::test]
async fn changes_of_an_alarm_that_a_newer_release_knows_wait_for_it() {
    let world = World::without_workers(Clock::manual(Clock::system().now()), |_| {}).await;
    let (boiler, press) = (event(&world, "boiler").await, event(&world, "press").await);
    rule(&world, &boiler, json!({"name": "boiler", "cooldown_seconds": 0})).await;
    rule(&world, &press, json!({"name": "press", "cooldown_seconds": 0})).await;
    let (alarms, context) = (Alarms::default(), world.worker_context().await);
    let judge = async || while alarms.step(&context).await.unwrap() {};
    for event in [&boiler, &press] {
        send(&world.admin, event, [11.0]).await;
    }
    judge().await;
    let id: String = sqlx::query_scalar(
        "SELECT aggregate_id FROM events WHERE event_type = 'alarm_started' ORDER BY position LIMIT 1",
    )
    .fetch_one(&world.servers.pool)
    .await
    .unwrap();
    append_version(&world, ("alarm", &id), ("alarm_escalated", "1"), r#"{"type": "alarm_escalated"}"#).await;
    world.clock.advance(TimeDelta::seconds(1));
    for event in [&boiler, &press] {
        send(&world.admin, event, [9.0]).await;
    }
    judge().await;
    let cleared = "SELECT count(*) FROM events WHERE event_type = 'alarm_cleared'";
    assert_eq!(count(&world, cleared).await, 1);
    let kept = format!("SELECT count(*) FROM ops.alarm_outbox WHERE note->>'alarm_id' = '{id}'");
    assert_eq!(count(&world, &kept).await, 1);
    execute(&world, "DELETE FROM ops.alarm_outbox").await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_deletion_that_is_not_carried_out_leaves_the_rules() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    let made =
        world.admin.post("/api/v1/plugins", json!({"plugin_id": "system", "instance_name": "One"})).await;
    let own = made.expect(201)["channel_mappings"][0]["event_public_id"].as_str().unwrap().to_owned();
    let busy = rule(&world, &own, json!({"name": "busy"})).await;
    for event in [&boiler, &own] {
        append(&world, "channel", event, "channel_paused", r#"{"type": "channel_paused"}"#).await;
    }
    let plugin = format!("/api/v1/plugins/{}", made.expect(201)["public_id"].as_str().unwrap());
    for path in [format!("/api/v1/events/{boiler}?values=true"), format!("{plugin}?values=true")] {
        world.admin.delete(&path).await.error(503);
    }
    world.read_models.show_all().await;
    for rule in [hot, busy] {
        assert_eq!(world.admin.get(&rules::path(&rule)).await.expect(200)["enabled"], true);
    }
    world.finish_with_mail().await;
}

/// A list shows it, and what depends on its meaning may be tried again.
#[tokio::test]
async fn a_rule_with_a_word_of_a_newer_release_is_shown_and_not_judged() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    execute(&world, "UPDATE read.rules SET operator = 'near'").await;
    // Sent past the check of answers, because the description does not know the word.
    let shown = world.admin.request(Method::GET, &rules::path(&hot)).send().await.unwrap();
    assert_eq!(shown.json::<Value>().await.unwrap()["operator"], "near");
    let window = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
    let refused = world.admin.post(&format!("{}/backtest", rules::path(&hot)), window).await.error(503);
    assert!(refused.contains("newer version"), "{refused}");
    execute(&world, "UPDATE read.rules SET operator = 'gt'").await;
    world.finish_with_mail().await;
}
