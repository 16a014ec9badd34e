use std::process::ExitCode;

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use signalbox_config::Config;
use signalbox_database::Class;
use signalbox_domain::catalog::Context;
use signalbox_event_store::head_position;
use signalbox_projections::{
    Projection, ProjectionVisitor, RebuildReport, checkpoint, compare_watched, for_projection,
    monitoring::series::{SeriesReport, compare_series_watched, rebuild_series_watched},
    rebuild_watched,
};
use sqlx::PgPool;

use crate::{
    poison::{self, PoisonCommand},
    progress, setup,
};

/// Exit status when a read model differs from its log.
const DIFFERENT: u8 = 3;

/// Commands for read models.
#[derive(Debug, Subcommand)]
pub(crate) enum ProjectionsCommand {
    /// Show how far each read model is.
    Status {
        /// One line of JSON for each.
        #[arg(long)]
        json: bool,
    },
    /// Rebuild read models beside the live ones, compare, and swap.
    Rebuild(Which),
    /// Rebuild read models beside the live ones and compare; the live ones stay.
    ///
    /// The exit status is 0 when all are equal, 3 when one is not, and 1 when the comparison failed.
    Compare(Which),
    /// Streams that read models have set aside.
    #[command(subcommand)]
    Poison(PoisonCommand),
}

/// Which read models are meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Which one; all, if absent.
    #[arg(value_parser = PossibleValuesParser::new(Context::WORDS.iter().copied().chain([DATAPOINTS])))]
    name: Option<String>,
    /// One line of JSON for each.
    #[arg(long)]
    json: bool,
}

/// Whether the rebuilt tables replace the live ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Rebuild,
    Compare,
}

/// Result of a command.
struct Outcome {
    json: bool,
    differences: i64,
}

/// The read model of datapoints, which has a log of its own.
const DATAPOINTS: &str = "datapoints";

/// Runs a command on read models.
pub(crate) async fn run(config: Config, command: ProjectionsCommand) -> anyhow::Result<ExitCode> {
    let pool = setup::database_for(&config, Class::Maintenance).await?;
    match command {
        ProjectionsCommand::Status { json } => status(&pool, json).await,
        ProjectionsCommand::Rebuild(which) => {
            build(&pool, which, Aim::Rebuild).await.map(|_| ExitCode::SUCCESS)
        }
        ProjectionsCommand::Poison(command) => poison::run(&pool, command).await,
        ProjectionsCommand::Compare(which) => {
            build(&pool, which, Aim::Compare).await.map(|differences| match differences {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::from(DIFFERENT),
            })
        }
    }
}

async fn status(pool: &PgPool, json: bool) -> anyhow::Result<ExitCode> {
    let head = head_position(pool).await?;
    if !json {
        println!("{:12} {head:>12}", "log");
    }
    for name in Context::WORDS {
        let position = checkpoint(pool, name).await?;
        let behind = head - position;
        if json {
            println!("{}", json!({"projection": name, "position": position, "head": head, "behind": behind}));
        } else {
            println!("{name:12} {position:>12}  {behind} behind");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Rebuilds the named read models; returns how many rows differed.
async fn build(pool: &PgPool, Which { name, json }: Which, aim: Aim) -> anyhow::Result<i64> {
    let is_meant = |known: &str| name.as_deref().is_none_or(|name| name == known);
    let mut outcome = Outcome { json, differences: 0 };
    for context in Context::ALL.iter().filter(|context| is_meant(context.word())) {
        for_projection(*context, Build { outcome: &mut outcome, pool, aim }).await?;
    }
    if is_meant(DATAPOINTS) {
        let bar = progress::bar(DATAPOINTS, "datapoints");
        let moved = |done: i64, all: i64| progress::show(&bar, done as u64, all as u64);
        let report = match aim {
            Aim::Rebuild => rebuild_series_watched(pool, &moved).await,
            Aim::Compare => compare_series_watched(pool, &moved).await,
        };
        bar.finish_and_clear();
        let SeriesReport { points, differences } = report?;
        let text = format!("{points} datapoints; {differences} chunks differed from the live ones");
        let facts = json!({"projection": DATAPOINTS, "points": points, "differences": differences});
        outcome.print(DATAPOINTS, differences, &text, &facts);
    }
    Ok(outcome.differences)
}

/// A read model that is about to be rebuilt.
struct Build<'a> {
    outcome: &'a mut Outcome,
    pool: &'a PgPool,
    aim: Aim,
}

impl<'a> ProjectionVisitor for Build<'a> {
    type Output = LocalBoxFuture<'a, anyhow::Result<()>>;

    fn visit<P: Projection>(self) -> Self::Output {
        Box::pin(self.outcome.build::<P>(self.pool, self.aim))
    }
}

impl Outcome {
    async fn build<P: Projection>(&mut self, pool: &PgPool, aim: Aim) -> anyhow::Result<()> {
        let bar = progress::bar(P::NAME, "events");
        let moved = |done: i64, all: i64| progress::show(&bar, done as u64, all as u64);
        let report = match aim {
            Aim::Rebuild => rebuild_watched::<P>(pool, &moved).await,
            Aim::Compare => compare_watched::<P>(pool, &moved).await,
        };
        bar.finish_and_clear();
        let RebuildReport { events, rows, differences, set_aside, applied_again } = report?;
        let mut text =
            format!("{rows} rows from {events} events; {differences} rows differed from the live ones");
        if !set_aside.is_empty() || applied_again > 0 {
            let waiting = set_aside.len();
            text += &format!("; {waiting} streams are set aside, {applied_again} that were can be applied");
        }
        let facts = json!({
            "projection": P::NAME, "events": events, "rows": rows, "differences": differences,
            "set_aside": set_aside.iter().map(|poison| poison.key.position).collect::<Vec<_>>(),
            "applied_again": applied_again,
        });
        self.print(P::NAME, differences, &text, &facts);
        Ok(())
    }

    fn print(&mut self, name: &str, differences: i64, text: &str, facts: &Value) {
        self.differences += differences;
        if self.json {
            println!("{facts}");
        } else {
            println!("{name}: {text}");
        }
    }
}
