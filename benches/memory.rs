//! Resident memory: how much a gateway grows while a large file and a tree of small files pass through it between two
//! agents, and what an idle all-in-one process holds. `BENCH_FILE_MIB`, `BENCH_TREE_FILES`.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::{
    report, size,
    system::{AgentAccount, AgentSettings, Api, Program, Role, Servers, Signalbox, wait_for, wait_until},
};

const ONLINE: Duration = Duration::from_secs(30);
const TRANSFER: Duration = Duration::from_secs(600);
/// How long the idle process is looked at.
const IDLE: Duration = Duration::from_secs(5);
const BLOCK: usize = 1 << 20;

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let (mib, files) = (size::of("BENCH_FILE_MIB", 256)?, size::of("BENCH_TREE_FILES", 500)?);
    idle().await?;
    let servers = Servers::start().await?;
    let mut others = Vec::new();
    for role in [Role::Commands, Role::Projections, Role::Workers] {
        others.push(Signalbox::new(&servers, role)?.start()?);
    }
    let (gateway, api) = Signalbox::new(&servers, Role::Gateway)?.start_and_log_in().await?;
    let pair = Pair::start(&servers, api).await?;

    // One-time allocations happen before the measurement.
    fs::write(pair.source.folder.join("small"), b"small")?;
    pair.move_path("small", "arrived/small").await?;
    write_random(&pair.source.folder.join("large"), mib)?;
    write_tree(&pair.source.folder.join("tree"), files)?;

    report::title(&format!("memory: of a gateway during a file of {mib} MiB and a tree of {files} files"));
    let before = gateway.resident_mib()?;
    report::figure("gateway, before", before, "MiB");
    for (name, path) in [("gateway, growth by the file", "large"), ("gateway, growth by the tree", "tree/")] {
        gateway.forget_peak()?;
        let seconds = pair.move_path(path, &format!("arrived/{path}")).await?;
        report::bounded(name, gateway.peak_mib()? - before, "MiB", 48.0);
        report::figure("  moved in", seconds, "s");
    }
    pair.compare(files)
}

async fn idle() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let (process, _api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let (start, mut most) = (Instant::now(), 0_f64);
    while start.elapsed() < IDLE {
        most = most.max(process.resident_mib()?);
        sleep(Duration::from_millis(100)).await;
    }
    report::title("memory: of an idle process with all roles, without PostgreSQL and nats-server");
    report::bounded("resident", most, "MiB", 80.0);
    Ok(())
}

/// Two real agents.
struct Pair {
    api: Api,
    accounts: [AgentAccount; 2],
    source: AgentSettings,
    destination: AgentSettings,
    _processes: [Program; 2],
}

impl Pair {
    async fn start(servers: &Servers, api: Api) -> anyhow::Result<Self> {
        let accounts = [api.add_agent("source").await?, api.add_agent("destination").await?];
        let agent = |name, account| AgentSettings::new(servers.folder(), name, api.address, account, "auto");
        let (source, destination) = (agent("source", &accounts[0])?, agent("destination", &accounts[1])?);
        let processes = [source.start()?, destination.start()?];
        for account in &accounts {
            let path = format!("/api/agents/{}", account.number);
            wait_until("an agent coming online", ONLINE, || async {
                Ok(api.get(&path).await?["status"].as_str() == Some("online"))
            })
            .await?;
        }
        Ok(Self { api, accounts, source, destination, _processes: processes })
    }

    /// Seconds until it has arrived.
    async fn move_path(&self, from: &str, to: &str) -> anyhow::Result<f64> {
        let start = Instant::now();
        let number = self.api.add_transfer(&self.accounts[0], &self.accounts[1], from, to).await?;
        let path = format!("/api/transfers/{number}");
        let ended = wait_for("the end of the transfer", TRANSFER, || async {
            let transfer = self.api.get(&path).await?;
            Ok((transfer["phase"].as_str() == Some("done")).then_some(transfer))
        });
        let ended = ended.await?;
        ensure!(ended["status"].as_str() == Some("completed"), "a transfer ended as {ended}");
        Ok(start.elapsed().as_secs_f64())
    }

    fn compare(&self, files: u64) -> anyhow::Result<()> {
        let names = (0..files).map(tree_name).map(|name| format!("tree/{name}"));
        for name in names.chain(["large".to_owned()]) {
            let arrived = self.destination.folder.join("arrived").join(&name);
            if sha256(&self.source.folder.join(&name))? != sha256(&arrived)? {
                bail!("{name} is not what was sent");
            }
        }
        println!("  SHA-256 of all of them is the same at both ends");
        Ok(())
    }
}

fn write_random(path: &Path, mib: u64) -> io::Result<()> {
    let (mut random, mut file) = (File::open("/dev/urandom")?.take(mib * BLOCK as u64), File::create(path)?);
    io::copy(&mut random, &mut file)?;
    file.flush()
}

fn write_tree(folder: &Path, files: u64) -> io::Result<()> {
    for number in 0..files {
        let path = folder.join(tree_name(number));
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, format!("file {number}\n").repeat(100))?;
    }
    Ok(())
}

fn tree_name(number: u64) -> String {
    format!("{}/{number}.txt", number % 20)
}

fn sha256(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut hasher, mut block) = (File::open(path)?, Sha256::new(), vec![0; BLOCK]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hasher.finalize().to_vec()),
            read => hasher.update(&block[..read]),
        }
    }
}
