use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context as _, bail, ensure};
use chrono::{NaiveDate, TimeDelta};
use clap::Subcommand;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{Class, clear_fault, newest_recorded, sweep_time};
use signalbox_domain::monitoring::{LogEntry, LogEntryCommand};
use signalbox_projections::monitoring::series::{
    DroppedDays, Overdue, continue_removal, drop_old_days, drop_old_rollups, old_rollup_days, oldest_kept,
    overdue, record_removals,
};
use signalbox_workers::{removal_entry, retention_entry, rollup_entry};
use sqlx::PgPool;

use crate::{setup, user::metadata};

/// Commands for the retention of datapoints.
#[derive(Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// Drop all datapoints and roll-ups at once that are older than they are kept, after showing them and asking.
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
    let pool = setup::database_for(config, Class::Maintenance).await?;
    let clock = Clock::system();
    let Some(now) = sweep_time(&pool, &clock).await? else {
        bail!("this machine's clock and PostgreSQL's differ by more than an hour: set the wrong one right");
    };
    let now = newest_recorded(&pool).await?.map_or(now, |newest| newest.min(now));
    let today = now.date_naive();
    let due = overdue(&pool, today, days).await?;
    let rollups = match config.monitoring.rollup_retention_days {
        0 => Vec::new(),
        days => old_rollup_days(&pool, oldest_kept(today, days), usize::MAX).await?,
    };
    let points: i64 = due.days.iter().map(|day| day.points).sum();
    if due.is_empty() && rollups.is_empty() {
        if json {
            println!("{}", json!({"days": 0, "datapoints": 0, "dropped": false}));
        } else {
            println!("No datapoints are older than they are kept.");
        }
        return Ok(());
    }
    if !json {
        show(&due, &rollups, points);
    }
    let is_meant = yes || (!json && confirmed()?);
    let dropped = match is_meant {
        true => Some(drop_all(config, &pool, (&clock, today), &due, &rollups).await?),
        false => None,
    };
    if json {
        println!("{}", summary(&due, &rollups, dropped.as_ref()));
    } else {
        println!("{}", outcome(&due, &rollups, dropped.as_ref()));
    }
    Ok(())
}

/// The numbers of the dropped days, or of those that would be.
fn summary(due: &Overdue, rollups: &[NaiveDate], dropped: Option<&DroppedDays>) -> Value {
    let days = dropped.map_or(&due.days, |dropped| &dropped.days);
    let points: i64 = days.iter().map(|day| day.points).sum();
    json!({"days": days.len(), "datapoints": points, "from": days.first().map(|day| day.day), "to": days.last().map(|day| day.day),
        "stayed": dropped.map_or(0, |dropped| dropped.stayed.len()), "removals": due.removals.len(), "rollup_days": rollups.len(),
        "dropped": dropped.is_some_and(|dropped| is_anything_dropped(due, rollups, dropped))})
}

fn is_anything_dropped(due: &Overdue, rollups: &[NaiveDate], dropped: &DroppedDays) -> bool {
    !(dropped.days.is_empty() && due.removals.is_empty() && rollups.is_empty())
}

/// The same, in words.
fn outcome(due: &Overdue, rollups: &[NaiveDate], dropped: Option<&DroppedDays>) -> String {
    let Some(dropped) = dropped else { return "Nothing was dropped.".to_owned() };
    let (Some(first), Some(last)) = (dropped.stayed.first(), dropped.stayed.last()) else {
        return "They were dropped.".to_owned();
    };
    let (count, first, last) = (dropped.stayed.len(), first.day, last.day);
    let rest = if is_anything_dropped(due, rollups, dropped) {
        "The rest was dropped."
    } else {
        "Nothing was dropped."
    };
    format!(
        "{count} days from {first} to {last} stay, because an event's own retention_days, which was raised meanwhile, keeps datapoints of \
         {first}. {rest} Run this again for the datapoints of other events."
    )
}

fn show(due: &Overdue, rollups: &[NaiveDate], points: i64) {
    if let (Some(first), Some(last)) = (due.days.first(), due.days.last()) {
        due.days
            .iter()
            .filter(|day| day.points > 0)
            .for_each(|day| println!("{}  {:>14}", day.day, day.points));
        println!(
            "{points} datapoints that came in from {} to {} would be dropped for good.",
            first.day, last.day
        );
    }
    for removal in &due.removals {
        println!(
            "{}  the datapoints of {} events would be removed for good",
            removal.day,
            removal.channels.len()
        );
    }
    if let (Some(first), Some(last)) = (rollups.first(), rollups.last()) {
        println!("The roll-ups of {} days from {first} to {last} would be dropped for good.", rollups.len());
    }
}

async fn drop_all(
    config: &Config,
    pool: &PgPool,
    (clock, today): (&Clock, NaiveDate),
    due: &Overdue,
    rollups: &[NaiveDate],
) -> anyhow::Result<DroppedDays> {
    let monitoring = &config.monitoring;
    let mut entries = Vec::new();
    if !due.days.is_empty() {
        entries.push(retention_entry(&due.days, monitoring.retention_days));
    }
    if !due.removals.is_empty() {
        entries.push(removal_entry(&due.removals));
    }
    if !rollups.is_empty() {
        entries.push(rollup_entry(rollups, monitoring.rollup_retention_days));
    }
    let bus = setup::bus(config).await?;
    for entry in entries {
        bus.send::<LogEntry>(clock.new_id(), None, &metadata(clock), &LogEntryCommand::Write(entry)).await?;
    }
    let dropped = match due.days.last() {
        Some(last) => drop_old_days(pool, last.day + TimeDelta::days(1), today).await.context(
            "not all of these days could be dropped; what is gone stays gone. If somebody reads them for long (a backup, \
             an export), wait until that has ended, then run this again",
        )?,
        None => DroppedDays::default(),
    };
    record_removals(pool, &due.removals, false).await?;
    while continue_removal(pool, today, monitoring.retention_days).await? {}
    if let Some(last) = rollups.last() {
        drop_old_rollups(pool, *last).await?;
    }
    // Otherwise the worker finds out what is due of the days that stayed.
    if dropped.stayed.is_empty() {
        clear_fault(pool, "retention").await?;
    }
    Ok(dropped)
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
