//! Parts that do not work are named by health, doctor, metrics and entries, from one list.

use std::{sync::mpsc, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use signalbox_database::{clear_fault, report_fault};
use signalbox_workers::{Context, Worker, WorkerError, Workers};
use sqlx::{Connection, Executor, PgConnection};
use tokio::{runtime, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::harness::{Client, RealGateway, Separate, World, eventually, eventually_some, seconds, signalbox};

/// Contents of the entries about single parts, oldest first.
async fn entries(world: &World) -> Vec<String> {
    let page = world.admin.get("/api/v1/logging?limit=100").await.expect(200);
    let rows = page["data"].as_array().cloned().unwrap_or_default();
    let mut about: Vec<String> = rows
        .iter()
        .filter(|row| row["source"] == "health")
        .filter_map(|row| row["content"].as_str().map(str::to_owned))
        // Those about the service as a whole follow from the changes of its health.
        .filter(|content| !content.starts_with("The service "))
        .collect();
    about.reverse();
    about
}

async fn parts(world: &World) -> Vec<String> {
    let health = world.anonymous().get("/health").await.expect(200);
    let parts: Vec<_> =
        health["faults"].as_array().unwrap().iter().map(|fault| text(&fault["part"])).collect();
    assert_eq!(health["status"] == "degraded", !parts.is_empty(), "{health}");
    parts
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_reported_fault_shows_everywhere_until_it_is_cleared() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    report_fault(pool, "disk.elsewhere", "the file /data/a cannot be removed").await.unwrap();
    eventually(seconds(10), async || parts(&world).await == ["disk.elsewhere"]).await;
    let metrics = world.admin.get("/metrics").await.text();
    assert!(metrics.contains("signalbox_fault_seconds{part=\"disk.elsewhere\"} "), "{metrics}");
    assert_eq!(world.anonymous().get("/api/health").await.expect(200)["status"], "degraded");
    world.anonymous().get("/readyz").await.expect(200);
    let first = eventually_some(seconds(20), async || entries(&world).await.first().cloned()).await;
    assert!(first.starts_with("disk.elsewhere does not work since "), "{first}");
    assert!(first.ends_with(": the file /data/a cannot be removed"), "{first}");
    assert!(clear_fault(pool, "disk.elsewhere").await.unwrap());
    eventually(seconds(20), async || entries(&world).await.len() == 2).await;
    assert!(entries(&world).await[1].starts_with("disk.elsewhere works again."));
    eventually(seconds(10), async || parts(&world).await.is_empty()).await;
    world.finish().await;
}

/// A part of each kind that is looked for. Those of this machine are not taken, because its processes clear them.
const KINDS: [&str; 17] = [
    "chain.lag",
    "clock",
    "clock.elsewhere",
    "clock.sweeps",
    "disk.elsewhere",
    "fold.datapoints",
    "fold.series.lag",
    "mailbox",
    "oldest_snapshot",
    "projection.transfer",
    "projection.transfer.lag",
    "relay.events.lag",
    "retention",
    "worker.cleanup",
    "worker.cleanup.items",
    "worker.cleanup.step",
    "worker.relay.events",
];

/// An event that cannot be applied, and a row of datapoints that cannot be decoded.
async fn cause_faults(world: &World) -> [&'static str; 2] {
    let agent = world.agent("press").await;
    let pool = &world.servers.pool;
    pool.execute("ALTER TABLE read.agents ADD CONSTRAINT refused CHECK (name <> 'unlucky')").await.unwrap();
    world.admin.put(&format!("/api/agents/{}", agent.id), json!({"name": "unlucky"})).await.expect(200);
    sqlx::query(
        "WITH head AS (UPDATE log_head SET position = position + 1, points = points + 5
                        WHERE log = 'datapoints' RETURNING position, points)
         INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
         SELECT position, $1::date, $1, 1, 5, points, '\\x0badc0de' FROM head",
    )
    .bind(world.clock.now())
    .execute(pool)
    .await
    .unwrap();
    ["datapoints.rows", "projection.transfer.events"]
}

/// The findings of `signalbox doctor` about `check`.
async fn doctor(world: &World, check: &str) -> Vec<Value> {
    let said = signalbox(&world.config, &["doctor", "--json"]).await;
    let findings: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, Some(1), "a part that does not work is a failure");
    findings.into_iter().filter(|finding| finding["check"] == check).collect()
}

#[tokio::test]
async fn health_doctor_and_metrics_name_every_kind_of_fault() {
    let world = World::start().await;
    let caused = cause_faults(&world).await;
    eventually(seconds(30), async || {
        let parts = parts(&world).await;
        caused.iter().all(|part| parts.iter().any(|known| known == part))
    })
    .await;
    let all: Vec<_> = KINDS.into_iter().chain(caused).collect();
    let report = async || {
        for part in KINDS {
            report_fault(&world.servers.pool, part, &format!("{part} is broken")).await.unwrap();
        }
    };
    // Parts that work are cleared every few seconds, so each look is a new one.
    eventually(seconds(60), async || {
        report().await;
        let shown = parts(&world).await;
        all.iter().all(|part| shown.iter().any(|known| known == part))
    })
    .await;
    eventually(seconds(60), async || {
        report().await;
        let metrics = world.admin.get("/metrics").await.text();
        all.iter().all(|part| metrics.contains(&format!("signalbox_fault_seconds{{part=\"{part}\"}} ")))
    })
    .await;
    eventually(seconds(90), async || {
        report().await;
        let found = doctor(&world, "faults").await;
        let is_named = |part: &&str| {
            let begin = format!("{part} does not work since ");
            found.iter().any(|finding| text(&finding["found"]).starts_with(&begin))
        };
        all.iter().all(is_named)
    })
    .await;
    world.servers.pool.execute("ALTER TABLE read.agents DROP CONSTRAINT refused").await.unwrap();
    signalbox(&world.config, &["projections", "poison", "retry"]).await.well();
    for part in KINDS {
        clear_fault(&world.servers.pool, part).await.unwrap();
    }
    // Lost datapoints stay lost, and are reported.
    eventually(seconds(30), async || parts(&world).await == ["datapoints.rows"]).await;
    world.finish().await;
}

#[tokio::test]
async fn faults_known_last_are_shown_while_the_list_cannot_be_read() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    let client = world.at_one_gateway().anonymous();
    report_fault(pool, "disk.elsewhere", "the file /data/a cannot be removed").await.unwrap();
    let parts = async || {
        let health = client.get("/health").await.expect(200);
        health["faults"].as_array().unwrap().iter().map(|fault| text(&fault["part"])).collect::<Vec<_>>()
    };
    eventually(seconds(10), async || parts().await == ["disk.elsewhere"]).await;
    let mut held = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    held.execute("LOCK TABLE ops.faults IN ACCESS EXCLUSIVE MODE").await.unwrap();
    // Each waits for a second once what is remembered is too old.
    for _ in 0..4 {
        assert_eq!(parts().await, ["disk.elsewhere"]);
        eventually(seconds(20), async || {
            let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'ops.faults'::regclass AND NOT granted)";
            sqlx::query_scalar(waiting).fetch_one(pool).await.unwrap()
        })
        .await;
    }
    held.rollback().await.unwrap();
    assert!(clear_fault(pool, "disk.elsewhere").await.unwrap());
    eventually(seconds(20), async || parts().await.is_empty()).await;
    world.finish().await;
}

#[tokio::test]
async fn a_read_model_that_stands_still_is_a_fault_and_leaves_the_gateway_ready() {
    let world = World::start().await;
    // A session without the limits of the service's own.
    let mut held = PgConnection::connect(&world.servers.database_url).await.unwrap();
    held.execute("BEGIN; SELECT FROM read.checkpoints WHERE projection = 'transfer' FOR UPDATE")
        .await
        .unwrap();
    let client = world.at_one_gateway();
    client.post("/api/agents", json!({"name": "press"})).await.expect(201);
    eventually(seconds(60), async || {
        let parts = parts(&world).await;
        parts.iter().any(|part| part == "projection.transfer.lag")
            && parts.iter().all(|part| part.starts_with("projection.transfer"))
    })
    .await;
    client.anonymous().get("/readyz").await.expect(200);
    held.execute("ROLLBACK").await.unwrap();
    eventually(seconds(30), async || parts(&world).await.is_empty()).await;
    world.finish().await;
}

#[tokio::test]
async fn an_answer_waits_no_longer_when_progress_cannot_be_read() {
    let world = World::start().await;
    // The connections of the tests' own gateways are too few: all of them wait for the locks.
    let gateway = RealGateway::start(&world.config).await;
    let mut held = PgConnection::connect(&world.servers.database_url).await.unwrap();
    held.execute("BEGIN; SELECT FROM read.checkpoints WHERE projection = 'transfer' FOR UPDATE")
        .await
        .unwrap();
    held.execute("LOCK TABLE read.poisonous_events").await.unwrap();
    let client = world.admin.at(&Client::new(gateway.address));
    let post = client.request(Method::POST, "/api/agents").json(&json!({"name": "press"})).send();
    // Statements that wait for a lock are ended after 10 s.
    let answer = timeout(seconds(8), post).await.expect("it waits for the database").unwrap();
    assert_eq!(
        (answer.status(), answer.headers()["consistency"].to_str().unwrap()),
        (StatusCode::CREATED, "eventual")
    );
    held.execute("ROLLBACK").await.unwrap();
    world.read_models.show_all().await;
    assert_eq!(world.admin.get("/api/agents").await.expect(200).as_array().unwrap().len(), 1);
    world.finish().await;
}

/// A worker whose steps wait for a server that does not answer.
struct Waiting(watch::Receiver<bool>);

impl Worker for Waiting {
    const NAME: &'static str = "waiting";

    fn period(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(500)
    }

    async fn step(&self, _: &Context) -> Result<bool, WorkerError> {
        self.0.clone().wait_for(|answers| *answers).await.unwrap();
        Ok(false)
    }
}

/// A worker whose steps block their thread, as calls to a disk may that never answers.
struct Blocking(std::sync::Mutex<mpsc::Receiver<()>>);

impl Worker for Blocking {
    const NAME: &'static str = "blocking";

    fn period(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(500)
    }

    async fn step(&self, _: &Context) -> Result<bool, WorkerError> {
        self.0.lock().unwrap().recv().unwrap();
        Ok(false)
    }
}

/// The parts of the two workers above; those of a machine that is slow for a moment are left out.
async fn steps(world: &World) -> Vec<String> {
    let own = |part: &String| part.starts_with("worker.blocking.") || part.starts_with("worker.waiting.");
    parts(world).await.into_iter().filter(own).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_whose_step_does_not_return_is_a_fault_until_it_does() {
    let world = World::start().await;
    let (answer, answers) = watch::channel(false);
    let (unblock, blocked) = mpsc::channel();
    let (mut context, stop) = (world.worker_context().await, CancellationToken::new());
    context.pool = signalbox_database::connect(&world.servers.database_url, 4).await.unwrap();
    // As in another process: the next task of a blocked thread waits with it, and may be an answer about health.
    let elsewhere = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut workers = Workers::new(&context);
    {
        let _elsewhere = elsewhere.enter();
        workers.start(Waiting(answers));
    }
    eventually(seconds(30), async || steps(&world).await == ["worker.waiting.step"]).await;
    {
        let _elsewhere = elsewhere.enter();
        workers.start(Blocking(std::sync::Mutex::new(blocked)));
    }
    let running = elsewhere.spawn({
        let stop = stop.clone();
        async move { workers.run(&stop).await }
    });
    let both = ["worker.blocking.step", "worker.waiting.step"];
    eventually(seconds(30), async || steps(&world).await == both).await;
    answer.send(true).unwrap();
    eventually(seconds(30), async || steps(&world).await == ["worker.blocking.step"]).await;
    unblock.send(()).unwrap();
    eventually(seconds(30), async || steps(&world).await.is_empty()).await;
    stop.cancel();
    running.await.unwrap();
    elsewhere.shutdown_background();
    world.finish().await;
}

#[tokio::test]
async fn a_gateway_is_ready_while_handlers_answer_its_idle_commands() {
    let mut service = Separate::start(&[]).await;
    let idle = "signalbox_command_duration_seconds_count{context=\"automation\",outcome=\"done\"} ";
    eventually(seconds(40), async || {
        let metrics = service.metrics("commands").await;
        let count = metrics.lines().find_map(|line| line.strip_prefix(idle)?.parse::<u64>().ok());
        count.is_some_and(|count| count >= 3)
    })
    .await;
    let anonymous = service.admin.anonymous();
    anonymous.get("/readyz").await.expect(200);
    service.kill("commands").await;
    eventually(seconds(30), async || anonymous.get("/readyz").await.status == 503).await;
    assert_eq!(anonymous.get("/readyz").await.expect(503)["missing"], json!(["commands"]));
}

/// A trigger stands for the disk: PostgreSQL says the same of it, by its code.
#[tokio::test]
async fn a_full_disk_of_the_database_is_named_and_the_command_works_once_there_is_space() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    pool.execute(
        "CREATE FUNCTION refuse_for_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
         CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_for_space()",
    )
    .await
    .unwrap();
    let agent = json!({"name": "press"});
    let refused = world.admin.post("/api/agents", agent.clone()).await;
    assert_eq!(refused.error(503), "The disk of the database is full: free some space and try again.");
    pool.execute("DROP TRIGGER full_disk ON events").await.unwrap();
    world.admin.post("/api/agents", agent).await.expect(201);
    world.finish().await;
}
