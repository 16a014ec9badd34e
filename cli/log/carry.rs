use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use signalbox_config::Config;
use signalbox_database::Class;
use signalbox_log_archive::{Carried, export, import};
use sqlx::PgPool;
use tokio::fs::{File, OpenOptions};

use crate::{embedded::Servers, progress, setup};

/// Destination of the archive.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A new file; `-` for standard output.
    file: PathBuf,
    /// Print the number of written rows as JSON, on standard error.
    #[arg(long)]
    json: bool,
}

/// Source of the archive.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// An archive; `-` for standard input.
    file: PathBuf,
    /// Print the number of read rows as JSON, on standard error.
    #[arg(long)]
    json: bool,
}

/// Writes an archive, readable by this user alone.
pub(super) async fn export_from(pool: &PgPool, args: &ExportArgs) -> anyhow::Result<()> {
    let is_standard = args.file == Path::new("-");
    let path = if is_standard { Path::new("/dev/stdout") } else { &args.file };
    let mut how = OpenOptions::new();
    let file = how.write(true).create_new(!is_standard).mode(0o600).open(path).await;
    let file = file.with_context(|| format!("{} cannot be made", path.display()))?;
    let bar = progress::bar("", "rows");
    let moved = |done, all| progress::show(&bar, done, all);
    let carried = export(pool, file.try_clone().await?, moved).await?;
    if !is_standard {
        file.sync_all().await.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    bar.finish_and_clear();
    print("Exported", carried, args.json)
}

/// Reads an archive into the configured database, or into a private one that is started for it.
pub(super) async fn import_into(config: &mut Config, args: &ImportArgs) -> anyhow::Result<()> {
    if setup::database_is_known(config) {
        return import_from(config, args).await;
    }
    let servers = Servers::start(config).await?;
    let imported = import_from(config, args).await;
    servers.stop().await;
    imported
}

async fn import_from(config: &Config, args: &ImportArgs) -> anyhow::Result<()> {
    let pool = setup::database_for(config, Class::Maintenance).await?;
    signalbox_database::migrate(&pool).await?;
    let path = if args.file == Path::new("-") { Path::new("/dev/stdin") } else { &args.file };
    let file = File::open(path).await.with_context(|| format!("{} cannot be read", path.display()))?;
    let bar = progress::bar("", "rows");
    let moved = |done, all| progress::show(&bar, done, all);
    let carried = import(&pool, file, moved).await?;
    bar.finish_and_clear();
    pool.close().await;
    print("Imported", carried, args.json)
}

fn print(what: &str, carried: Carried, json: bool) -> anyhow::Result<()> {
    if json {
        eprintln!("{}", serde_json::to_string(&carried)?);
    } else {
        let Carried { events, datapoint_rows, .. } = carried;
        eprintln!("{what} {events} events and {datapoint_rows} rows of datapoints.");
    }
    Ok(())
}
