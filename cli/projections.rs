use anyhow::bail;
use clap::Subcommand;
use signalbox_config::Config;
use signalbox_projections::{
    Projection, RebuildReport,
    automation::AutomationProjection,
    checkpoint,
    extraction::ExtractionProjection,
    fleet::FleetProjection,
    identity::IdentityProjection,
    monitoring::{
        MonitoringProjection,
        series::{SeriesReport, rebuild_series},
    },
    rebuild,
    transfer::TransferProjection,
};
use sqlx::PgPool;

use crate::setup;

/// What can be done with read models.
#[derive(Debug, Subcommand)]
pub(crate) enum ProjectionsCommand {
    /// Show how far each read model is.
    Status,
    /// Build read models anew beside the live ones, compare, and swap.
    Rebuild {
        /// Which one: automation, datapoints, extraction, fleet, identity, monitoring or transfer; all, if absent.
        name: Option<String>,
    },
}

/// Every read model.
const NAMES: [&str; 6] = [
    AutomationProjection::NAME,
    ExtractionProjection::NAME,
    FleetProjection::NAME,
    IdentityProjection::NAME,
    MonitoringProjection::NAME,
    TransferProjection::NAME,
];

/// The read model of datapoints, which has a log of its own.
const DATAPOINTS: &str = "datapoints";

/// Runs a command on read models.
pub(crate) async fn run(config: Config, command: ProjectionsCommand) -> anyhow::Result<()> {
    let pool = setup::database(&config).await?;
    match command {
        ProjectionsCommand::Status => status(&pool).await,
        ProjectionsCommand::Rebuild { name } => rebuild_named(&pool, name.as_deref()).await,
    }
}

async fn status(pool: &PgPool) -> anyhow::Result<()> {
    let head: i64 =
        sqlx::query_scalar("SELECT position FROM log_head WHERE log = 'events'").fetch_one(pool).await?;
    println!("{:12} {:>12}", "log", head);
    for name in NAMES {
        let position = checkpoint(pool, name).await?;
        println!("{name:12} {position:>12}  {} behind", head - position);
    }
    Ok(())
}

async fn rebuild_named(pool: &PgPool, name: Option<&str>) -> anyhow::Result<()> {
    if let Some(unknown) = name.filter(|name| *name != DATAPOINTS && !NAMES.contains(name)) {
        bail!("there is no read model {unknown}: choose among {DATAPOINTS}, {}", NAMES.join(", "));
    }
    if name.is_none_or(|name| name == AutomationProjection::NAME) {
        report(AutomationProjection::NAME, &rebuild::<AutomationProjection>(pool).await?);
    }
    if name.is_none_or(|name| name == ExtractionProjection::NAME) {
        report(ExtractionProjection::NAME, &rebuild::<ExtractionProjection>(pool).await?);
    }
    if name.is_none_or(|name| name == FleetProjection::NAME) {
        report(FleetProjection::NAME, &rebuild::<FleetProjection>(pool).await?);
    }
    if name.is_none_or(|name| name == IdentityProjection::NAME) {
        report(IdentityProjection::NAME, &rebuild::<IdentityProjection>(pool).await?);
    }
    if name.is_none_or(|name| name == MonitoringProjection::NAME) {
        report(MonitoringProjection::NAME, &rebuild::<MonitoringProjection>(pool).await?);
    }
    if name.is_none_or(|name| name == DATAPOINTS) {
        let SeriesReport { points, differences } = rebuild_series(pool).await?;
        println!("{DATAPOINTS}: {points} datapoints; {differences} chunks differed from the live ones");
    }
    if name.is_none_or(|name| name == TransferProjection::NAME) {
        report(TransferProjection::NAME, &rebuild::<TransferProjection>(pool).await?);
    }
    Ok(())
}

fn report(name: &str, report: &RebuildReport) {
    let RebuildReport { events, rows, differences } = report;
    println!("{name}: {rows} rows from {events} events; {differences} rows differed from the live ones");
}
