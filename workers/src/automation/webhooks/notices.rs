use std::sync::LazyLock;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::automation::{DeliveryBatchEventKind, HealthEventKind, WebhookEventKind};
use signalbox_domain::catalog::Kind;
use signalbox_domain::fleet::FirmwareEventKind;
use signalbox_domain::{
    automation::{
        DeliveryBatch, DeliveryBatchEvent, Ended, Health, HealthEvent, HealthStatus, Verdict, Webhook,
        WebhookEvent, fault_class,
    },
    fleet::{Firmware, FirmwareEvent, FirmwareRef},
    kernel::{Decider, FirmwareUpdateId},
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_event_store::RecordedEvent;
use signalbox_metrics::metrics;
use signalbox_projections::{automation::webhooks::receiver_name, fleet::queries::firmware_release};
use uuid::Uuid;

use crate::{Context, WorkerError, skipped::skip_or_fail};

/// The name of the worker that writes notices, and queues deliveries.
pub(super) const NAME: &str = "webhook-fan-out";
const ATTEMPTS_ENDED: &str = "attempts_ended";
/// Words of the events that are written to the users' log.
pub(super) static NOTICED: LazyLock<Vec<&'static str>> = LazyLock::new(|| Kind::words_where(is_noticed));
/// Entries written at the same time.
const CONCURRENT: usize = 16;

/// Whether events of `kind` are written to the users' log.
fn is_noticed(kind: Kind) -> bool {
    match kind {
        Kind::Alarm(_) => false,
        Kind::Contact(_) => false,
        Kind::DeliveryBatch(kind) => match kind {
            DeliveryBatchEventKind::AttemptsEnded => true,
            DeliveryBatchEventKind::DeliveriesQueued
            | DeliveryBatchEventKind::CallbackQueued
            | DeliveryBatchEventKind::MessageQueued
            | DeliveryBatchEventKind::AttemptsBegun
            | DeliveryBatchEventKind::DeliveriesRequeued => false,
        },
        Kind::Health(kind) => match kind {
            HealthEventKind::HealthChanged => true,
        },
        Kind::ReportedReading(_) => false,
        Kind::Rule(_) => false,
        Kind::Webhook(kind) => match kind {
            WebhookEventKind::WebhookUpdated => true,
            WebhookEventKind::WebhookCreated
            | WebhookEventKind::WebhookReplayRequested
            | WebhookEventKind::WebhookReplayAdvanced
            | WebhookEventKind::WebhookDeleted => false,
        },
        Kind::ExtractionJob(_) => false,
        Kind::Firmware(kind) => match kind {
            FirmwareEventKind::FirmwareCompleted
            | FirmwareEventKind::FirmwareFailed
            | FirmwareEventKind::FirmwareRolledBack
            | FirmwareEventKind::FirmwareRollbackFailed => true,
            FirmwareEventKind::FirmwareCreated
            | FirmwareEventKind::FirmwareBundleAdded
            | FirmwareEventKind::FirmwareApplyRequested
            | FirmwareEventKind::FirmwareRollbackRequested
            | FirmwareEventKind::FirmwareClaimed
            | FirmwareEventKind::FirmwareDownloaded
            | FirmwareEventKind::FirmwareVerified
            | FirmwareEventKind::FirmwareDeleted
            | FirmwareEventKind::FirmwareFilesRemoved => false,
        },
        Kind::PluginInstance(_) => false,
        Kind::PluginPackage(_) => false,
        Kind::ApiToken(_) => false,
        Kind::Session(_) => false,
        Kind::User(_) => false,
        Kind::Channel(_) => false,
        Kind::Dashboard(_) => false,
        Kind::Experiment(_) => false,
        Kind::LogEntry(_) => false,
        Kind::Agent(_) => false,
        Kind::AgentToken(_) => false,
        Kind::Job(_) => false,
        Kind::Transfer(_) => false,
    }
}

/// Writes a log entry for each delivery that was given up, each webhook that its receiver revoked, each change of health, and
/// the result of each firmware update. The entry's key is derived from the event.
pub(super) async fn write(context: &Context, events: &[RecordedEvent]) -> Result<(), WorkerError> {
    let mut entries = Vec::new();
    for recorded in events.iter().filter(|event| NOTICED.contains(&event.event_type.as_str())) {
        match about(context, recorded).await {
            Ok(about) => entries.extend(about.into_iter().map(|(id, entry)| (recorded.position, id, entry))),
            Err(error) => skip_or_fail(&context.pool, NAME, recorded, error).await?,
        }
    }
    let written = stream::iter(entries).map(|(cause, id, entry)| async move {
        let command = LogEntryCommand::Write(entry);
        context.send_because::<LogEntry>(NAME, cause, id, "write", &command).await.map(|_| ())
    });
    written.buffer_unordered(CONCURRENT).try_collect().await
}

/// The entries about `recorded`, by their keys.
async fn about(context: &Context, recorded: &RecordedEvent) -> Result<Vec<(Uuid, NewLogEntry)>, WorkerError> {
    let id = key(recorded.aggregate_id, recorded.sequence);
    Ok(match recorded.aggregate_type.as_str() {
        DeliveryBatch::TYPE => about_deliveries(context, recorded).await?,
        Webhook::TYPE => about_webhook(recorded)?.map(|entry| (id, entry)).into_iter().collect(),
        Health::TYPE => vec![(id, about_health(recorded)?)],
        Firmware::TYPE => {
            about_firmware(context, recorded).await?.map(|entry| (id, entry)).into_iter().collect()
        }
        _ => Vec::new(),
    })
}

/// Counts finished deliveries.
pub(super) fn count(events: &[RecordedEvent]) {
    for recorded in events.iter().filter(|event| event.event_type == ATTEMPTS_ENDED) {
        // One that cannot be read was skipped.
        let Ok(DeliveryBatchEvent::AttemptsEnded { attempts, .. }) = recorded.decode::<DeliveryBatch>()
        else {
            continue;
        };
        for ended in &attempts {
            match ended.verdict {
                Verdict::Delivered => metrics().deliveries("delivered", 1),
                Verdict::DeadLetter => metrics().deliveries("dead_letter", 1),
                Verdict::Retry { .. } => {}
            }
        }
    }
}

fn key(of: Uuid, what: impl std::fmt::Display) -> Uuid {
    Uuid::new_v5(&of, format!("log entry {what}").as_bytes())
}

async fn about_deliveries(
    context: &Context,
    recorded: &RecordedEvent,
) -> Result<Vec<(Uuid, NewLogEntry)>, WorkerError> {
    let DeliveryBatchEvent::AttemptsEnded { webhook, attempts, .. } = recorded.decode::<DeliveryBatch>()?
    else {
        return Ok(Vec::new());
    };
    let dead: Vec<_> = attempts.iter().filter(|ended| ended.verdict == Verdict::DeadLetter).collect();
    if dead.is_empty() {
        return Ok(Vec::new());
    }
    let receiver = receiver_name(&context.pool, webhook).await?;
    let receiver = receiver.unwrap_or_else(|| format!("receiver {webhook}"));
    Ok(dead
        .into_iter()
        .map(|ended| (key(ended.result.id.0, ended.round), given_up(ended, &receiver)))
        .collect())
}

fn given_up(ended: &Ended, receiver: &str) -> NewLogEntry {
    // The name of a contact is external input; an entry has 500 characters. So are the receiver's words, which admins find with
    // the delivery.
    let receiver: String = receiver.chars().take(200).collect();
    let (attempts, fault) = (ended.attempt, fault_class(ended.result.status));
    let content = format!(
        "Delivery {} to {receiver} was given up after {attempts} attempts. {fault}; admins see its words with the delivery, and \
         can deliver it again.",
        ended.result.id
    );
    NewLogEntry { kind: LogType::Error, content, source: "webhooks".to_owned(), user: None }
}

fn about_webhook(recorded: &RecordedEvent) -> Result<Option<NewLogEntry>, WorkerError> {
    let WebhookEvent::WebhookUpdated { gone: true, .. } = recorded.decode::<Webhook>()? else {
        return Ok(None);
    };
    let content = format!(
        "Webhook {} was disabled: its receiver answered HTTP 410, so it wants no more events. It can be enabled again.",
        recorded.aggregate_id
    );
    Ok(Some(NewLogEntry { kind: LogType::Error, content, source: "webhooks".to_owned(), user: None }))
}

fn about_health(recorded: &RecordedEvent) -> Result<NewLogEntry, WorkerError> {
    let HealthEvent::HealthChanged { report, .. } = recorded.decode::<Health>()?;
    let failed: Vec<_> =
        report.components.iter().filter(|(_, word)| *word != "ok").map(|(name, _)| name.as_str()).collect();
    let since = report.since.format("%Y-%m-%d %H:%M:%S UTC");
    let (kind, content) = match report.status {
        HealthStatus::Ok => (LogType::Info, format!("The service works again since {since}.")),
        HealthStatus::Degraded => {
            (LogType::Warning, format!("The service was degraded at {since}: {}.", failed.join(", ")))
        }
    };
    Ok(NewLogEntry { kind, content, source: "health".to_owned(), user: None })
}

async fn about_firmware(
    context: &Context,
    recorded: &RecordedEvent,
) -> Result<Option<NewLogEntry>, WorkerError> {
    let failed = async |what: &str, why: &str| -> Result<_, WorkerError> {
        let release = firmware_release(&context.pool, FirmwareUpdateId(recorded.aggregate_id)).await?;
        // A hook's message may be long.
        let why: String = why.chars().take(350).collect();
        Ok((LogType::Error, format!("Firmware {} was not {what}: {why}", release.unwrap_or_default())))
    };
    let (kind, content) = match recorded.decode::<Firmware>()? {
        FirmwareEvent::FirmwareCompleted { version, previous } => {
            (LogType::Info, format!("Firmware {version} is in force; before it was {}.", named(previous)))
        }
        FirmwareEvent::FirmwareRolledBack { version, to } => {
            (LogType::Warning, format!("Firmware {version} was rolled back to {}.", named(to)))
        }
        FirmwareEvent::FirmwareFailed { failure, .. } => failed("applied", &failure.message).await?,
        FirmwareEvent::FirmwareRollbackFailed { failure } => failed("rolled back", &failure.message).await?,
        FirmwareEvent::FirmwareCreated(_)
        | FirmwareEvent::FirmwareBundleAdded { .. }
        | FirmwareEvent::FirmwareApplyRequested { .. }
        | FirmwareEvent::FirmwareRollbackRequested { .. }
        | FirmwareEvent::FirmwareClaimed { .. }
        | FirmwareEvent::FirmwareDownloaded { .. }
        | FirmwareEvent::FirmwareVerified { .. }
        | FirmwareEvent::FirmwareDeleted { .. }
        | FirmwareEvent::FirmwareFilesRemoved => {
            return Ok(None);
        }
    };
    Ok(Some(NewLogEntry { kind, content, source: "firmware".to_owned(), user: None }))
}

fn named(firmware: Option<FirmwareRef>) -> String {
    firmware.map_or_else(|| "what came with the product".to_owned(), |firmware| firmware.version.to_string())
}
