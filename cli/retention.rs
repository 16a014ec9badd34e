use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context as _, bail, ensure};
use chrono::TimeDelta;
use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{Class, clear_fault, newest_recorded, sweep_time};
use signalbox_domain::monitoring::{LogEntry, LogEntryCommand};
use signalbox_projections::monitoring::series::{days_before, drop_old_days};
use signalbox_workers::{oldest_kept, retention_entry};

use crate::{setup, user::metadata};

/// Commands for the retention of datapoints.
#[derive(Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// Drop all datapoints at once that are older than monitoring.retention_days, after showing them and asking.
    ///
    /// Without this command they go by two days an hour.
    Apply {
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        /// JSON for programs; nothing is dropped without --yes.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on retention.
pub(crate) async fn run(config: Config, command: RetentionCommand) -> anyhow::Result<()> {
    let RetentionCommand::Apply { yes, json } = command;
    apply(&config, yes, json).await
}

async fn apply(config: &Config, yes: bool, json: bool) -> anyhow::Result<()> {
    let days = config.monitoring.retention_days;
    ensure!(days > 0, "monitoring.retention_days is 0, so all datapoints are kept: set it, then try again");
    let pool = setup::database_for(config, Class::Maintenance).await?;
    let clock = Clock::system();
    let Some(now) = sweep_time(&pool, &clock).await? else {
        bail!("this machine's clock and PostgreSQL's differ by more than an hour: set the wrong one right");
    };
    let now = newest_recorded(&pool).await?.map_or(now, |newest| newest.min(now));
    let due = days_before(&pool, oldest_kept(now.date_naive(), days)).await?;
    let points: i64 = due.iter().map(|day| day.points).sum();
    let (Some(first), Some(last)) = (due.first(), due.last()) else {
        if json {
            println!("{}", json!({"days": 0, "datapoints": 0, "dropped": false}));
        } else {
            println!("No datapoints are older than {days} days.");
        }
        return Ok(());
    };
    if !json {
        due.iter().filter(|day| day.points > 0).for_each(|day| println!("{}  {:>14}", day.day, day.points));
        println!(
            "{points} datapoints that came in from {} to {} would be dropped for good.",
            first.day, last.day
        );
    }
    let is_meant = yes || (!json && confirmed()?);
    if is_meant {
        let command = LogEntryCommand::Write(retention_entry(&due, days));
        setup::bus(config).await?.send::<LogEntry>(clock.new_id(), None, &metadata(&clock), &command).await?;
        drop_old_days(&pool, last.day + TimeDelta::days(1)).await.context(
            "not all of these days could be dropped; what is gone stays gone. If somebody reads them for long (a backup, \
             an export), wait until that has ended, then run this again",
        )?;
        clear_fault(&pool, "retention").await?;
    }
    if json {
        println!(
            "{}",
            json!({"days": due.len(), "datapoints": points, "from": first.day, "to": last.day, "dropped": is_meant})
        );
    } else {
        println!("{}", if is_meant { "They were dropped." } else { "Nothing was dropped." });
    }
    Ok(())
}

fn confirmed() -> anyhow::Result<bool> {
    ensure!(
        io::stdin().is_terminal(),
        "the question cannot be asked here: add --yes to drop them without it"
    );
    print!("Type `drop` to drop them: ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("the answer cannot be read")?;
    Ok(answer.trim() == "drop")
}
