//! Logins and failed logins, as entries of the log that people read.

use signalbox_domain::{
    kernel::{Actor, UserId},
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_projections::identity::UserRow;

use crate::{client_address::ClientAddress, context::RequestContext, state::State};

const SOURCE: &str = "auth";

/// Writes that `user` has logged in.
pub(super) async fn note_success(
    state: &State,
    context: &RequestContext,
    address: &ClientAddress,
    user: &UserRow,
) {
    let content = format!("{} logged in from {}.", user.username, address.0);
    let actor = Actor::User(UserId(user.id));
    write(state, context, actor, LogType::Info, content, Some(user)).await;
}

/// Writes that somebody tried to log in. What was given as a name is left out unless it is one: people type passwords
/// into the wrong field.
pub(super) async fn note_failure(
    state: &State,
    context: &RequestContext,
    address: &ClientAddress,
    user: Option<&UserRow>,
) {
    let name = user.map_or("an unknown user", |user| &user.username);
    let content = format!("A login as {name} from {} failed.", address.0);
    write(state, context, Actor::system("login"), LogType::Warning, content, user).await;
}

/// Writes that somebody did not get in by single sign-on, and why.
pub(super) async fn note_sso_failure(
    state: &State,
    context: &RequestContext,
    address: &ClientAddress,
    reason: &str,
) {
    let content = format!("A single sign-on from {} failed. {reason}", address.0);
    write(state, context, Actor::system("login"), LogType::Warning, content, None).await;
}

async fn write(
    state: &State,
    context: &RequestContext,
    actor: Actor,
    kind: LogType,
    content: String,
    user: Option<&UserRow>,
) {
    let new =
        NewLogEntry { kind, content, source: SOURCE.to_owned(), user: user.map(|user| UserId(user.id)) };
    let metadata = context.metadata(actor, "log login");
    let command = LogEntryCommand::Write(new);
    let written = state.write::<LogEntry>(state.clock.new_id(), None, &metadata, &command).await;
    // Whoever has the right password gets in even if that cannot be written down.
    if let Err(error) = written {
        tracing::error!(%error, "a login has no entry in the log");
    }
}
