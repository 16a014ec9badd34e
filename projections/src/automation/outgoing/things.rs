//! Published events about transfers, agents, firmware, and the users' log.

use signalbox_domain::{
    automation::{EventSubject, EventType},
    fleet::{Firmware, FirmwareEvent, NewFirmware},
    kernel::{FirmwareUpdateId, Sha256Hex},
    monitoring::{LogEntry, LogEntryEvent, LogType, NewLogEntry},
    transfer::{Agent, AgentEvent, NewTransfer, Transfer, TransferEvent},
};
use signalbox_event_store::RecordedEvent;

use super::{
    Background, Outgoing, OutgoingError, outgoing,
    payload::{About, Machine, Shipment, text_of},
};

/// Sources of entries about deliveries and notifications. Their failures must not cause further ones.
const ABOUT_DELIVERIES: [&str; 2] = ["webhooks", "notifications"];

/// Whether it is one of the frequent events of a published kind that is not published: the connection of an agent that was
/// not away. Nothing is read for it.
pub(super) fn is_passing(recorded: &RecordedEvent) -> bool {
    recorded.event_type == "agent_connected" && recorded.payload["was_away"] != true
}

pub(super) fn agent(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<Outgoing>, OutgoingError> {
    if is_passing(recorded) {
        return Ok(None);
    }
    let event = recorded.decode::<Agent>()?;
    let (mut number, mut name) = (0, String::new());
    for known in background.before(recorded) {
        match known.decode::<Agent>()? {
            AgentEvent::AgentCreated(new) => (number, name) = (new.number, new.profile.name),
            AgentEvent::AgentUpdated(profile) => name = profile.name,
            _ => {}
        }
    }
    let agent = Machine { agent_name: &name, agent_id: number };
    let (event_type, about) = match event {
        AgentEvent::AgentConnected { transport, .. } => {
            (EventType::AgentOnline, About::AgentOnline { agent, transport })
        }
        AgentEvent::AgentWentOffline { since } => {
            (EventType::AgentOffline, About::AgentOffline { agent, since: text_of(since) })
        }
        _ => return Ok(None),
    };
    outgoing(recorded, event_type, recorded.recorded_at, about).map(Some)
}

pub(super) fn firmware(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<Outgoing>, OutgoingError> {
    let firmware_id = FirmwareUpdateId(recorded.aggregate_id);
    let event = recorded.decode::<Firmware>()?;
    let (event_type, about) = match &event {
        FirmwareEvent::FirmwareCompleted { version, previous } => {
            let previous = previous.map(|previous| previous.version.to_string());
            let about = About::FirmwareCompleted { firmware_id, version: version.to_string(), previous };
            (EventType::FirmwareCompleted, about)
        }
        FirmwareEvent::FirmwareFailed { failure, .. } => {
            let Some(FirmwareEvent::FirmwareCreated(NewFirmware { version, .. })) =
                background.before(recorded).next().map(RecordedEvent::decode::<Firmware>).transpose()?
            else {
                return Ok(None);
            };
            let (version, error, error_code) = (version.to_string(), &failure.message, &failure.code);
            (EventType::FirmwareFailed, About::FirmwareFailed { firmware_id, version, error, error_code })
        }
        _ => return Ok(None),
    };
    outgoing(recorded, event_type, recorded.recorded_at, about).map(Some)
}

/// Errors are published, except entries of the service about its own deliveries.
pub(super) fn log_entry(recorded: &RecordedEvent) -> Result<Option<Outgoing>, OutgoingError> {
    let LogEntryEvent::LogEntryWritten(NewLogEntry { kind, content, source, user }) =
        recorded.decode::<LogEntry>()?
    else {
        return Ok(None);
    };
    if kind != LogType::Error || (user.is_none() && ABOUT_DELIVERIES.contains(&source.as_str())) {
        return Ok(None);
    }
    let about = About::LogEntry {
        entry_id: recorded.aggregate_id,
        log_type: kind.as_str(),
        content: &content,
        source: &source,
    };
    outgoing(recorded, EventType::LogEntry, recorded.recorded_at, about).map(Some)
}

pub(super) fn transfer(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<Outgoing>, OutgoingError> {
    let event = recorded.decode::<Transfer>()?;
    let (event_type, status, error) = match &event {
        TransferEvent::TransferCompleted { .. } => (EventType::TransferCompleted, "completed", None),
        TransferEvent::TransferFailed { error } => {
            (EventType::TransferFailed, "failed", Some(error.as_str()))
        }
        TransferEvent::TransferCancelled => (EventType::TransferCancelled, "cancelled", None),
        _ => return Ok(None),
    };
    let Some((request, staged)) = requested(background, recorded)? else { return Ok(None) };
    let job = request.job.map(|job| job.number);
    let about = About::Transfer(Shipment {
        transfer_id: request.number,
        status,
        job_id: job,
        source_agent_id: request.source_agent.map(|agent| agent.number),
        destination_agent_id: request.destination_agent.number,
        filename: &request.filename,
        source_path: &request.source_path,
        destination_path: &request.destination_path,
        files: staged.as_ref().map(|staged| staged.files),
        size_bytes: staged.as_ref().map(|staged| staged.size).or(request.size),
        sha256: staged.as_ref().map(|staged| staged.sha256.as_str()),
        error,
    });
    let event = outgoing(recorded, event_type, recorded.recorded_at, about)?;
    Ok(Some(Outgoing { subject: EventSubject::Transfer { job }, ..event }))
}

/// The staged bytes of a transfer.
struct Staged {
    files: u64,
    size: u64,
    sha256: Sha256Hex,
}

/// The request of the transfer, and the bytes that were staged last.
fn requested(
    background: &Background,
    recorded: &RecordedEvent,
) -> Result<Option<(NewTransfer, Option<Staged>)>, OutgoingError> {
    let (mut request, mut last) = (None, None);
    for known in background.before(recorded) {
        match known.decode::<Transfer>()? {
            TransferEvent::TransferRequested(new) => request = Some(new),
            TransferEvent::TransferStaged { files, size, sha256, .. } => {
                last = Some(Staged { files, size, sha256 });
            }
            _ => {}
        }
    }
    Ok(request.map(|request| (request, last)))
}
