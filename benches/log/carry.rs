//! Export and import by the command line, in turns with `COPY` of the same rows; then the system of the import serves, and answers
//! like the one that was exported.

use std::{fs, time::Instant};

use anyhow::ensure;
use serde_json::Value;
use sqlx::PgPool;

use super::{
    alike, copy,
    history::{self, Until},
    verify,
};
use crate::{
    report, size,
    system::{Api, Role, Servers, Signalbox},
};

const PEER: f64 = 0.3;

/// Seconds of each round.
#[derive(Default)]
struct Rounds {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Rounds {
    fn print(&self, what: &str, events: f64) {
        let rate = |seconds: &[f64]| events / report::median(seconds.iter().copied());
        report::pair(&format!("{what}, COPY"), rate(&self.ours), rate(&self.theirs), "events/s");
        let ratios = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| theirs / ours);
        report::ratio(&format!("{what}, ratio"), report::median(ratios), PEER);
    }
}

/// Runs it on the system `ours`, which serves at `api` and has its database at `pool`.
pub async fn run(servers: &Servers, ours: &Signalbox, api: &Api, pool: &PgPool) -> anyhow::Result<()> {
    let rounds = size::of("BENCH_ROUNDS", 3)? as usize;
    let other = Servers::start().await?;
    let folder = servers.folder().join("carried");
    fs::create_dir_all(&folder)?;
    let archive = folder.join("archive.ndjson");
    let path = archive.to_string_lossy();
    let (mut exports, mut imports) = (Rounds::default(), Rounds::default());
    let mut carried = Value::Null;
    let mut imported = Signalbox::new(&other, Role::All)?;
    let mut database = None;
    for round in 0..rounds {
        let _ = fs::remove_file(&archive);
        let start = Instant::now();
        carried = said(ours, &["log", "export", &path, "--json"])?;
        exports.ours.push(start.elapsed().as_secs_f64());
        exports.theirs.push(copy::out(pool, &folder).await?);

        let plain = format!("copied_{round}");
        let copied = signalbox_database::connect_as(
            &other.create_database(&plain).await?,
            2,
            signalbox_database::Class::Maintenance,
        )
        .await?;
        signalbox_database::migrate(&copied).await?;
        imports.theirs.push(copy::into(pool, &copied, &folder).await?);
        copied.close().await;
        other.drop_database(&plain).await?;

        let (name, last) = (format!("imported_{round}"), round + 1 == rounds);
        let url = other.create_database(&name).await?;
        let fresh = signalbox_database::connect_as(&url, 4, signalbox_database::Class::Maintenance).await?;
        signalbox_database::migrate(&fresh).await?;
        let target = imported.clone().with("DATABASE_URL", &url);
        let start = Instant::now();
        let read = said(&target, &["log", "import", &path, "--json"])?;
        imports.ours.push(start.elapsed().as_secs_f64());
        ensure!(read == carried, "{read} was imported of {carried}");
        eprintln!(
            "{round}: exported and copied in {:.1?} and {:.1?} s, imported and copied in {:.1?} and {:.1?} s",
            exports.ours[round], exports.theirs[round], imports.ours[round], imports.theirs[round]
        );
        if last {
            (imported, database) = (target, Some(fresh));
        } else {
            fresh.close().await;
            other.drop_database(&name).await?;
        }
    }
    let events = carried["events"].as_f64().unwrap_or_default();
    let archived = fs::metadata(&archive)?.len() as f64 / f64::from(1 << 20);
    report::title(&format!("log: an archive of {carried}, {archived:.0} MiB"));
    exports.print("export", events);
    imports.print("import", events);
    fs::remove_dir_all(&folder)?;
    let Some(database) = database else { return Ok(()) };
    let (program, there) = imported.start_and_log_in().await?;
    history::settle(&database, Until::Folded).await?;
    history::settle(&database, Until::Quiet).await?;
    alike::compare(api, &there, size::of("BENCH_SAMPLE", 1000)? as usize).await?;
    // The log is changed below, which must not happen under a running system.
    program.stop();
    verify::run(&imported, &database).await
}

/// The last output of the command, as JSON on standard error.
fn said(program: &Signalbox, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = program.run(arguments)?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`signalbox {}`: {text}", arguments.join(" "));
    // Its log is there too.
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}
