//! Messages of agents, over either transport.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use serde::Deserialize;
use serde_json::Value;
use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::{ErrorKind, Sha256Hex, TransferId, clean_text},
    transfer::{Agent, AgentCommand, AgentSystem, Arrival, Leg, Phase, Transfer, TransferCommand},
};
use signalbox_messaging::{Bus, MailMessage, Mailbox, Wakeup};
use signalbox_projections::transfer::{TransferRow, queries};

use super::{
    legs::contradiction,
    peer::{Peer, metadata},
    requests,
};
use crate::{
    extract::{as_number, id, number_or_text},
    problem::Problem,
    services::{commands::Commands, live_agents::LiveAgents, replica::Database},
    transfer::services::TransferServices,
};

/// Extensions that an agent may list at most.
const MAX_CAPABILITIES: usize = 32;
/// Messages that are taken from a mailbox at once; an agent has at most a few dozen at a time.
const ACKNOWLEDGED_AT_ONCE: usize = 1000;
/// Messages that one acknowledgement may name: each is a question to JetStream. The others come again.
const MAX_ACKNOWLEDGED: usize = 10_000;
/// The extension of agents that report digests.
const CHECKSUM: &str = "checksum";
/// Longest name of an extension, in characters.
const MAX_CAPABILITY: usize = 64;

/// `agent_info`, in the words of both agent families.
#[derive(Debug, Default, Deserialize)]
pub(super) struct AgentInfo {
    hostname: Option<String>,
    os_name: Option<String>,
    system: Option<String>,
    ip_address: Option<String>,
    version: Option<String>,
    capabilities: Option<Vec<String>>,
    active_transfers: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct Progress {
    #[serde(deserialize_with = "number_or_text")]
    transfer_id: i64,
    #[serde(default)]
    current_bytes: u64,
    total_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Complete {
    #[serde(deserialize_with = "number_or_text")]
    transfer_id: i64,
    sha256: Option<Sha256Hex>,
    files: Option<u64>,
    attempt: Option<u32>,
    transfer_type: Option<Leg>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    #[serde(deserialize_with = "number_or_text")]
    transfer_id: i64,
    #[serde(default)]
    error: String,
    attempt: Option<u32>,
    retryable: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Echo {
    request_id: String,
}

#[derive(Debug, Deserialize)]
struct Acknowledgement {
    message_ids: Vec<i64>,
}

/// `message` as an agent with these capabilities gets it: with the extensions that it lists, and without the others.
pub(super) fn for_agent(mut message: MailMessage, capabilities: &[String]) -> MailMessage {
    let Some(Value::Object(extensions)) =
        message.data.as_object_mut().and_then(|data| data.remove("extensions"))
    else {
        return message;
    };
    let known =
        |name: &String| if name == "any" { !capabilities.is_empty() } else { capabilities.contains(name) };
    let fields =
        extensions.into_iter().filter(|(name, _)| known(name)).filter_map(|(_, fields)| match fields {
            Value::Object(fields) => Some(fields),
            _ => None,
        });
    if let Some(request) = message.data["transfer"].as_object_mut() {
        request.extend(fields.flatten());
    }
    message
}

/// Carries out what the agent says. Unknown and unreadable messages are ignored, as the protocol asks for.
pub(super) async fn handle(
    services: &TransferServices,
    peer: &Peer,
    message: MailMessage,
) -> Result<(), Problem> {
    services.live_agents.touch(peer.auth.agent, services.clock.monotonic());
    let MailMessage { kind, data } = message;
    match kind.as_str() {
        "agent_info" => match parse(&kind, data) {
            Some(info) => {
                describe(
                    &services.database,
                    &services.commands,
                    &services.clock,
                    &services.bus,
                    &services.live_agents,
                    peer,
                    info,
                )
                .await
            }
            None => Ok(()),
        },
        "transfer_progress" => match parse::<Progress>(&kind, data) {
            Some(progress) => {
                report_progress(
                    &services.database,
                    &services.clock,
                    &services.bus,
                    &services.live_agents,
                    peer,
                    progress,
                )
                .await
            }
            None => Ok(()),
        },
        "transfer_complete" => match parse::<Complete>(&kind, data) {
            Some(complete) => {
                report_complete(&services.database, &services.clock, &services.bus, peer, complete).await
            }
            None => Ok(()),
        },
        "transfer_error" => match parse::<Failure>(&kind, data) {
            Some(failure) => {
                report_error(&services.database, &services.clock, &services.bus, peer, failure).await
            }
            None => Ok(()),
        },
        "connection_test_response" => match parse::<Echo>(&kind, data) {
            Some(echo) => pass_on_echo(&services.bus, echo).await,
            None => Ok(()),
        },
        "ack" => match parse::<Acknowledgement>(&kind, data) {
            Some(acknowledgement) => {
                acknowledge(&services.database, &services.mailbox, peer, &acknowledgement.message_ids).await
            }
            None => Ok(()),
        },
        // A heartbeat is a sign of life and nothing else.
        _ => Ok(()),
    }
}

/// Removes taken messages from the agent's mailbox.
pub(super) async fn acknowledge(
    database: &Database,
    mailbox: &Mailbox,
    peer: &Peer,
    ids: &[i64],
) -> Result<(), Problem> {
    let ids: Vec<_> =
        ids.iter().copied().collect::<BTreeSet<_>>().into_iter().take(MAX_ACKNOWLEDGED).collect();
    for ids in ids.chunks(ACKNOWLEDGED_AT_ONCE) {
        let taken = mailbox.waiting(peer.auth.agent, ids).await?;
        // Before they are removed: after a failure in between they are given out again, and acknowledged.
        requests::record_taken(&database.primary, peer.auth.agent, &taken).await?;
        mailbox.remove_waiting(&taken).await?;
    }
    Ok(())
}

/// Notes what the agent says of its machine, and puts right what it has forgotten about.
pub(super) async fn describe(
    database: &Database,
    commands: &Commands,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
    info: AgentInfo,
) -> Result<(), Problem> {
    let active =
        info.active_transfers.as_ref().map(|ids| ids.iter().filter_map(as_number).collect::<HashSet<_>>());
    let (agent, system) = (peer.auth.agent, system(info, peer.address));
    if live_agents.may_describe(agent, &system).await {
        let command = AgentCommand::Describe(system);
        // Visible before the first poll, because the agent's messages depend on it.
        let written = commands.write::<Agent>(agent.0, None, &metadata(clock, peer), &command).await;
        if let Err(rejection) = written {
            live_agents.forget_description(agent);
            return Err(rejection.into());
        }
    }
    match active {
        Some(active) => restart_forgotten(database, clock, bus, peer, &active).await,
        None => Ok(()),
    }
}

/// Ends the begun legs that the agent does not list: it neither works on them nor has their end to report. A leg that it
/// has not begun costs no attempt; its request waits in the mailbox or is posted again.
async fn restart_forgotten(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    peer: &Peer,
    active: &HashSet<i64>,
) -> Result<(), Problem> {
    let agent = peer.auth.agent;
    let rows = queries::transfers_at_agent(&database.primary, agent).await?;
    let (named, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| active.contains(&row.number));
    let named: Vec<_> = named.iter().map(|row| row.id).collect();
    if !named.is_empty() {
        queries::note_named(&database.primary, agent, &named).await?;
    }
    for row in others {
        let Ok(phase @ (Phase::Uploading | Phase::Downloading)) = row.phase.known() else { continue };
        let reason = format!(
            "agent {} connected again and no longer works on the transfer: it was restarted",
            peer.auth.number
        );
        let stall = TransferCommand::Stall { attempt: row.attempts.unsigned_abs(), phase, reason };
        send(clock, bus, peer, row.id, &stall).await?;
    }
    Ok(())
}

async fn report_progress(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
    progress: Progress,
) -> Result<(), Problem> {
    if !live_agents.may_report(peer.auth.agent, progress.transfer_id, clock.monotonic()) {
        return Ok(());
    }
    let Some(row) = find(database, peer, progress.transfer_id).await? else { return Ok(()) };
    let leg = match row.phase.known() {
        Ok(Phase::Dispatched | Phase::Uploading) if row.source_agent_id == Some(peer.auth.agent) => {
            Leg::Upload
        }
        Ok(Phase::Downloading) if row.destination_agent_id == peer.auth.agent => Leg::Download,
        // A phase that only a newer version knows must not end the agent's session.
        _ => return Ok(()),
    };
    let command = TransferCommand::Progress {
        leg,
        bytes: progress.current_bytes,
        total: progress.total_bytes,
        attempt: None,
    };
    send(clock, bus, peer, row.id, &command).await
}

async fn report_complete(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    peer: &Peer,
    complete: Complete,
) -> Result<(), Problem> {
    let Some(row) = find(database, peer, complete.transfer_id).await? else { return Ok(()) };
    requests::record_end(&database.primary, peer.auth.agent, row.number, complete.transfer_type).await?;
    let Complete { sha256, files, attempt, transfer_type, .. } = complete;
    if sha256.is_none() && is_download(peer, &row, transfer_type) {
        let agent = queries::agent_by_id(&database.primary, peer.auth.agent).await?;
        let promises =
            agent.as_ref().is_some_and(|agent| agent.capabilities.iter().any(|word| word == CHECKSUM));
        if let Some(reason) = contradiction(database, &row, promises).await? {
            let error = format!("Agent '{}' {reason}.", agent.map(|agent| agent.name).unwrap_or_default());
            let command =
                TransferCommand::ReportError { agent: peer.auth.agent, attempt, error, retryable: true };
            return send(clock, bus, peer, row.id, &command).await;
        }
    }
    let arrival = Arrival { attempt, leg: transfer_type, sha256, files };
    send(clock, bus, peer, row.id, &TransferCommand::ReportComplete { agent: peer.auth.agent, arrival }).await
}

/// Whether a report of this agent is about the download that is under way.
fn is_download(peer: &Peer, row: &TransferRow, reported: Option<Leg>) -> bool {
    row.destination_agent_id == peer.auth.agent
        && matches!(row.phase.known(), Ok(Phase::Staged | Phase::Downloading))
        && reported != Some(Leg::Upload)
}

async fn report_error(
    database: &Database,
    clock: &Clock,
    bus: &Bus,
    peer: &Peer,
    failure: Failure,
) -> Result<(), Problem> {
    let Some(row) = find(database, peer, failure.transfer_id).await? else { return Ok(()) };
    requests::record_end(&database.primary, peer.auth.agent, row.number, None).await?;
    let Failure { error, attempt, retryable, .. } = failure;
    let error = if error.trim().is_empty() { "it gave no reason.".to_owned() } else { error };
    let agent = queries::agent_by_id(&database.primary, peer.auth.agent).await?;
    // A transfer has two agents, and the message is of a program that does not know its own name.
    let error = format!("Agent '{}': {error}", agent.map(|agent| agent.name).unwrap_or_default());
    let command = TransferCommand::ReportError {
        agent: peer.auth.agent,
        attempt,
        error,
        retryable: retryable.unwrap_or(true),
    };
    send(clock, bus, peer, row.id, &command).await
}

async fn pass_on_echo(bus: &Bus, echo: Echo) -> Result<(), Problem> {
    // The echo of a keep-alive has served its purpose by arriving.
    if id(&echo.request_id).is_none() {
        return Ok(());
    }
    let wakeup = Wakeup::TestEcho { request_id: echo.request_id };
    Ok(bus.wake(&wakeup).await?)
}

/// The transfer of a report. Late ones are recorded, also if it was deleted.
async fn find(database: &Database, peer: &Peer, number: i64) -> Result<Option<TransferRow>, Problem> {
    Ok(queries::transfer_of_agent_ever(&database.primary, peer.auth.agent, number).await?)
}

/// Sends a command on the agent's behalf. A refusal because of the transfer's state is not the agent's fault.
async fn send(
    clock: &Clock,
    bus: &Bus,
    peer: &Peer,
    transfer: TransferId,
    command: &TransferCommand,
) -> Result<(), Problem> {
    match bus.send::<Transfer>(transfer.0, None, &metadata(clock, peer), command).await {
        Ok(_) => Ok(()),
        Err(rejection) if rejection.kind == ErrorKind::Unavailable => Err(rejection.into()),
        Err(rejection) => {
            tracing::info!(transfer = %transfer, %rejection, "an agent's report was not taken");
            Ok(())
        }
    }
}

fn system(info: AgentInfo, address: IpAddr) -> AgentSystem {
    let text = |text: Option<String>| {
        text.and_then(|text| clean_text(&text, 255).ok()).filter(|text| !text.is_empty())
    };
    let mut capabilities: Vec<_> = info
        .capabilities
        .into_iter()
        .flatten()
        .filter_map(|word| clean_text(&word, MAX_CAPABILITY).ok())
        .collect();
    capabilities.retain(|word| !word.is_empty());
    capabilities.truncate(MAX_CAPABILITIES);
    AgentSystem {
        version: text(info.version),
        hostname: text(info.hostname),
        system: text(info.os_name).or(text(info.system)),
        ip_address: text(info.ip_address).or(Some(address.to_string())),
        capabilities,
    }
}

fn parse<T: for<'de> Deserialize<'de>>(kind: &str, data: Value) -> Option<T> {
    serde_json::from_value(data)
        .inspect_err(|error| tracing::info!(%error, message.kind = kind, "an agent's message cannot be read"))
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extensions_reach_only_agents_that_list_them() {
        let data =
            json!({"transfer": {"id": "1"}, "extensions": {"any": {"attempt": 2}, "tree": {"tree": true}}});
        let message = || MailMessage { kind: "transfer_request".into(), data: data.clone() };
        let sent = |capabilities: &[&str]| {
            let capabilities: Vec<_> = capabilities.iter().map(|word| (*word).to_owned()).collect();
            for_agent(message(), &capabilities).data
        };
        assert_eq!(sent(&[]), json!({"transfer": {"id": "1"}}));
        assert_eq!(sent(&["ack"]), json!({"transfer": {"id": "1", "attempt": 2}}));
        assert_eq!(sent(&["tree"]), json!({"transfer": {"id": "1", "attempt": 2, "tree": true}}));
    }

    #[test]
    fn both_families_name_their_system() {
        let info = |value| serde_json::from_value::<AgentInfo>(value).unwrap();
        let address = "1.2.3.4".parse().unwrap();
        assert_eq!(
            system(info(json!({"os_name": "linux", "capabilities": null})), address).system.as_deref(),
            Some("linux")
        );
        assert_eq!(
            system(info(json!({"system": "linux", "ip_address": ""})), address).ip_address.as_deref(),
            Some("1.2.3.4")
        );
    }
}
