//! Withdrawals take effect although the streams of their events wait.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde_json::{Value, json};
use signalbox_domain::catalog::Context;
use signalbox_projections::{
    automation::AutomationProjection, compare, fleet::FleetProjection, monitoring::MonitoringProjection,
    set_aside_streams, transfer::TransferProjection, transfer::queries::due_jobs,
    withdrawing as withdrawing_in,
};
use uuid::Uuid;

use crate::{
    poison::append,
    samples::{self, Sample},
    world::World,
};

/// How words of events end that may take something away.
const TAKING: [&str; 8] =
    ["_removed", "_deleted", "_revoked", "_ended", "_disabled", "_uninstalled", "_restored", "_updated"];
/// Events with such words that withdraw nothing, and why.
const WITHOUT_WITHDRAWAL: [(&str, &str); 8] = [
    ("agent_updated", "it changes how an agent is described"),
    ("attempts_ended", "it records what became of deliveries"),
    ("channel_mapping_updated", "the mapping stays"),
    ("channel_updated", "it changes how a channel is described"),
    ("extraction_input_removed", "the bytes are gone before it is recorded"),
    ("firmware_files_removed", "the files are gone before it is recorded"),
    ("staged_bytes_deleted", "the bytes are gone before it is recorded"),
    ("widget_updated", "the widget stays"),
];

/// The words of all events that have statements.
fn withdrawing() -> Vec<&'static str> {
    Context::ALL.iter().flat_map(|context| withdrawing_in(*context)).collect()
}

fn sample(word: &str) -> Sample {
    samples::all().into_iter().find(|sample| sample.event_type == word).unwrap()
}

#[test]
fn every_event_that_takes_something_away_withdraws_it_or_is_listed() {
    let withdrawing = withdrawing();
    let listed = WITHOUT_WITHDRAWAL.map(|(word, _)| word);
    for sample in samples::all() {
        let word = sample.event_type.as_str();
        let is_taking = TAKING.iter().any(|end| word.ends_with(end));
        let decided = [withdrawing.contains(&word), listed.contains(&word)];
        assert_ne!(decided, [true, true], "{word} is in both lists");
        assert!(!is_taking || decided != [false, false], "{word} is in neither list");
    }
    for word in withdrawing.into_iter().chain(listed) {
        assert_eq!(sample(word).event_type, word);
    }
}

/// A statement that fails would stop its projection.
#[tokio::test]
async fn no_payload_makes_a_withdrawal_fail() {
    let world = World::start().await;
    let withdrawing = withdrawing();
    let takes = |aggregate: &str| {
        let of_it = samples::all().into_iter().filter(|sample| sample.aggregate_type == aggregate);
        of_it.map(|sample| sample.event_type).any(|word| withdrawing.contains(&word.as_str()))
    };
    for payload in [r#""text""#, "[]", "7", r#"{"type": "nonsense", "to": 1, "removed": {"a": [7]}}"#] {
        let mut streams = BTreeMap::new();
        for sample in samples::all().into_iter().filter(|sample| takes(sample.aggregate_type)) {
            let is_first = !streams.contains_key(sample.aggregate_type);
            let word = sample.event_type.as_str();
            if !is_first && !withdrawing.contains(&word) {
                continue;
            }
            let payload = if is_first { sample.payload.to_string() } else { payload.to_owned() };
            let stream = streams.entry(sample.aggregate_type);
            let (id, length) = stream.or_insert_with(|| (world.clock.new_id().to_string(), 0));
            *length += 1;
            append(&world, sample.aggregate_type, id, *length, word, &payload).await;
        }
        world.fold().await;
        let waiting = set_aside_streams(world.pool(), None).await.unwrap();
        assert_eq!(waiting.len(), streams.len(), "{payload}");
        sqlx::query("DELETE FROM read.poisonous_events").execute(world.pool()).await.unwrap();
    }
}

/// A stream with an event in it that cannot be applied.
struct Stream<'w> {
    world: &'w World,
    id: Uuid,
    length: i64,
}

impl<'w> Stream<'w> {
    fn new(world: &'w World) -> Self {
        Self { world, id: world.clock.new_id(), length: 0 }
    }

    /// Records the sample of `word` with another payload.
    async fn record(&mut self, word: &str, change: impl FnOnce(&mut Value)) {
        let Sample { aggregate_type, mut payload, .. } = sample(word);
        change(&mut payload);
        self.length += 1;
        let id = self.id.to_string();
        append(self.world, aggregate_type, &id, self.length, word, &payload.to_string()).await;
    }

    /// Records an event of `word` that cannot be read.
    async fn poison(&mut self, word: &str) {
        self.record(word, |payload| *payload = json!({"type": "nonsense"})).await;
    }

    async fn is_set(&self, table: &str, column: &str) -> bool {
        let sql = format!("SELECT {column} FROM read.{table} WHERE id = $1");
        sqlx::query_scalar(&sql).bind(self.id).fetch_one(self.world.pool()).await.unwrap()
    }
}

async fn count(world: &World, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM read.{table}");
    sqlx::query_scalar(&sql).fetch_one(world.pool()).await.unwrap()
}

#[tokio::test]
async fn what_is_disabled_or_moved_while_its_stream_waits_does_nothing_more() {
    let world = World::start().await;
    let mut moved = Stream::new(&world);
    moved.record("webhook_created", |_| ()).await;
    moved.poison("webhook_replay_requested").await;
    let mut other_events = Stream::new(&world);
    other_events.record("webhook_created", |new| new["url"] = json!("https://example.org/other")).await;
    other_events.poison("webhook_replay_requested").await;
    let mut rule = Stream::new(&world);
    rule.record("rule_created", |new| new["enabled"] = json!(true)).await;
    rule.poison("rule_triggered").await;
    let mut instance = Stream::new(&world);
    instance.record("plugin_instance_created", |new| new["config"] = Value::Null).await;
    instance.poison("plugin_instance_reported").await;
    let mut job = Stream::new(&world);
    job.record("job_created", |_| ()).await;
    job.poison("job_firing_skipped").await;
    world.fold().await;
    // Later than any firing that the sample's schedule has next.
    let later = DateTime::from_timestamp(4_000_000_000, 0).unwrap();
    let due = async || due_jobs(world.pool(), later, 10).await.unwrap().len();
    assert_eq!(due().await, 1);
    let moving = |change: &mut Value| {
        change["to"] = change["from"].clone();
        change["to"]["url"] = json!("https://example.org/new");
    };
    moved.record("webhook_updated", moving).await;
    let listing = |change: &mut Value| {
        change["from"]["url"] = json!("https://example.org/other");
        change["to"] = change["from"].clone();
        change["to"]["events"] = json!(["sensor.reading"]);
    };
    other_events.record("webhook_updated", listing).await;
    rule.record("rule_updated", |change| change["to"]["enabled"] = json!(false)).await;
    instance.record("plugin_instance_updated", |change| change["from"]["config"] = Value::Null).await;
    job.record("job_updated", |change| change["to"]["enabled"] = json!(false)).await;
    world.fold().await;
    assert!(!moved.is_set("webhooks", "enabled").await);
    assert!(other_events.is_set("webhooks", "enabled").await);
    assert!(!rule.is_set("rules", "enabled").await);
    assert!(!instance.is_set("plugin_instances", "enabled").await);
    assert!(!job.is_set("jobs", "enabled").await);
    assert_eq!(due().await, 0);
    assert_eq!(compare::<AutomationProjection>(world.pool()).await.unwrap().differences, 0);
    assert_eq!(compare::<FleetProjection>(world.pool()).await.unwrap().differences, 0);
    assert_eq!(compare::<TransferProjection>(world.pool()).await.unwrap().differences, 0);
}

#[tokio::test]
async fn what_is_removed_or_made_private_while_its_stream_waits_is_not_shown() {
    let world = World::start().await;
    let (mut hall, mut roof) = (Stream::new(&world), Stream::new(&world));
    hall.record("dashboard_created", |new| new["is_global"] = json!(true)).await;
    hall.record("widget_added", |_| ()).await;
    hall.record("widget_added", |added| added["widget"] = json!(Uuid::from_u128(1))).await;
    hall.record("widget_added", |added| added["widget"] = json!(Uuid::from_u128(2))).await;
    hall.poison("widget_updated").await;
    roof.record("plugin_instance_created", |new| new["config"] = Value::Null).await;
    roof.record("channel_mapped", |_| ()).await;
    roof.record("channel_mapped", |mapped| mapped["mapping"] = json!(Uuid::from_u128(1))).await;
    roof.poison("plugin_instance_reported").await;
    world.fold().await;
    assert_eq!((count(&world, "widgets").await, count(&world, "channel_mappings").await), (3, 2));
    hall.record("widget_removed", |_| ()).await;
    hall.record("dashboard_updated", |change| change["is_global"] = json!(false)).await;
    roof.record("channel_mapping_removed", |_| ()).await;
    world.fold().await;
    assert_eq!((count(&world, "widgets").await, count(&world, "channel_mappings").await), (2, 1));
    assert!(!hall.is_set("dashboards", "is_global").await);
    hall.record("dashboard_restored", |back| back["removed"] = json!([Uuid::from_u128(1)])).await;
    world.fold().await;
    assert_eq!(count(&world, "widgets").await, 1);
    assert_eq!(compare::<MonitoringProjection>(world.pool()).await.unwrap().differences, 0);
    assert_eq!(compare::<FleetProjection>(world.pool()).await.unwrap().differences, 0);
}
