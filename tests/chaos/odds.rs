//! Silent networks, wrong clocks and full disks.

mod disks;
mod networks;

pub use disks::{full_disk_of_nats, full_disk_of_postgres, full_disk_of_up};
pub use networks::{silent_bucket, silent_receiver, silent_replica};

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use signalbox_test_support::SilentLink;
use sqlx::PgPool;
use tokio::time::Instant;

use crate::{
    checks::sentences,
    system::{AgentAccount, AgentSettings, Api, Program, Role, Servers, Signalbox, wait_for, wait_until},
};

const END: Duration = Duration::from_secs(180);
const BYTES: usize = 100_000;
const ROLES: [Role; 4] = [Role::Commands, Role::Projections, Role::Workers, Role::Gateway];
const DAY_SECONDS: i64 = 86_400;
const POINTS: usize = 50;
/// Each statement gives one sentence for each thing that is not as it should be.
const WRONG: [&str; 4] = [
    "SELECT format('transfer %s completed %s times', aggregate_id, count(*)) FROM events
      WHERE event_type = 'transfer_completed' GROUP BY aggregate_id HAVING count(*) <> 1",
    "SELECT format('the log has %s events up to %s, its head is %s', count(*), max(e.position), h.position)
       FROM events e, log_head h WHERE h.log = 'events' GROUP BY h.position
     HAVING count(*) <> max(e.position) OR max(e.position) <> h.position",
    "SELECT format('event %s is poisonous for %s: %s', position, projection, error) FROM read.poisonous_events",
    "SELECT format('transfer %s has another digest in the log', t.number) FROM read.transfers t
       JOIN read.transfer_files f ON f.transfer_id = t.id WHERE f.sha256 <> t.sha256",
];

/// One process of each role and two agents.
struct System {
    servers: Servers,
    pool: PgPool,
    processes: Vec<(Role, Signalbox, Program)>,
    api: Api,
    agents: Vec<(AgentAccount, AgentSettings)>,
    /// One for each direction; their transfers are tried again.
    jobs: Vec<i64>,
    /// Of the agents, in their order.
    running: Vec<Program>,
    /// Each network between two parts, with its name, if they are linked.
    links: Vec<(String, SilentLink)>,
    /// Transfers that were asked for: number, source and destination.
    moves: Vec<(i64, PathBuf, PathBuf)>,
}

impl System {
    async fn start(linked: bool, storage: Option<&Path>) -> anyhow::Result<Self> {
        let mut more = Vec::new();
        for role in ROLES {
            let folder = storage.map(|folder| folder.display().to_string());
            more.extend(folder.map(|folder| (role, "SIGNALBOX_STORAGE__FOLDER", folder)));
        }
        Self::start_on(Servers::start().await?, linked, &more).await
    }

    /// With more environment variables for processes of each role.
    async fn start_on(
        servers: Servers,
        linked: bool,
        more: &[(Role, &'static str, String)],
    ) -> anyhow::Result<Self> {
        let pool = servers.database().await?;
        let (mut links, mut processes) = (Vec::new(), Vec::new());
        for role in ROLES {
            let mut settings = Signalbox::new(&servers, role)?;
            for (_, variable, value) in more.iter().filter(|(of, ..)| *of == role) {
                settings = settings.with(variable, value);
            }
            if linked {
                for (variable, part, url) in [
                    ("DATABASE_URL", "PostgreSQL", &servers.database_url),
                    ("NATS_URL", "nats-server", &servers.nats_url),
                ] {
                    let target = address_in(url)?;
                    let link = SilentLink::to(target).await;
                    settings = settings.with(variable, &link.instead_of(url, target));
                    links.push((format!("{role:?} and {part}"), link));
                }
            }
            let program = settings.start()?;
            processes.push((role, settings, program));
        }
        let (_, gateway, _) = processes.last().context("a gateway")?;
        let api = wait_for("the start of the gateway", END, || async {
            let mut api = Api::new(gateway.address)?;
            api.log_in().await?;
            Ok(Some(api))
        });
        let api = api.await?;
        let (mut agents, mut running) = (Vec::new(), Vec::new());
        for (name, transport) in [("press", "websocket"), ("archive", "polling")] {
            let mut address = gateway.address;
            if linked {
                let link = SilentLink::to(address).await;
                address = link.address();
                links.push((format!("the gateway and the {transport} agent"), link));
            }
            let account = api.add_agent(name).await?;
            let settings = AgentSettings::new(servers.folder(), name, address, &account, transport)?;
            running.push(settings.start()?);
            agents.push((account, settings));
        }
        let mut jobs = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let job = json!({
                "name": format!("odds {from}"), "source_path": "out/", "destination_path": "in/",
                "source_agent_id": agents[from].0.number, "destination_agent_id": agents[to].0.number,
                "retry": {"max_attempts": 10, "backoff_seconds": 1},
            });
            let made = api.post("/api/jobs", &job).await?;
            jobs.push(made["id"].as_i64().context("a job without an id")?);
        }
        let moves = Vec::new();
        Ok(Self { servers, pool, processes, api, agents, jobs, running, links, moves })
    }

    /// Logs in again, once the gateway serves.
    async fn log_in(&mut self) -> anyhow::Result<()> {
        let api = &self.api;
        self.api = wait_for("a login", END, || async {
            let mut api = api.clone();
            api.log_in().await?;
            Ok(Some(api))
        })
        .await
        .with_context(|| self.said())?;
        Ok(())
    }

    /// Asks for one transfer in each direction, repeating what was not answered.
    async fn ask(&mut self) -> anyhow::Result<()> {
        for (from, to) in [(0, 1), (1, 0)] {
            let name = format!("{}.bin", self.moves.len());
            let ((_, at), (_, there)) = (&self.agents[from], &self.agents[to]);
            let (file, arrives) = (at.folder.join(&name), there.folder.join(format!("from-{name}")));
            fs::write(&file, vec![self.moves.len() as u8; BYTES])?;
            let transfer = json!({
                "job_id": self.jobs[from], "source_path": name, "destination_path": format!("from-{name}"),
            });
            let made = self.post("/api/transfers", &name, &transfer).await?;
            let number = made["id"].as_i64().context("a transfer without an id")?;
            self.moves.push((number, file, arrives));
        }
        Ok(())
    }

    /// Sends datapoints one by one, repeating what was not answered; `count` is how many were sent so far.
    async fn post_points(&mut self, event: &Value, count: &mut u64) -> anyhow::Result<()> {
        for value in 0..POINTS {
            let point = json!({"value": value, "event_public_id": event["public_id"]});
            self.post("/api/v1/datapoints", &format!("point-{count}"), &point).await?;
            *count += 1;
        }
        Ok(())
    }

    /// Posts until it is answered. The login may have ended with a leap of the clock that counts, of which a gateway learns
    /// within seconds.
    async fn post(&mut self, path: &str, key: &str, body: &Value) -> anyhow::Result<Value> {
        if let Ok(answer) = self.api.post_once(path, key, body).await {
            return Ok(answer);
        }
        self.log_in().await?;
        let api = &self.api;
        wait_for("a request being taken", END, || async { Ok(Some(api.post_once(path, key, body).await?)) })
            .await
    }

    /// Waits until all transfers have completed.
    async fn completed(&self) -> anyhow::Result<()> {
        let count = self.moves.len() as i64;
        wait_until("the end of all transfers", END, || async {
            let sql = "SELECT count(*) FROM read.transfers WHERE status = 'completed'";
            let completed: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
            let sql =
                "SELECT format('%s: %s, attempt %s: %s', number, status, attempts, error) FROM read.transfers
                        WHERE status <> 'completed'";
            let others: Vec<String> = sqlx::query_scalar(sql).fetch_all(&self.pool).await?;
            ensure!(completed == count, "{completed} of {count} completed; {}", others.join("; "));
            Ok(true)
        })
        .await
        .with_context(|| self.said())
    }

    async fn check(&self) -> anyhow::Result<()> {
        let mut wrong = sentences(&self.pool, &WRONG).await?;
        for (number, source, destination) in &self.moves {
            if fs::read(source)? != fs::read(destination).unwrap_or_default() {
                wrong.push(format!("transfer {number} brought something else"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    /// Waits until health names a part of `kind`, or no longer does.
    async fn named(&self, kind: &str, is_named: bool) -> anyhow::Result<()> {
        wait_until("health naming the part, or no longer", END, || async {
            let parts = parts(&self.api).await?;
            let found = parts.iter().any(|part| part.starts_with(kind));
            ensure!(found == is_named, "health names {parts:?}");
            Ok(true)
        })
        .await
    }

    fn said(&self) -> String {
        let said =
            self.processes.iter().map(|(role, _, program)| format!("--- {role:?}\n{}", program.said()));
        said.collect::<Vec<_>>().join("\n")
    }
}

/// The parts that health names.
async fn parts(api: &Api) -> anyhow::Result<Vec<String>> {
    let health = api.get("/health").await?;
    let faults = health["faults"].as_array().cloned().unwrap_or_default();
    Ok(faults.iter().filter_map(|fault| fault["part"].as_str().map(str::to_owned)).collect())
}

/// The address in `url`, behind its user and before its path.
fn address_in(url: &str) -> anyhow::Result<SocketAddr> {
    let rest = url.rsplit_once('@').or_else(|| url.rsplit_once("//")).map_or(url, |(_, rest)| rest);
    let address = rest.split(['/', ',', '?']).next().unwrap_or_default();
    address.parse().with_context(|| format!("{address} is not an address"))
}

/// Lets each network go silent once, with transfers in progress.
pub async fn silent_networks() -> anyhow::Result<()> {
    silence_each(&mut System::start(true, None).await?).await
}

/// Lets each link go silent once, with transfers in progress.
async fn silence_each(system: &mut System) -> anyhow::Result<()> {
    system.ask().await?;
    system.completed().await?;
    for index in 0..system.links.len() {
        system.ask().await?;
        let start = Instant::now();
        let (name, link) = &system.links[index];
        link.silence();
        link.restore();
        let name = name.clone();
        system.ask().await?;
        let answered = start.elapsed();
        system.completed().await?;
        println!(
            "silence between {name}: writes were answered after {answered:.1?}, all work was done after {:.1?}",
            start.elapsed()
        );
    }
    system.check().await
}

/// Restarts each process with a clock that is a day ahead or behind, and then with the right one.
pub async fn wrong_clocks() -> anyhow::Result<()> {
    let mut system = System::start(false, None).await?;
    let library = shifted_clock(system.servers.folder())?;
    let event = system.api.post("/api/v1/events", &json!({"name": "boiler", "type": "sensor"})).await?;
    let mut points = 0_u64;
    for index in 0..system.processes.len() {
        for shift in [DAY_SECONDS, -DAY_SECONDS] {
            let (role, settings, program) = &mut system.processes[index];
            let (role, right) = (*role, settings.clone());
            program.kill();
            let wrong = right.clone().with("LD_PRELOAD", &library.display().to_string());
            *program = wrong.with("CLOCK_SHIFT_SECONDS", &shift.to_string()).start()?;
            let start = Instant::now();
            system.log_in().await?;
            system.named("clock.", true).await.with_context(|| system.said())?;
            let named = start.elapsed();
            system.ask().await?;
            system.post_points(&event, &mut points).await?;
            system.completed().await?;
            println!(
                "{role:?} with a clock {shift} s off: named after {named:.1?}, all work was done after {:.1?}",
                start.elapsed()
            );
            let (_, _, program) = &mut system.processes[index];
            program.kill();
            *program = right.start()?;
            system.log_in().await?;
            system.named("clock.", false).await?;
        }
    }
    wrong_clocks_of_agents(&mut system, &library).await?;
    wrong_clock_of_postgres(&mut system, &library, &event, &mut points).await?;
    let listed = system.api.get("/api/v1/datapoints?per_page=1").await?;
    let total = ["total", "count"].iter().find_map(|name| listed[*name].as_u64());
    ensure!(total == Some(points), "{points} datapoints were taken, {total:?} are listed: {listed}");
    system.check().await
}

/// Agents are not asked for their time, so nothing names them.
async fn wrong_clocks_of_agents(system: &mut System, library: &Path) -> anyhow::Result<()> {
    for index in 0..system.agents.len() {
        for shift in [DAY_SECONDS, -DAY_SECONDS] {
            let right = system.agents[index].1.clone();
            let wrong = right.clone().with("LD_PRELOAD", &library.display().to_string());
            system.running[index].kill();
            system.running[index] = wrong.with("CLOCK_SHIFT_SECONDS", &shift.to_string()).start()?;
            let start = Instant::now();
            system.ask().await?;
            system.completed().await?;
            println!(
                "agent {index} with a clock {shift} s off: all work was done after {:.1?}",
                start.elapsed()
            );
            system.running[index].kill();
            system.running[index] = right.start()?;
            system.ask().await?;
            system.completed().await?;
        }
    }
    Ok(())
}

/// The clocks of all processes differ from PostgreSQL's then, and they name it.
async fn wrong_clock_of_postgres(
    system: &mut System,
    library: &Path,
    event: &Value,
    points: &mut u64,
) -> anyhow::Result<()> {
    for shift in [DAY_SECONDS, -DAY_SECONDS] {
        let environment = [
            ("LD_PRELOAD".to_owned(), library.display().to_string()),
            ("CLOCK_SHIFT_SECONDS".to_owned(), shift.to_string()),
        ];
        system.servers.restart_postgres_with(environment.into()).await?;
        let start = Instant::now();
        system.log_in().await?;
        system.named("clock.", true).await.with_context(|| system.said())?;
        let named = start.elapsed();
        // The login before may have ended with the day that has passed by the clock that counts.
        system.log_in().await?;
        system.ask().await?;
        system.post_points(event, points).await?;
        system.completed().await?;
        println!(
            "PostgreSQL with a clock {shift} s off: named after {named:.1?}, all work was done after {:.1?}",
            start.elapsed()
        );
        system.servers.restart_postgres_with(Vec::new()).await?;
        system.log_in().await?;
        system.named("clock.", false).await.with_context(|| system.said())?;
    }
    Ok(())
}

/// Compiles the library that shifts a process's clock.
fn shifted_clock(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (folder.join("shifted_clock.c"), folder.join("shifted_clock.so"));
    fs::write(&source, include_str!("shifted_clock.c"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    ensure!(compiler.status().context("a C compiler")?.success(), "the clock could not be compiled");
    Ok(library)
}

/// A file system of its own, unmounted when this is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(megabytes: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let size = format!("size={megabytes}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).status()?;
        ensure!(mounted.success(), "a small file system cannot be mounted: run this as root");
        Ok(Self(folder))
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = fs::File::create(self.filler())?;
        let piece = vec![0_u8; 64 * 1024];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Fills the disk that files are staged on while transfers are in progress.
pub async fn full_disk() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(64)?;
    let mut system = System::start(false, Some(disk.0.path())).await?;
    system.named("disk.", true).await?;
    system.ask().await?;
    system.completed().await?;
    let start = Instant::now();
    disk.fill()?;
    system.ask().await?;
    wait_until("an attempt on the full disk", END, || async {
        let sql = "SELECT count(*) FROM events WHERE event_type IN ('transfer_requeued', 'transfer_failed')";
        let tried: i64 = sqlx::query_scalar(sql).fetch_one(&system.pool).await?;
        let sql = "SELECT count(*) FROM read.transfers WHERE status <> 'completed'";
        let open: i64 = sqlx::query_scalar(sql).fetch_one(&system.pool).await?;
        Ok(tried > 0 || open > 0 && start.elapsed() > Duration::from_secs(20))
    })
    .await?;
    fs::remove_file(disk.filler())?;
    let freed = Instant::now();
    system.ask().await?;
    system.completed().await?;
    println!(
        "a disk that was full for {:.1?}: all work was done {:.1?} after it had space",
        freed - start,
        freed.elapsed()
    );
    system.check().await
}
