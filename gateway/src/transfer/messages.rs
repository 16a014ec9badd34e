//! What agents say, over either transport.

use std::net::IpAddr;

use chrono::TimeDelta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use signalbox_domain::{
    kernel::{ErrorKind, Metadata, Sha256Hex, clean_text},
    transfer::{
        Agent, AgentCommand, AgentSystem, Arrival, Leg, Phase, Transfer, TransferCommand, TransportMode,
    },
};
use signalbox_messaging::{MailMessage, Wakeup};
use signalbox_projections::transfer::{TransferRow, mail_key, queries};
use uuid::Uuid;

use crate::{auth::AgentAuth, problem::Problem, state::State as Gateway};

/// Extensions that an agent may list at most.
const MAX_CAPABILITIES: usize = 32;
/// By when the request of a dispatched transfer is in its mailbox, unless its worker has died.
const POSTED_WITHIN: TimeDelta = TimeDelta::seconds(5);

/// The agent at the other end.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) auth: AgentAuth,
    pub(super) address: IpAddr,
    pub(super) transport: TransportMode,
}

/// `agent_info`, in the words of both agent families.
#[derive(Debug, Default, Deserialize)]
pub(super) struct AgentInfo {
    hostname: Option<String>,
    os_name: Option<String>,
    system: Option<String>,
    ip_address: Option<String>,
    version: Option<String>,
    #[serde(default)]
    pub(super) capabilities: Vec<String>,
    active_transfers: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct Progress {
    #[serde(deserialize_with = "number")]
    transfer_id: i64,
    #[serde(default)]
    current_bytes: u64,
    total_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Complete {
    #[serde(deserialize_with = "number")]
    transfer_id: i64,
    sha256: Option<Sha256Hex>,
    files: Option<u64>,
    attempt: Option<u32>,
    transfer_type: Option<Leg>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    #[serde(deserialize_with = "number")]
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
pub(super) async fn handle(state: &Gateway, peer: &Peer, message: MailMessage) -> Result<(), Problem> {
    state.live_agents.touch(peer.auth.agent, state.clock.now());
    let MailMessage { kind, data } = message;
    match kind.as_str() {
        "agent_info" => match parse(&kind, data) {
            Some(info) => describe(state, peer, info).await,
            None => Ok(()),
        },
        "transfer_progress" => match parse::<Progress>(&kind, data) {
            Some(progress) => report_progress(state, peer, progress).await,
            None => Ok(()),
        },
        "transfer_complete" => match parse::<Complete>(&kind, data) {
            Some(complete) => report_complete(state, peer, complete).await,
            None => Ok(()),
        },
        "transfer_error" => match parse::<Failure>(&kind, data) {
            Some(failure) => report_error(state, peer, failure).await,
            None => Ok(()),
        },
        "connection_test_response" => match parse::<Echo>(&kind, data) {
            Some(echo) => pass_on_echo(state, echo).await,
            None => Ok(()),
        },
        "ack" => match parse::<Acknowledgement>(&kind, data) {
            Some(acknowledgement) => acknowledge(state, peer, &acknowledgement.message_ids).await,
            None => Ok(()),
        },
        // A heartbeat is a sign of life and nothing else.
        _ => Ok(()),
    }
}

/// Removes taken messages from the agent's mailbox.
pub(super) async fn acknowledge(state: &Gateway, peer: &Peer, ids: &[i64]) -> Result<(), Problem> {
    Ok(state.mailbox.acknowledge(peer.auth.agent, ids).await?)
}

/// Notes what the agent says of its machine, and puts right what it has forgotten about.
pub(super) async fn describe(state: &Gateway, peer: &Peer, info: AgentInfo) -> Result<(), Problem> {
    let active =
        info.active_transfers.as_ref().map(|ids| ids.iter().filter_map(as_number).collect::<Vec<_>>());
    let command = AgentCommand::Describe(system(info, peer.address));
    // Visible before the first poll: what the agent is sent depends on it.
    state.write::<Agent>(peer.auth.agent.0, None, &metadata(state, peer), &command).await?;
    match active {
        Some(active) => restart_forgotten(state, peer, &active).await,
        None => Ok(()),
    }
}

/// An agent that has been restarted does not know of what it was doing: those attempts are over.
async fn restart_forgotten(state: &Gateway, peer: &Peer, active: &[i64]) -> Result<(), Problem> {
    let agent = peer.auth.agent;
    for row in queries::transfers_at_agent(&state.pool, agent.0).await? {
        // What is staged has to be asked for first: then the agent cannot have forgotten it.
        let is_unasked = row.known_phase() == Phase::Staged && !row.asked;
        // Its request may be on the way to the mailbox; one that was lost is posted again.
        let is_new =
            row.known_phase() == Phase::Dispatched && state.clock.now() - row.active_at < POSTED_WITHIN;
        if is_unasked || is_new || active.contains(&row.number) || waits_in_mailbox(state, peer, &row).await?
        {
            continue;
        }
        let reason = "the agent was restarted in the middle of the transfer".to_owned();
        let stall =
            TransferCommand::Stall { attempt: row.attempts.unsigned_abs(), phase: row.known_phase(), reason };
        send(state, peer, row.id, &stall).await?;
    }
    Ok(())
}

async fn waits_in_mailbox(state: &Gateway, peer: &Peer, row: &TransferRow) -> Result<bool, Problem> {
    let leg = match row.known_phase() {
        Phase::Dispatched => Leg::Upload,
        Phase::Staged => Leg::Download,
        _ => return Ok(false),
    };
    let key = mail_key(row.number, row.attempts.unsigned_abs(), leg);
    Ok(state.mailbox.holds(peer.auth.agent, &key).await?)
}

async fn report_progress(state: &Gateway, peer: &Peer, progress: Progress) -> Result<(), Problem> {
    let Some(row) = find(state, peer, progress.transfer_id).await? else { return Ok(()) };
    if !state.live_agents.may_report(row.id, state.clock.now()) {
        return Ok(());
    }
    let leg = match row.known_phase() {
        Phase::Dispatched | Phase::Uploading if row.source_agent_id == peer.auth.agent.0 => Leg::Upload,
        Phase::Downloading if row.destination_agent_id == peer.auth.agent.0 => Leg::Download,
        _ => return Ok(()),
    };
    let command =
        TransferCommand::Progress { leg, bytes: progress.current_bytes, total: progress.total_bytes };
    send(state, peer, row.id, &command).await
}

async fn report_complete(state: &Gateway, peer: &Peer, complete: Complete) -> Result<(), Problem> {
    let Some(row) = find(state, peer, complete.transfer_id).await? else { return Ok(()) };
    let Complete { sha256, files, attempt, transfer_type, .. } = complete;
    let arrival = Arrival { attempt, leg: transfer_type, sha256, files };
    send(state, peer, row.id, &TransferCommand::ReportComplete { agent: peer.auth.agent, arrival }).await
}

async fn report_error(state: &Gateway, peer: &Peer, failure: Failure) -> Result<(), Problem> {
    let Some(row) = find(state, peer, failure.transfer_id).await? else { return Ok(()) };
    let Failure { error, attempt, retryable, .. } = failure;
    let error = if error.trim().is_empty() { "the agent gave no reason".to_owned() } else { error };
    let command = TransferCommand::ReportError {
        agent: peer.auth.agent,
        attempt,
        error,
        retryable: retryable.unwrap_or(true),
    };
    send(state, peer, row.id, &command).await
}

async fn pass_on_echo(state: &Gateway, echo: Echo) -> Result<(), Problem> {
    // The echo of a keep-alive has served its purpose by arriving.
    if Uuid::parse_str(&echo.request_id).is_err() {
        return Ok(());
    }
    let wakeup = Wakeup::TestEcho { request_id: echo.request_id };
    Ok(state.bus.wake(&wakeup).await?)
}

async fn find(state: &Gateway, peer: &Peer, number: i64) -> Result<Option<TransferRow>, Problem> {
    Ok(queries::transfer_of_agent(&state.pool, peer.auth.agent.0, number).await?)
}

/// Sends a command on the agent's behalf. What the transfer's state does not allow is no fault of the agent.
async fn send(
    state: &Gateway,
    peer: &Peer,
    transfer: Uuid,
    command: &TransferCommand,
) -> Result<(), Problem> {
    match state.bus.send::<Transfer>(transfer, None, &metadata(state, peer), command).await {
        Ok(_) => Ok(()),
        Err(rejection) if rejection.kind == ErrorKind::Unavailable => Err(rejection.into()),
        Err(rejection) => {
            tracing::info!(transfer = %transfer, %rejection, "an agent's report was not taken");
            Ok(())
        }
    }
}

/// Metadata of a command that an agent's message leads to.
pub(super) fn metadata(state: &Gateway, peer: &Peer) -> Metadata {
    Metadata {
        command_id: state.clock.new_id(),
        actor: peer.auth.actor(),
        causation: None,
        // What an agent tells of a transfer belongs to the transfer's story.
        correlation: String::new(),
        traceparent: None,
        restored_version: None,
    }
}

fn system(info: AgentInfo, address: IpAddr) -> AgentSystem {
    let text = |text: Option<String>| {
        text.and_then(|text| clean_text(&text, 255).ok()).filter(|text| !text.is_empty())
    };
    let mut capabilities: Vec<_> =
        info.capabilities.into_iter().filter_map(|word| text(Some(word))).collect();
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

/// An id as a JSON number or a decimal string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    as_number(&value).ok_or_else(|| serde::de::Error::custom("expected a positive integer"))
}

fn as_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_come_as_numbers_or_decimal_strings() {
        for (value, expected) in [
            (json!(7), Some(7)),
            (json!("7"), Some(7)),
            (json!(0), None),
            (json!("x"), None),
            (json!(-1), None),
        ] {
            assert_eq!(as_number(&value), expected, "{value}");
        }
    }

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
        assert_eq!(system(info(json!({"os_name": "linux"})), address).system.as_deref(), Some("linux"));
        assert_eq!(
            system(info(json!({"system": "linux", "ip_address": ""})), address).ip_address.as_deref(),
            Some("1.2.3.4")
        );
    }
}
