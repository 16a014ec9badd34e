//! `signalbox doctor`: checks the service's dependencies, and states the remedy of each fault. It changes nothing,
//! except for a file in the storage folder and an object in the bucket that it writes and removes.

use std::{
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use signalbox_blob_store::{BlobStore, CheckError};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{
    clock_difference, faults, least_space, server_time, server_version, settings_that_lose_commits,
};
use signalbox_documents::{Documents, Protection};
use signalbox_messaging::Bus;
use signalbox_projections::{OldestSnapshot, oldest_snapshot, standing};
use sqlx::PgPool;
use tokio::{process::Command, sync::oneshot, time::timeout};

use crate::{
    keys::{DERIVED_MEND, describe_derived},
    setup,
};

mod replica;

/// No check lasts longer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// Clocks that differ by more make claims lapse too early or too late; they last 15 s.
const CLOCK_SECONDS: f64 = 2.0;
/// Lag of a working read model, in events.
const LAG: i64 = 1000;
/// Age of a snapshot that slows appends down.
const SNAPSHOT_SECONDS: f64 = 900.0;
const GIB: u64 = 1 << 30;
/// Files and sockets that a busy gateway has open.
const OPEN_FILES: u64 = 4096;

/// How the report is written.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// The service works, but not all of it or not well.
    Warning,
    /// The service does not work, or may lose confirmed writes.
    Failure,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), mend: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, found: found.into(), mend: Some(mend.into()) }
    }

    fn failure(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failure, found: found.into(), mend: Some(mend.into()) }
    }

    /// For a check that could not run: the error states the remedy.
    fn unasked(check: &'static str, error: &dyn Display) -> Self {
        Self { check, verdict: Verdict::Failure, found: format!("{error:#}"), mend: None }
    }
}

impl From<Finding> for Vec<Finding> {
    fn from(finding: Finding) -> Self {
        vec![finding]
    }
}

/// The findings of `check`, which has [`CHECK_TIMEOUT`].
async fn limited<F: Into<Vec<Finding>>, E: Display>(
    name: &'static str,
    check: impl Future<Output = Result<F, E>>,
) -> Vec<Finding> {
    match timeout(CHECK_TIMEOUT, check).await {
        Ok(Ok(findings)) => findings.into(),
        Ok(Err(error)) => vec![Finding::unasked(name, &error)],
        Err(_) => vec![slow(name)],
    }
}

/// Looks at everything; 1 when something fails.
pub(crate) async fn run(config: &Config, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    match timeout(CHECK_TIMEOUT, setup::database(config)).await {
        Ok(Ok(pool)) => {
            findings.extend(database(&pool).await);
            if !config.database.replica_url.is_empty() {
                findings.extend(replica::look(config, &pool).await);
            }
        }
        Ok(Err(error)) => findings.push(Finding::unasked("database", &error)),
        Err(_) => findings.push(slow("database")),
    }
    match timeout(CHECK_TIMEOUT, setup::bus(config)).await {
        Ok(Ok(bus)) => {
            findings.push(jetstream(&bus).await);
            findings.extend(copies(config, &bus).await);
        }
        Ok(Err(error)) => findings.push(Finding::unasked("bus", &error)),
        Err(_) => findings.push(slow("bus")),
    }
    findings.extend(limited("storage", storage(config)).await);
    if !config.storage.url.is_empty() {
        findings.push(bucket(config).await);
    }
    findings.push(open_files());
    findings.extend(limited("documents", documents(config)).await);
    findings.push(python(config).await);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print(&findings);
    }
    let fails = findings.iter().any(|finding| finding.verdict == Verdict::Failure);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn slow(check: &'static str) -> Finding {
    let found = format!("it did not answer within {} s", CHECK_TIMEOUT.as_secs());
    Finding::failure(check, found, "see whether it is overloaded, or a firewall drops what is sent to it")
}

fn print(findings: &[Finding]) {
    let is_terminal = std::io::stdout().is_terminal();
    for Finding { check, verdict, found, mend } in findings {
        let word = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "FAILURE",
        };
        let (red, plain) =
            if *verdict == Verdict::Failure && is_terminal { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        println!("{red}{word:8} {check:12} {found}{plain}");
        if let Some(mend) = mend {
            println!("{:21} → {mend}", "");
        }
    }
}

async fn database(pool: &PgPool) -> Vec<Finding> {
    let mut findings = limited("database", version(pool)).await;
    if findings.iter().any(|finding| finding.verdict == Verdict::Failure) {
        return findings;
    }
    findings.extend(limited("durability", durability(pool)).await);
    findings.extend(limited("clock", clock(pool)).await);
    let schema = limited("schema", schema(pool)).await;
    let is_current = schema.iter().all(|finding| finding.verdict == Verdict::Ok);
    findings.extend(schema);
    if is_current {
        findings.extend(limited("read models", read_models(pool)).await);
        findings.extend(limited("tokens", tokens(pool)).await);
        findings.extend(limited("faults", reported(pool)).await);
        findings.extend(limited("snapshots", snapshots(pool)).await);
    }
    findings
}

async fn schema(pool: &PgPool) -> Result<Finding, signalbox_database::DatabaseError> {
    const CHECK: &str = "schema";
    Ok(match signalbox_database::pending(pool).await? {
        0 => Finding::ok(CHECK, "up to date"),
        pending => {
            let found = format!("{pending} migrations or functions have not been applied");
            Finding::failure(CHECK, found, "run `signalbox migrate`, or start the service, which does it")
        }
    })
}

async fn version(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    let version = server_version(pool).await?;
    Ok(Finding::ok("database", format!("PostgreSQL {version}")))
}

/// Without these settings, a power failure may lose confirmed writes.
async fn durability(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    let off = settings_that_lose_commits(pool).await?;
    if off.is_empty() {
        return Ok(Finding::ok("durability", "what is committed is on disk"));
    }
    let found = format!("{} off: what was confirmed may be lost with the power", are(&off));
    let mend = format!("set {} in postgresql.conf and restart PostgreSQL", off.join(" = on, ") + " = on");
    Ok(Finding::failure("durability", found, mend))
}

fn are(names: &[String]) -> String {
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

async fn clock(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    let apart = clock_difference(pool).await?.abs().as_seconds_f64();
    Ok(if apart > CLOCK_SECONDS {
        let found = format!("the clocks of this machine and of the database differ by {apart:.1} s");
        Finding::failure(
            "clock",
            found,
            "let both follow a time server, e.g. with systemd-timesyncd or chrony",
        )
    } else {
        Finding::ok("clock", "this machine and the database agree")
    })
}

async fn read_models(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    let standing = standing(pool, Clock::system().now()).await?;
    let behind = |(name, position): &(String, i64)| {
        let lag = standing.log - position;
        (lag > LAG).then(|| format!("{name} by {lag} events"))
    };
    let behind: Vec<_> = standing.projections.iter().filter_map(behind).collect();
    Ok(if behind.is_empty() {
        Finding::ok("read models", format!("follow the log, which has {} events", standing.log))
    } else {
        let found = format!("behind the log: {}", behind.join(", "));
        Finding::warning(
            "read models",
            found,
            "start a process with the role projections, and see what it logs",
        )
    })
}

/// Tokens of earlier versions can be computed from the database.
async fn tokens(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    let derived = signalbox_gateway::derived_tokens(pool, server_time(pool, &Clock::system()).await?).await?;
    Ok(if derived == signalbox_gateway::DerivedTokens::default() {
        Finding::ok("tokens", "are random")
    } else {
        Finding::warning("tokens", describe_derived(derived), DERIVED_MEND)
    })
}

/// Faults reported by processes; health and metrics show the same list.
async fn reported(pool: &PgPool) -> Result<Vec<Finding>, sqlx::Error> {
    const CHECK: &str = "faults";
    let faults = faults(pool).await?;
    if faults.is_empty() {
        return Ok(vec![Finding::ok(CHECK, "no part is reported not to work")]);
    }
    let findings = faults.into_iter().map(|fault| {
        let since = fault.since.format("%Y-%m-%d %H:%M:%S UTC");
        let found = format!("{} does not work since {since}: {}", fault.part, fault.reason);
        Finding { check: CHECK, verdict: Verdict::Failure, found, mend: None }
    });
    Ok(findings.collect())
}

/// A snapshot keeps replaced rows from being removed, and each append reads past them.
async fn snapshots(pool: &PgPool) -> Result<Finding, sqlx::Error> {
    const CHECK: &str = "snapshots";
    let Some(OldestSnapshot { seconds, holder }) = oldest_snapshot(pool).await? else {
        return Ok(Finding::ok(CHECK, "none is held in the database".to_owned()));
    };
    let found = format!("the oldest in the database is {seconds:.0} s old, held by {holder}");
    Ok(if seconds > SNAPSHOT_SECONDS {
        Finding::warning(
            CHECK,
            found,
            "end it: see pg_stat_activity, pg_prepared_xacts, pg_replication_slots and pg_stat_replication",
        )
    } else {
        Finding::ok(CHECK, found)
    })
}

async fn jetstream(bus: &Bus) -> Finding {
    match timeout(CHECK_TIMEOUT, bus.ask_jetstream()).await {
        Ok(Ok(())) => Finding::ok("bus", format!("nats-server {} with JetStream", bus.server_version())),
        Ok(Err(error)) => Finding::failure("bus", error.to_string(), "start nats-server with --jetstream"),
        Err(_) => slow("bus"),
    }
}

/// Whether each stream is kept by as many servers as it ought to be.
async fn copies(config: &Config, bus: &Bus) -> Option<Finding> {
    const CHECK: &str = "bus copies";
    let (configured, servers) = (config.nats.replicas, bus.servers());
    if configured > servers {
        let found = format!("nats.replicas is {configured}, but {servers} servers are known");
        let mend = "add servers to the cluster, or set SIGNALBOX_NATS__REPLICAS to as many as there are";
        return Some(Finding::failure(CHECK, found, mend));
    }
    if configured == 1 && servers == 1 {
        return None;
    }
    let standings = match timeout(CHECK_TIMEOUT, bus.stream_standings()).await {
        Ok(Ok(standings)) => standings,
        Ok(Err(error)) => return Some(Finding::unasked(CHECK, &error)),
        Err(_) => return Some(slow(CHECK)),
    };
    let short: Vec<_> = standings.iter().filter(|stream| stream.current < configured).collect();
    Some(if short.is_empty() {
        Finding::ok(CHECK, format!("{configured} servers of {servers} keep each stream"))
    } else {
        let short = short.iter().map(|stream| format!("{} by {}", stream.name, stream.current));
        let found = format!(
            "{configured} servers ought to keep each stream, but kept is {}",
            short.collect::<Vec<_>>().join(", ")
        );
        Finding::warning(
            CHECK,
            found,
            "see which server of the cluster is away or behind: nats server report jetstream",
        )
    })
}

/// In a thread that may be left behind: calls to a file system of a dead server do not return.
async fn storage(config: &Config) -> Result<Vec<Finding>, oneshot::error::RecvError> {
    let (folder, (sender, findings)) = (config.storage.folder.clone(), oneshot::channel());
    std::thread::spawn(move || sender.send(folder_findings(&folder)));
    findings.await
}

fn folder_findings(folder: &Path) -> Vec<Finding> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(b"doctor")?;
        file.as_file().sync_all()
    };
    let writable = match write() {
        Ok(()) => Finding::ok("storage", format!("{} can be written", folder.display())),
        Err(error) => {
            let found = format!("{} cannot be written: {error}", folder.display());
            if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                let mend = "make the folder and let the user that the service runs as own it, or set SIGNALBOX_STORAGE__FOLDER";
                return vec![Finding::failure("storage", found, mend)];
            }
            Finding::failure("storage", found, "free some space on its disk")
        }
    };
    let space = match least_space(folder) {
        Ok((of, free)) if free < GIB => {
            Finding::failure("disk", gib(free, &of), "free some: files cannot be received")
        }
        Ok((of, free)) if free < 10 * GIB => {
            Finding::warning("disk", gib(free, &of), "free some: two files of the largest size do not fit")
        }
        Ok((of, free)) => Finding::ok("disk", gib(free, &of)),
        Err(error) => Finding::unasked("disk", &error),
    };
    vec![writable, space]
}

async fn bucket(config: &Config) -> Finding {
    let name = "bucket";
    let store = match BlobStore::configured(&config.storage, "blobs") {
        Ok(store) => store,
        Err(error) => {
            let found = format!("{error}: {}", cause(&error));
            return Finding::failure(
                name,
                found,
                "correct the settings of [storage]; docs/storage.md explains them",
            );
        }
    };
    let (found, mend) = match timeout(CHECK_TIMEOUT, store.check()).await {
        Err(_) => return slow(name),
        Ok(Ok(())) => {
            let found = format!("{} can be written, read, listed and deleted from", config.storage.url);
            return Finding::ok(name, found);
        }
        // Servers answer in several lines.
        Ok(Err(error)) => (error.to_string().lines().collect::<Vec<_>>().join(" "), mend_bucket(&error)),
    };
    Finding::failure(name, format!("{}: {found}", config.storage.url), mend)
}

fn mend_bucket(error: &CheckError) -> &'static str {
    match error {
        CheckError::Refused { .. } => {
            "see that storage.endpoint answers, that the bucket exists, and that storage.access_key_id may read, write, list and \
             delete objects in it (docs/storage.md names the permissions)"
        }
        CheckError::Unconditional | CheckError::Altered => {
            "use a server that supports If-None-Match and If-Match in PutObject, such as Amazon S3, MinIO or SeaweedFS"
        }
    }
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

fn gib(bytes: u64, folder: &Path) -> String {
    format!("{:.1} GiB are free in {}", bytes as f64 / GIB as f64, folder.display())
}

fn open_files() -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(most) if most < OPEN_FILES => Finding::warning(
            "open files",
            format!("at most {most} for a process"),
            format!("raise it to {OPEN_FILES} or more: `ulimit -n`, or LimitNOFILE= in the systemd unit"),
        ),
        Some(most) => Finding::ok("open files", format!("at most {most} for a process")),
        None => Finding::ok("open files", "without limit"),
    }
}

async fn documents(config: &Config) -> io::Result<Vec<Finding>> {
    const CHECK: &str = "documents";
    let documents = match Documents::start(&config.extraction, std::env::current_exe()?).await {
        Ok(documents) => documents,
        Err(error) => {
            return Ok(vec![Finding::warning(CHECK, error.to_string(), "files and sensors go on without")]);
        }
    };
    let (offer, protection) = (documents.offer().await, documents.protection());
    let engines =
        format!("read by {}; pictures by {}", offer.engines.join(", "), offer.ocr_engines.join(", "));
    let missing =
        |note: &String| Finding { check: CHECK, verdict: Verdict::Warning, found: note.clone(), mend: None };
    let found = [Finding::ok(CHECK, engines), sandbox(config, protection)];
    Ok(found.into_iter().chain(offer.notes.iter().map(missing)).collect())
}

/// Whether the processes that parse untrusted input are confined.
fn sandbox(config: &Config, protection: Protection) -> Finding {
    const CHECK: &str = "sandbox";
    let Some(missing) = protection.missing() else {
        return Finding::ok(CHECK, "seccomp and Landlock confine parsers and plugins");
    };
    if config.sandbox.allow_unconfined {
        let found = format!("{missing}, and sandbox.allow_unconfined lets untrusted code run all the same");
        return Finding::failure(
            CHECK,
            found,
            "use a kernel that has both, and set sandbox.allow_unconfined = false",
        );
    }
    let refused = if protection.seccomp { "plugins" } else { "plugins and documents of anonymous callers" };
    let mend = "use a kernel with CONFIG_SECCOMP_FILTER and CONFIG_SECURITY_LANDLOCK (lsm=landlock,…); in a container, allow the \
        system calls seccomp and landlock_*";
    Finding::failure(CHECK, format!("{missing}: {refused} are refused"), mend)
}

/// Packages of plugins are looked at by a Python of 3.11 or newer.
async fn python(config: &Config) -> Finding {
    const CHECK: &str = "plugins";
    let python = &config.plugins.python;
    let asked = Command::new(python)
        .args([
            "-c",
            "import sys; print('%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))",
        ])
        .kill_on_drop(true)
        .output();
    let mend = "install Python 3.11 or newer, or set SIGNALBOX_PLUGINS__PYTHON to one; without, no packages can be uploaded";
    match timeout(CHECK_TIMEOUT, asked).await {
        Ok(Ok(output)) => {
            let found = format!("{python} is Python {}", String::from_utf8_lossy(&output.stdout).trim());
            if output.status.success() {
                Finding::ok(CHECK, found)
            } else {
                Finding::warning(CHECK, found, mend)
            }
        }
        Ok(Err(error)) => Finding::warning(CHECK, format!("{python} cannot be run: {error}"), mend),
        Err(_) => slow(CHECK),
    }
}
