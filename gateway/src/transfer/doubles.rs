//! Two processes with one agent token.
//!
//! They close each other's sessions again and again, and each transfer is moved by the first one to receive it. Signs
//! are: a socket that another connection has replaced still answers the closing handshake, such sockets are closed
//! without an answer time after time, or polls overlap time after time; a single agent program has given up its old
//! connection before it opens the next one. The agent shows a warning then, and an entry reports it once.

use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::Actor,
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
    transfer::{Agent, AgentCommand},
};
use signalbox_messaging::Bus;
use signalbox_projections::transfer::queries;

use super::peer::{self, Peer};
use crate::services::{live_agents::LiveAgents, replica::Database};

const SOURCE: &str = "agents";

/// Shows the warning beside the agent, and writes the entry unless it is shown already.
pub(super) async fn warn(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
) {
    if let Err(error) = try_warn(database, clock, bus, live_agents, peer).await {
        tracing::warn!(
            agent = peer.auth.number,
            error,
            "two processes use one agent token; the warning was not recorded"
        );
    }
}

async fn try_warn(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
) -> Result<(), String> {
    live_agents.note_double(peer.auth.agent);
    let warning = "Two processes use this agent's token and take each other's work: stop one of them, or create an \
                   agent with a token of its own for it.";
    let metadata = peer::metadata(clock, peer);
    let command = AgentCommand::Warn { warning: Some(warning.to_owned()) };
    let outcome = bus.send::<Agent>(peer.auth.agent.0, None, &metadata, &command).await;
    if outcome.map_err(|error| error.to_string())?.position.is_none() {
        return Ok(());
    }
    let row =
        queries::agent_by_id(&database.primary, peer.auth.agent).await.map_err(|error| error.to_string())?;
    let name: String = row.map(|row| row.name).unwrap_or_default().chars().take(200).collect();
    let content =
        format!("Two processes use the token of agent '{name}'. Stop one of them, or create another agent.");
    let entry = NewLogEntry { kind: LogType::Warning, content, source: SOURCE.to_owned(), user: None };
    let command = LogEntryCommand::Write(entry);
    // A command id of its own: the same one would count as a repetition.
    let metadata = peer::metadata(clock, peer);
    let written = bus.send::<LogEntry>(clock.new_id(), None, &metadata, &command).await;
    written.map(drop).map_err(|error| error.to_string())
}

/// Clears warnings of agents whose session has lasted for minutes.
pub(crate) async fn clear(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
) -> Result<(), sqlx::Error> {
    let steady = live_agents.steady();
    if steady.is_empty() {
        return Ok(());
    }
    for agent in queries::warned_agents(&database.primary, &steady).await? {
        let metadata = peer::metadata_of(clock, Actor::system("gateway"));
        let command = AgentCommand::Warn { warning: None };
        if let Err(error) = bus.send::<Agent>(agent.0, None, &metadata, &command).await {
            tracing::debug!(%error, "a warning stays for a while");
        }
    }
    Ok(())
}
