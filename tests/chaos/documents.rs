//! Documents that are read while their workers are killed.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::Client;
use serde_json::Value;
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::{
    checks::sentences,
    system::{Program, Role, Servers, Signalbox, wait_for, wait_until},
};

/// A worker is killed so often, one after the other.
const EVERY: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(900);
/// The documents to read, and words in them. The last one needs text recognition.
const SAMPLES: [(&str, &str); 4] = [
    ("report.pdf", "Stellkraft"),
    ("letter.docx", "Sehr geehrte"),
    ("columns.pdf", "The left column"),
    ("scan.pdf", "Instandsetzung"),
];
/// Each statement gives one sentence for each thing that is not as it should be.
const WRONG: [&str; 3] = [
    "SELECT format('job %s ended %s times', aggregate_id, count(*)) FROM events
      WHERE event_type IN ('extraction_completed', 'extraction_failed', 'extraction_cancelled')
      GROUP BY aggregate_id HAVING count(*) <> 1",
    "SELECT format('job %s is %s', id, status) FROM read.extraction_jobs WHERE status NOT IN ('completed', 'failed')",
    "SELECT format('job %s failed: %s', id, error) FROM read.extraction_jobs
      WHERE status = 'failed' AND error_code <> 'worker_lost'",
];

/// Processes of the system.
struct System {
    settings: Vec<Signalbox>,
    running: Vec<Program>,
}

impl System {
    /// Two workers first, then one process of each other role.
    fn start(servers: &Servers) -> anyhow::Result<Self> {
        let roles = [Role::Workers, Role::Workers, Role::Commands, Role::Projections, Role::Gateway];
        let settings: Vec<_> =
            roles.into_iter().map(|role| Signalbox::new(servers, role)).collect::<anyhow::Result<_>>()?;
        let running = settings.iter().map(Signalbox::start).collect::<anyhow::Result<_>>()?;
        Ok(Self { settings, running })
    }

    fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        self.running[index].kill();
        self.running[index] = self.settings[index].start()?;
        Ok(())
    }

    /// Everything at once, servers too; JetStream loses its disk.
    async fn kill_all(&mut self, servers: &mut Servers) -> anyhow::Result<()> {
        self.running.iter_mut().for_each(Program::kill);
        servers.crash_nats(true).await?;
        servers.crash_postgres().await?;
        self.running = self.settings.iter().map(Signalbox::start).collect::<anyhow::Result<_>>()?;
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.settings[self.settings.len() - 1].address)
    }

    fn said(&self) -> String {
        self.running.iter().map(Program::said).collect::<Vec<_>>().join("\n---\n")
    }
}

/// Submits `count` documents, kills a worker every 5 s until all have ended, and everything once in the middle.
pub async fn run(count: usize) -> anyhow::Result<()> {
    let mut servers = Servers::start().await?;
    let pool = servers.database().await?;
    let mut system = System::start(&servers)?;
    let result = disturb(&mut servers, &mut system, &pool, count).await;
    result.with_context(|| system.said())?;
    pool.close().await;
    Ok(())
}

async fn disturb(
    servers: &mut Servers,
    system: &mut System,
    pool: &PgPool,
    count: usize,
) -> anyhow::Result<()> {
    let client = Client::new();
    ready(&client, system).await?;
    let mut jobs = Vec::new();
    for number in 0..count {
        jobs.push((submit(&client, system, number).await?, SAMPLES[number % SAMPLES.len()].1));
    }
    println!("{count} documents wait");
    let (start, mut kills, mut restarted) = (Instant::now(), 0, false);
    while open(pool).await? > 0 {
        ensure!(start.elapsed() < END, "{} jobs have not ended", open(pool).await?);
        sleep(EVERY).await;
        system.kill(kills % 2)?;
        kills += 1;
        if !restarted && open(pool).await? < count / 2 {
            restarted = true;
            system.kill_all(servers).await?;
            ready(&client, system).await?;
            println!("after {:.1?} everything was killed and started again", start.elapsed());
        }
    }
    println!("after {:.1?} and {kills} kills all jobs had ended", start.elapsed());
    check(&client, system, pool, &jobs).await
}

async fn ready(client: &Client, system: &System) -> anyhow::Result<()> {
    wait_until("the start of the gateway", START, || async {
        let answer = client.get(system.url("/readyz")).send().await?;
        Ok(answer.status().is_success())
    })
    .await
}

/// Each document differs from all others, so that each is read.
async fn submit(client: &Client, system: &System, number: usize) -> anyhow::Result<String> {
    let (name, _) = SAMPLES[number % SAMPLES.len()];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents");
    let mut body =
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n")
            .into_bytes();
    body.extend(fs::read(folder.join(name))?);
    if name.ends_with(".pdf") {
        body.extend(format!("\n% {number}\n").bytes());
    }
    body.extend(b"\r\n--b--\r\n");
    wait_for("a document being taken", START, || {
        let request = client.post(system.url("/api/v1/jobs")).body(body.clone());
        let request = request.header("content-type", "multipart/form-data; boundary=b");
        let request = request.header("idempotency-key", format!("chaos-{number}"));
        async move {
            let answer = request.send().await?.error_for_status()?;
            let submitted: Value = serde_json::from_slice(&answer.bytes().await?)?;
            Ok(submitted["job_id"].as_str().map(str::to_owned))
        }
    })
    .await
}

async fn open(pool: &PgPool) -> anyhow::Result<usize> {
    let sql = "SELECT count(*) FROM read.extraction_jobs WHERE due_at IS NOT NULL";
    let count: i64 = sqlx::query_scalar(sql).fetch_one(pool).await?;
    Ok(count as usize)
}

async fn check(
    client: &Client,
    system: &System,
    pool: &PgPool,
    jobs: &[(String, &str)],
) -> anyhow::Result<()> {
    let mut wrong = sentences(pool, &WRONG).await?;
    let submitted: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE event_type = 'extraction_submitted'")
            .fetch_one(pool)
            .await?;
    if submitted as usize != jobs.len() {
        wrong.push(format!("{} jobs were asked for, the log has {submitted}", jobs.len()));
    }
    let mut lost = 0;
    for (id, words) in jobs {
        let answer = client.get(system.url(&format!("/api/v1/jobs/{id}"))).send().await?;
        let job: Value = serde_json::from_slice(&answer.bytes().await?)?;
        match job["status"].as_str() {
            Some("failed") => lost += 1,
            _ if job["result_content"].as_str().is_some_and(|text| text.contains(words)) => {}
            _ => wrong.push(format!("job {id} does not say {words}: {job}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let attempts = "SELECT attempts, count(*) FROM read.extraction_jobs GROUP BY attempts ORDER BY attempts";
    let attempts: Vec<(i32, i64)> = sqlx::query_as(attempts).fetch_all(pool).await?;
    for (attempts, count) in attempts {
        println!("{count} jobs ended in attempt {attempts}");
    }
    println!("{lost} lost their worker three times");
    Ok(())
}
