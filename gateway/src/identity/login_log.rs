//! Logins and failed logins, as entries of the log that people read.
//!
//! A failed login costs an event, so its entries are bounded: the first of an account and the first from an address are
//! written at once, further ones within a minute become one entry with their number. The numbers are kept in memory; a
//! gateway that crashes loses those of the last minute, one that stops writes them first.

use std::time::Duration;

use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::{Actor, Metadata, UserId},
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_projections::identity::UserRow;

use crate::{
    client_address::ClientAddress,
    context::RequestContext,
    services::{
        commands::Commands,
        failed_logins::{Account, FailedLogins, WINDOW},
    },
};

const SOURCE: &str = "auth";
/// Writes that `user` has logged in.
pub(super) async fn note_success(
    commands: &Commands,
    clock: &Clock,
    context: &RequestContext,
    address: &ClientAddress,
    user: &UserRow,
) {
    let content = format!("{} logged in from {}.", user.username, address.0);
    let metadata = context.metadata(Actor::User(user.id), "log login");
    write(commands, clock, &metadata, LogType::Info, content, Some(user.id)).await;
}

/// Writes or counts a failed login. The given name is left out unless it is a user's: people type passwords into the wrong
/// field.
pub(super) async fn note_failure(
    commands: &Commands,
    clock: &Clock,
    failed_logins: &FailedLogins,
    context: &RequestContext,
    address: &ClientAddress,
    user: Option<&UserRow>,
) {
    let account =
        user.map_or(Account::Unknown, |user| Account::Known { id: user.id.0, name: user.username.clone() });
    note(commands, clock, failed_logins, context, address, &account, "").await;
}

/// Writes or counts a failed single sign-on, with its reason.
pub(super) async fn note_sso_failure(
    commands: &Commands,
    clock: &Clock,
    failed_logins: &FailedLogins,
    context: &RequestContext,
    address: &ClientAddress,
    reason: &str,
) {
    note(commands, clock, failed_logins, context, address, &Account::SingleSignOn, &format!(" {reason}"))
        .await;
}

async fn note(
    commands: &Commands,
    clock: &Clock,
    failed_logins: &FailedLogins,
    context: &RequestContext,
    address: &ClientAddress,
    account: &Account,
    reason: &str,
) {
    if failed_logins.note(account, address.network(), clock.monotonic()) {
        let content = format!("A {} from {} failed.{reason}", account.describe(), address.0);
        let metadata = context.metadata(Actor::system("login"), "log login");
        write(commands, clock, &metadata, LogType::Warning, content, account.user()).await;
    }
}

/// Writes the numbers of further failures whose minute is over.
pub(crate) async fn write_counted(
    commands: &Commands,
    clock: &Clock,
    failed_logins: &FailedLogins,
) -> Result<(), sqlx::Error> {
    if let Some(latest) = clock.monotonic().checked_sub(WINDOW) {
        write_until(commands, clock, failed_logins, latest).await;
    }
    Ok(())
}

/// Writes all numbers that have no entry yet, because the gateway stops.
pub(crate) async fn write_rest(commands: &Commands, clock: &Clock, failed_logins: &FailedLogins) {
    write_until(commands, clock, failed_logins, clock.monotonic()).await;
}

async fn write_until(commands: &Commands, clock: &Clock, failed_logins: &FailedLogins, latest: Duration) {
    for (pair, count) in failed_logins.take(latest) {
        let times = if count == 1 { "time" } else { "times" };
        let content = match &pair {
            Some((account, network)) => {
                format!(
                    "A {} from {network} failed {count} more {times} within a minute.",
                    account.describe()
                )
            }
            None => format!("Logins from other addresses failed {count} more {times} within a minute."),
        };
        let metadata = Metadata {
            command_id: clock.new_id(),
            actor: Actor::system("login"),
            causation: None,
            correlation: clock.new_id().simple().to_string(),
            traceparent: None,
            restored_version: None,
        };
        let user = pair.and_then(|(account, _)| account.user());
        write(commands, clock, &metadata, LogType::Warning, content, user).await;
    }
}

async fn write(
    commands: &Commands,
    clock: &Clock,
    metadata: &Metadata,
    kind: LogType,
    content: String,
    user: Option<UserId>,
) {
    let command = LogEntryCommand::Write(NewLogEntry { kind, content, source: SOURCE.to_owned(), user });
    let written = commands.write::<LogEntry>(clock.new_id(), None, metadata, &command).await;
    // A login does not depend on its entry.
    if let Err(error) = written {
        tracing::error!(%error, "a login has no entry in the log");
    }
}
