use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::Monitoring;
use signalbox_datapoint_log::{Appender, Batch, Origin, Point, codec::encode_block, micros};
use signalbox_projections::monitoring::series::is_turn;
use signalbox_workers::{Context, Parts, Retention, Worker, WorkerError};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::harness::{World, eventually, seconds, signalbox};

/// Appends one point on each of the last `days` days, as if it had come in then; the newest day is today.
async fn record_days(pool: &PgPool, days: i64) {
    record_days_of(pool, days, |_| &[1]).await;
}

/// The same, of each of the channels that `channels` names for a day that is so long ago.
async fn record_days_of(pool: &PgPool, days: i64, channels: impl Fn(i64) -> &'static [i32]) {
    let now = Clock::system().now();
    for ago in (0..days).rev() {
        let clock = Clock::manual(now - TimeDelta::days(ago));
        let appender = Appender::start(pool.clone(), clock.clone(), mpsc::channel(1).0);
        let point = |channel: &i32| Point { channel: *channel, time: micros(clock.now()), value: ago as f64 };
        let mut points: Vec<_> = channels(ago).iter().map(point).collect();
        let block = encode_block(Origin::User(Uuid::nil()), &mut points).into();
        let batch = Batch { id: clock.new_id(), points: points.len(), block, traceparent: None };
        appender.append(batch).await.unwrap();
    }
    let is_folded =
        "SELECT h.position = p.position FROM log_head h, series.progress p WHERE h.log = 'datapoints'";
    eventually(seconds(20), async || {
        sqlx::query_scalar::<_, bool>(is_folded).fetch_one(pool).await.is_ok_and(|is_folded| is_folded)
    })
    .await;
}

async fn days(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT day) FROM datapoint_log").fetch_one(pool).await.unwrap()
}

/// As if PostgreSQL had run for another hour.
async fn pass_an_hour(pool: &PgPool) {
    sqlx::query("UPDATE ops.retention_runs SET ran_at = ran_at - 3600").execute(pool).await.unwrap();
}

/// The worker of a process that has just started, at each step anew.
#[derive(Clone)]
struct Starting {
    context: Context,
    config: Monitoring,
}

impl Starting {
    async fn new(world: &World, clock: Clock, retention_days: u32) -> Self {
        let Parts { context, config, .. } = world.worker_parts().await;
        let config = Monitoring { retention_days, ..config.monitoring };
        Self { context: Context { clock, ..context }, config }
    }

    async fn step(&self) -> Result<bool, WorkerError> {
        Retention::new(self.config.clone()).step(&self.context).await
    }
}

async fn has_fault(pool: &PgPool, part: &str) -> bool {
    signalbox_database::faults(pool).await.unwrap().iter().any(|fault| fault.part == part)
}

async fn entries(pool: &PgPool) -> Vec<(DateTime<Utc>, String)> {
    sqlx::query_as(
        "SELECT recorded_at, payload->>'content' FROM events
          WHERE aggregate_type = 'log_entry' AND payload->>'source' = 'retention' ORDER BY position",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_clock_that_is_years_ahead_drops_nothing() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    record_days(pool, 10).await;
    let ahead = Starting::new(&world, Clock::shifted(TimeDelta::days(4000)), 30).await;
    ahead.step().await.unwrap();
    assert_eq!(days(pool).await, 10);
    assert!(has_fault(pool, "clock").await);
    // Both clocks ahead: the recorded times bound the removal. A manual clock stands for PostgreSQL's.
    let ahead = Starting::new(&world, Clock::manual(Clock::system().now() + TimeDelta::days(4000)), 30).await;
    ahead.step().await.unwrap();
    assert_eq!(days(pool).await, 10);
    signalbox_database::clear_fault(pool, "clock").await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn a_lowered_retention_takes_effect_by_two_days_an_hour() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    record_days(pool, 10).await;
    let context = Starting::new(&world, Clock::system(), 3).await;
    context.step().await.unwrap();
    context.step().await.unwrap();
    assert_eq!(days(pool).await, 8, "the second run is too early");
    assert!(has_fault(pool, "retention").await);
    let logged = entries(pool).await;
    assert!(logged.len() == 1 && logged[0].1.starts_with("Retention drops 2 datapoints"), "{logged:?}");
    for expected in [6, 4] {
        pass_an_hour(pool).await;
        context.step().await.unwrap();
        assert_eq!(days(pool).await, expected);
    }
    context.step().await.unwrap();
    assert!(!has_fault(pool, "retention").await);
    assert_eq!(entries(pool).await.len(), 3);
    world.finish().await;
}

#[tokio::test]
async fn old_datapoints_are_dropped_at_once_by_a_command() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    record_days(pool, 10).await;
    let mut config = world.config.clone();
    config.monitoring.retention_days = 3;
    let refused = signalbox(&config, &["retention", "apply"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("--yes"), "{refused:?}");
    let shown = signalbox(&config, &["retention", "apply", "--json"]).await.json_lines();
    assert_eq!((&shown[0]["datapoints"], &shown[0]["dropped"]), (&json!(6), &json!(false)));
    assert_eq!(days(pool).await, 10);
    signalbox(&config, &["retention", "apply", "--yes"]).await.well();
    assert_eq!(days(pool).await, 4);
    eventually(seconds(20), async || entries(pool).await.len() == 1).await;
    world.finish().await;
}

/// Keeps days from being dropped until it is ended.
async fn hold_days(pool: &PgPool) -> Transaction<'static, Postgres> {
    let mut held = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('fold.datapoints', 0))")
        .execute(&mut *held)
        .await
        .unwrap();
    held
}

async fn sensor(world: &World, name: &str, retention_days: Option<i32>) -> String {
    let event = json!({"name": name, "type": "sensor", "retention_days": retention_days});
    let event = world.admin.post("/api/v1/events", event).await.expect(201);
    format!("/api/v1/events/{}", event["public_id"].as_str().unwrap())
}

#[tokio::test]
async fn the_command_says_what_stays_because_a_number_was_raised() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let pool = &world.servers.pool;
    let event = sensor(&world, "kept", None).await;
    record_days(pool, 10).await;
    let mut config = world.config.clone();
    config.monitoring.retention_days = 3;
    signalbox_database::report_fault(pool, "retention", "days are due").await.unwrap();
    for (arguments, keeps) in [(&["--yes"][..], 0), (&["--yes", "--json"], 30)] {
        world.admin.put(&event, json!({"retention_days": null})).await.expect(200);
        let (held, before) = (hold_days(pool).await, entries(pool).await.len());
        let command = tokio::spawn({
            let (config, arguments) = (config.clone(), [&["retention", "apply"], arguments].concat());
            async move { signalbox(&config, &arguments).await.well() }
        });
        eventually(seconds(20), async || entries(pool).await.len() > before).await;
        world.admin.put(&event, json!({"retention_days": keeps})).await.expect(200);
        held.rollback().await.unwrap();
        let said = command.await.unwrap();
        match keeps {
            0 => {
                assert!(said.contains("6 days") && said.contains("stay, because"), "{said}");
                assert!(said.contains("Nothing was dropped."), "{said}");
            }
            _ => {
                let said: Value = serde_json::from_str(&said).unwrap();
                let expected = json!({"days": 0, "datapoints": 0, "from": null, "to": null, "stayed": 6, "removals": 0,
                    "rollup_days": 0, "dropped": false});
                assert_eq!(said, expected);
            }
        }
        assert_eq!(days(pool).await, 10);
        assert!(has_fault(pool, "retention").await, "the worker finds out what is due now");
    }
    signalbox_database::clear_fault(pool, "retention").await.unwrap();
    world.finish().await;
}

/// The values of single events are removed, the days stay.
#[tokio::test]
async fn a_run_counts_although_its_days_are_kept_in_the_end() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let pool = &world.servers.pool;
    let kept = sensor(&world, "kept", None).await;
    sensor(&world, "short", Some(1)).await;
    record_days_of(pool, 10, |ago| if ago < 7 { &[1, 2] } else { &[1] }).await;
    let context = Starting::new(&world, Clock::system(), 3).await;
    let held = hold_days(pool).await;
    let step = tokio::spawn({
        let context = context.clone();
        async move { context.step().await }
    });
    eventually(seconds(20), async || entries(pool).await.len() == 2).await;
    world.admin.put(&kept, json!({"retention_days": 0})).await.expect(200);
    held.rollback().await.unwrap();
    assert!(step.await.unwrap().unwrap(), "removals are to be continued");
    assert_eq!(days(pool).await, 10);
    assert!(!is_turn(pool).await.unwrap(), "the next run is an hour away");
    while context.step().await.unwrap() {}
    signalbox_database::clear_fault(pool, "retention").await.unwrap();
    world.finish().await;
}

/// The number of the event that is set aside may keep its values for ever.
#[tokio::test]
async fn nothing_is_dropped_while_an_event_is_set_aside() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    world.admin.post("/api/v1/events", json!({"name": "kept", "type": "sensor"})).await.expect(201);
    record_days(pool, 10).await;
    sqlx::query(
        "INSERT INTO read.poisonous_events (projection, position, aggregate_type, aggregate_id, sequence, event_type, error, alone)
         SELECT 'monitoring', position, aggregate_type, aggregate_id, sequence, event_type, 'of a newer version', true
           FROM events WHERE aggregate_type = 'channel'",
    )
    .execute(pool)
    .await
    .unwrap();
    let context = Starting::new(&world, Clock::system(), 3).await;
    context.step().await.unwrap();
    assert_eq!((days(pool).await, entries(pool).await.len()), (10, 0));
    let faults = signalbox_database::faults(pool).await.unwrap();
    let fault = faults.iter().find(|fault| fault.part == "retention").unwrap();
    assert!(fault.reason.contains("set aside"), "{fault:?}");
    let mut config = world.config.clone();
    config.monitoring.retention_days = 3;
    let refused = signalbox(&config, &["retention", "apply", "--yes"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("poison list"), "{refused:?}");
    assert_eq!(days(pool).await, 10);
    sqlx::query("DELETE FROM read.poisonous_events").execute(pool).await.unwrap();
    context.step().await.unwrap();
    assert_eq!(days(pool).await, 8);
    signalbox_database::clear_fault(pool, "retention").await.unwrap();
    world.finish().await;
}

/// An event keeps its values for two days, all others for ever.
#[tokio::test]
async fn an_events_own_number_takes_two_days_an_hour_and_leaves_roll_ups() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    let event = json!({"name": "short", "type": "sensor", "retention_days": 2});
    let event = world.admin.post("/api/v1/events", event).await.expect(201);
    assert_eq!(event["retention_days"], 2);
    record_days(pool, 10).await;
    let with_values = async |table: &str| -> i64 {
        let sql = format!("SELECT count(DISTINCT day) FROM {table} WHERE channel = 1");
        sqlx::query_scalar(&sql).fetch_one(pool).await.unwrap()
    };
    let steps = async |context: &Starting| while context.step().await.unwrap() {};
    let ahead = Starting::new(&world, Clock::shifted(TimeDelta::days(4000)), 0).await;
    steps(&ahead).await;
    assert_eq!(with_values("series.chunks").await, 10, "a wrong clock holds everything back");
    signalbox_database::clear_fault(pool, "clock").await.unwrap();
    let context = Starting::new(&world, Clock::system(), 0).await;
    steps(&context).await;
    assert_eq!(with_values("series.chunks").await, 8, "the second run is too early");
    assert!(has_fault(pool, "retention").await);
    assert_eq!(with_values("ops.kept_rollups").await, 2);
    let logged = entries(pool).await;
    assert!(
        logged.len() == 1 && logged[0].1.starts_with("Retention removes the datapoints of 1 event that"),
        "{logged:?}"
    );
    pass_an_hour(pool).await;
    steps(&context).await;
    assert_eq!((with_values("series.chunks").await, days(pool).await), (6, 10));
    // A number that is cleared ends it.
    let path = format!("/api/v1/events/{}", event["public_id"].as_str().unwrap());
    let changed = world.admin.put(&path, json!({"retention_days": null})).await.expect(200);
    assert_eq!(changed["retention_days"], json!(null));
    pass_an_hour(pool).await;
    steps(&context).await;
    assert_eq!(with_values("series.chunks").await, 6);
    assert!(!has_fault(pool, "retention").await);
    world.finish().await;
}
