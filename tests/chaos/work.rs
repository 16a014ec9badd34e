use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context as _;
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use serde_json::json;
use sqlx::PgPool;
use tokio::time::{Instant, sleep};

use crate::{
    system::{Api, wait_for},
    victims::Victims,
};

const SUBMIT: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(50);
/// Transfers in progress at the same time, so that some are whenever a process is killed.
const UNDER_WAY: usize = 60;
const MAX_BYTES: usize = 200_000;

/// The transfers that have to complete.
#[derive(Clone)]
pub struct Work {
    /// The transfers.
    pub moves: Vec<Move>,
    gateways: [Api; 2],
    pool: PgPool,
}

/// One file that moves from one agent to another.
#[derive(Clone)]
pub struct Move {
    /// Where it is.
    pub source: PathBuf,
    /// Where it has to arrive.
    pub destination: PathBuf,
    job: i64,
    name: String,
}

/// A job for each pair of agents, which is tried again as often as one can be: an agent that is killed ends an attempt.
async fn add_jobs(victims: &Victims) -> anyhow::Result<Vec<i64>> {
    let mut jobs = Vec::new();
    for (number, (source, _)) in victims.agents.iter().enumerate() {
        let (destination, _) = &victims.agents[(number + 1) % victims.agents.len()];
        let job = json!({
            "name": format!("chaos {number}"), "source_path": "out/", "destination_path": "in/",
            "source_agent_id": source.number, "destination_agent_id": destination.number,
            "retry": {"max_attempts": 10, "backoff_seconds": 1},
        });
        let made = victims.gateways[0].post("/api/jobs", &job).await?;
        jobs.push(made["id"].as_i64().context("a job without an id")?);
    }
    Ok(jobs)
}

/// Work of which it is known how much is done.
pub trait Progress {
    /// How much there is.
    fn count(&self) -> usize;

    /// How much is done.
    fn completed(&self) -> impl Future<Output = Result<usize, sqlx::Error>>;
}

impl Progress for Work {
    fn count(&self) -> usize {
        self.moves.len()
    }

    async fn completed(&self) -> Result<usize, sqlx::Error> {
        let sql = "SELECT count(*) FROM read.transfers WHERE status = 'completed'";
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        Ok(count as usize)
    }
}

impl Work {
    /// Writes the files at the agents.
    pub async fn prepare(victims: &Victims, pool: &PgPool, count: usize) -> anyhow::Result<Self> {
        let jobs = add_jobs(victims).await?;
        let mut random = StdRng::seed_from_u64(count as u64);
        let mut moves = Vec::new();
        for number in 0..count {
            let (from, to) = (number % victims.agents.len(), (number + 1) % victims.agents.len());
            let (job, from, to) = (jobs[from], &victims.agents[from].1, &victims.agents[to].1);
            let name = format!("{number}.bin");
            let mut bytes = vec![0; random.random_range(0..MAX_BYTES)];
            random.fill_bytes(&mut bytes);
            fs::create_dir_all(from.folder.join("out"))?;
            let (at, arrives) = (from.folder.join("out").join(&name), to.folder.join("in").join(&name));
            fs::write(&at, bytes)?;
            moves.push(Move { source: at, destination: arrives, job, name });
        }
        Ok(Self { moves, gateways: victims.gateways.clone(), pool: pool.clone() })
    }

    /// Asks for all transfers, at one gateway and then the other, repeating what was not answered.
    pub async fn submit(self) -> anyhow::Result<()> {
        for (number, moved) in self.moves.iter().enumerate() {
            while self.completed().await.is_ok_and(|completed| completed + UNDER_WAY < number) {
                sleep(INTERVAL).await;
            }
            let transfer = json!({
                "job_id": moved.job, "source_path": format!("out/{}", moved.name), "destination_path": format!("in/{}", moved.name),
            });
            let key = format!("chaos-{number}");
            let mut gateways = self.gateways.iter().cycle().skip(number);
            wait_for("a transfer being taken", SUBMIT, || {
                let asking = gateways.next().map(|api| api.post_once("/api/transfers", &key, &transfer));
                async move {
                    Ok(match asking {
                        Some(asking) => Some(asking.await?),
                        None => None,
                    })
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until no transfer is in progress.
    pub async fn wait_until_ended(&self, victims: &mut Victims) -> anyhow::Result<()> {
        let deadline = Instant::now() + END;
        loop {
            victims.tend()?;
            let sql = "SELECT count(*) FROM read.transfers WHERE phase = 'done'";
            let ended: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
            if ended as usize >= self.count() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let sql = "SELECT format('transfer %s from %s to %s: %s, attempt %s, asked %s, active %s: %s', number,
                    source_agent_number, destination_agent_number, phase, attempts, asked, active_at, error)
                     FROM read.transfers WHERE phase <> 'done' ORDER BY number LIMIT 20";
                let stuck: Vec<String> = sqlx::query_scalar(sql).fetch_all(&self.pool).await?;
                anyhow::bail!("only {ended} transfers have ended within {END:?}:\n{}", stuck.join("\n"));
            }
            sleep(INTERVAL).await;
        }
    }
}
