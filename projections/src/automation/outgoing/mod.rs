//! Published events: an event of the log as the JSON that webhook receivers get. It depends on the log alone, so it
//! is the same whenever it is built.

mod alarms;
mod example;
mod payload;
mod things;

use signalbox_boxed::boxed;
use std::{
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use chrono::{DateTime, Utc};
use signalbox_domain::automation::{AlarmEventKind, HealthEventKind, ReadingEventKind, RuleEventKind};
use signalbox_domain::catalog::{Aggregate, Kind};
use signalbox_domain::extraction::ExtractionJobEventKind;
use signalbox_domain::fleet::FirmwareEventKind;
use signalbox_domain::monitoring::{ExperimentEventKind, LogEntryEventKind};
use signalbox_domain::transfer::{AgentEventKind, TransferEventKind};
use signalbox_domain::{
    automation::{
        Alarm, ChannelSubject, EventSubject, EventType, Health, HealthEvent, ReadingEvent, ReportedReading,
        Rule, RuleAction, RuleEvent,
    },
    extraction::{Callback, ExtractionJob, ExtractionJobEvent, NewExtractionJob},
    fleet::Firmware,
    kernel::{ChannelId, Decider, ExtractionJobId},
    monitoring::{Channel, ChannelEvent, Experiment, ExperimentEvent, Labels, LogEntry},
    transfer::{Agent, Transfer},
};
use signalbox_event_store::{DecodeError, RecordedEvent, read_streams};
use sqlx::PgPool;
use uuid::Uuid;

pub use self::example::example;
pub(super) use self::payload::text_of;
use self::payload::{About, Document, Payload};

/// Words of the log's events that are published to webhooks.
pub static PUBLISHED: LazyLock<Vec<&'static str>> = LazyLock::new(|| Kind::words_where(is_published));

/// Whether events of `kind` are published to webhooks.
fn is_published(kind: Kind) -> bool {
    match kind {
        Kind::Alarm(kind) => match kind {
            AlarmEventKind::AlarmFired
            | AlarmEventKind::AlarmCleared
            | AlarmEventKind::AlarmAcknowledged
            | AlarmEventKind::AlarmAnnounced => true,
            AlarmEventKind::AlarmStarted | AlarmEventKind::AlarmUnacknowledged => false,
        },
        Kind::Contact(_) => false,
        Kind::DeliveryBatch(_) => false,
        Kind::Health(kind) => match kind {
            HealthEventKind::HealthChanged => true,
        },
        Kind::ReportedReading(kind) => match kind {
            ReadingEventKind::ReadingReported => true,
        },
        Kind::Rule(kind) => match kind {
            RuleEventKind::RuleTriggered => true,
            RuleEventKind::RuleCreated
            | RuleEventKind::RuleUpdated
            | RuleEventKind::RuleSilenced
            | RuleEventKind::RuleDeleted => false,
        },
        Kind::Webhook(_) => false,
        Kind::ExtractionJob(kind) => match kind {
            ExtractionJobEventKind::ExtractionCompleted | ExtractionJobEventKind::ExtractionFailed => true,
            ExtractionJobEventKind::ExtractionSubmitted
            | ExtractionJobEventKind::ExtractionBegun
            | ExtractionJobEventKind::ExtractionAdvanced
            | ExtractionJobEventKind::ExtractionReleased
            | ExtractionJobEventKind::ExtractionGivenBack
            | ExtractionJobEventKind::ExtractionCancelled
            | ExtractionJobEventKind::ExtractionRetried
            | ExtractionJobEventKind::ExtractionInputRemoved
            | ExtractionJobEventKind::ExtractionResultExpired
            | ExtractionJobEventKind::ExtractionDiscarded
            | ExtractionJobEventKind::ExtractionDeleted => false,
        },
        Kind::Firmware(kind) => match kind {
            FirmwareEventKind::FirmwareCompleted | FirmwareEventKind::FirmwareFailed => true,
            FirmwareEventKind::FirmwareCreated
            | FirmwareEventKind::FirmwareBundleAdded
            | FirmwareEventKind::FirmwareApplyRequested
            | FirmwareEventKind::FirmwareRollbackRequested
            | FirmwareEventKind::FirmwareClaimed
            | FirmwareEventKind::FirmwareDownloaded
            | FirmwareEventKind::FirmwareVerified
            | FirmwareEventKind::FirmwareRolledBack
            | FirmwareEventKind::FirmwareRollbackFailed
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
        Kind::Experiment(kind) => match kind {
            ExperimentEventKind::ExperimentStarted | ExperimentEventKind::ExperimentStopped => true,
            ExperimentEventKind::ExperimentRenamed | ExperimentEventKind::ExperimentDeleted => false,
        },
        Kind::LogEntry(kind) => match kind {
            LogEntryEventKind::LogEntryWritten => true,
            LogEntryEventKind::LogEntryMarked | LogEntryEventKind::LogEntryEdited => false,
        },
        Kind::Agent(kind) => match kind {
            AgentEventKind::AgentConnected | AgentEventKind::AgentWentOffline => true,
            AgentEventKind::AgentCreated
            | AgentEventKind::AgentUpdated
            | AgentEventKind::AgentDeleted
            | AgentEventKind::AgentDescribed
            | AgentEventKind::AgentWarningChanged
            | AgentEventKind::AgentDisconnected => false,
        },
        Kind::AgentToken(_) => false,
        Kind::Job(_) => false,
        Kind::Transfer(kind) => match kind {
            TransferEventKind::TransferCompleted
            | TransferEventKind::TransferFailed
            | TransferEventKind::TransferCancelled => true,
            TransferEventKind::TransferRequested
            | TransferEventKind::TransferDispatched
            | TransferEventKind::TransferProgressed
            | TransferEventKind::FilesStaged
            | TransferEventKind::TransferStaged
            | TransferEventKind::TransferRequeued
            | TransferEventKind::LateReportReceived
            | TransferEventKind::StagedBytesDeleted
            | TransferEventKind::TransferDeleted => false,
        },
    }
}

/// The kinds of events that hold what the published events of `aggregate` are named by.
fn naming(aggregate: Aggregate) -> &'static [Kind] {
    match aggregate {
        Aggregate::Agent => {
            &[Kind::Agent(AgentEventKind::AgentCreated), Kind::Agent(AgentEventKind::AgentUpdated)]
        }
        Aggregate::Alarm => {
            &[Kind::Alarm(AlarmEventKind::AlarmStarted), Kind::Alarm(AlarmEventKind::AlarmFired)]
        }
        Aggregate::Experiment => &[
            Kind::Experiment(ExperimentEventKind::ExperimentStarted),
            Kind::Experiment(ExperimentEventKind::ExperimentRenamed),
        ],
        Aggregate::ExtractionJob => &[Kind::ExtractionJob(ExtractionJobEventKind::ExtractionSubmitted)],
        Aggregate::Firmware => &[Kind::Firmware(FirmwareEventKind::FirmwareCreated)],
        Aggregate::Transfer => &[
            Kind::Transfer(TransferEventKind::TransferRequested),
            Kind::Transfer(TransferEventKind::TransferStaged),
        ],
        Aggregate::Contact
        | Aggregate::DeliveryBatch
        | Aggregate::Health
        | Aggregate::ReportedReading
        | Aggregate::Rule
        | Aggregate::Webhook
        | Aggregate::PluginInstance
        | Aggregate::PluginPackage
        | Aggregate::ApiToken
        | Aggregate::Session
        | Aggregate::User
        | Aggregate::Channel
        | Aggregate::Dashboard
        | Aggregate::LogEntry
        | Aggregate::AgentToken
        | Aggregate::Job => &[],
    }
}

/// An event to be sent to the subscribers of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Follows from its place in its stream.
    pub id: Uuid,
    pub event_type: EventType,
    /// When it happened.
    pub time: DateTime<Utc>,
    /// The JSON that is posted.
    pub body: String,
    /// The resource that it is about.
    pub subject: EventSubject,
    /// An additional receiver without a subscription.
    pub callback: Option<Callback>,
}

/// Reasons why an event cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// An event cannot be read by this program.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It does not serialise.
    #[error("the event cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Data of earlier events that published events need: names of experiments and agents, starts of alarms, versions of
/// firmware, requests of transfers and extraction jobs, and labels of channels. It is read for a page of the log at once.
#[derive(Debug, Default)]
pub struct Background(HashMap<Uuid, Vec<RecordedEvent>>);

impl Background {
    /// The earlier data that `events` need. Labels of channels are read only if `with_labels`: few subscriptions ask for them.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn of(pool: &PgPool, events: &[RecordedEvent], with_labels: bool) -> Result<Self, sqlx::Error> {
        let mut streams = HashMap::<_, Vec<_>>::new();
        for aggregate in Aggregate::ALL {
            let words: Vec<_> = naming(*aggregate).iter().map(|kind| kind.word()).collect();
            if words.is_empty() {
                continue;
            }
            let aggregate = aggregate.word();
            let is_meant = |event: &&RecordedEvent| {
                event.aggregate_type == aggregate && !event.payload.is_null() && !things::is_passing(event)
            };
            let ids: BTreeSet<_> = events.iter().filter(is_meant).map(|event| event.aggregate_id).collect();
            if ids.is_empty() {
                continue;
            }
            let ids: Vec<_> = ids.into_iter().collect();
            for event in read_streams(pool, aggregate, &ids, &words).await?.events {
                streams.entry(event.aggregate_id).or_default().push(event);
            }
        }
        let mut background = Self(streams);
        if with_labels {
            background.read_labels(pool, events).await?;
        }
        Ok(background)
    }

    async fn read_labels(&mut self, pool: &PgPool, events: &[RecordedEvent]) -> Result<(), sqlx::Error> {
        let channels: BTreeSet<_> = events.iter().filter_map(|event| self.channel_of(event)).collect();
        if channels.is_empty() {
            return Ok(());
        }
        let channels: Vec<_> = channels.into_iter().collect();
        let words = &["channel_created", "channel_updated"];
        for event in read_streams(pool, Channel::TYPE, &channels, words).await?.events {
            self.0.entry(event.aggregate_id).or_default().push(event);
        }
        Ok(())
    }

    /// The channel that `recorded` is about. An event that cannot be read is reported when it is published.
    fn channel_of(&self, recorded: &RecordedEvent) -> Option<Uuid> {
        if recorded.payload.is_null() {
            return None;
        }
        let channel = match recorded.aggregate_type.as_str() {
            Rule::TYPE => match recorded.decode::<Rule>().ok()? {
                RuleEvent::RuleTriggered(firing) => firing.reading.channel_id,
                _ => return None,
            },
            ReportedReading::TYPE => {
                let ReadingEvent::ReadingReported { reading, .. } =
                    recorded.decode::<ReportedReading>().ok()?;
                reading.channel_id
            }
            Alarm::TYPE => alarms::started(self, recorded).ok()??.channel_id,
            _ => return None,
        };
        Some(channel.0)
    }

    /// The channel `id` with the labels that it had when `recorded` was recorded, if they were read.
    fn channel(&self, id: ChannelId, recorded: &RecordedEvent) -> Result<ChannelSubject, OutgoingError> {
        let stream = self.0.get(&id.0).map(Vec::as_slice).unwrap_or_default();
        let end = stream.partition_point(|event| event.position < recorded.position);
        let labels = match stream[..end].last().map(RecordedEvent::decode::<Channel>).transpose()? {
            Some(ChannelEvent::ChannelCreated(new)) => new.spec.labels,
            Some(ChannelEvent::ChannelUpdated { to, .. }) => to.labels,
            _ => Labels::new(),
        };
        Ok(ChannelSubject { id, labels })
    }

    /// The published form of `recorded`, one of the events that this was read for; `None` if its kind is not
    /// published.
    ///
    /// # Errors
    /// [`OutgoingError`].
    pub fn outgoing(&self, recorded: &RecordedEvent) -> Result<Option<Outgoing>, OutgoingError> {
        match recorded.aggregate_type.as_str() {
            Agent::TYPE => things::agent(self, recorded),
            Alarm::TYPE => alarms::alarm(self, recorded),
            Experiment::TYPE => self.experiment(recorded),
            ExtractionJob::TYPE => self.extraction(recorded),
            Firmware::TYPE => things::firmware(self, recorded),
            Health::TYPE => health(recorded).map(Some),
            LogEntry::TYPE => things::log_entry(recorded),
            Transfer::TYPE => things::transfer(self, recorded),
            ReportedReading::TYPE => self.reading(recorded).map(Some),
            Rule::TYPE => self.firing(recorded),
            _ => Ok(None),
        }
    }

    fn experiment(&self, recorded: &RecordedEvent) -> Result<Option<Outgoing>, OutgoingError> {
        let event_type = match recorded.decode::<Experiment>()? {
            ExperimentEvent::ExperimentStarted(_) => EventType::ExperimentStarted,
            ExperimentEvent::ExperimentStopped => EventType::ExperimentStopped,
            ExperimentEvent::ExperimentRenamed { .. } | ExperimentEvent::ExperimentDeleted { .. } => {
                return Ok(None);
            }
        };
        let name = self.experiment_name(recorded)?;
        let about = About::Experiment { experiment_name: &name, experiment_id: recorded.aggregate_id };
        outgoing(recorded, event_type, recorded.recorded_at, about).map(Some)
    }

    /// The experiment's name at the time of the event.
    fn experiment_name(&self, recorded: &RecordedEvent) -> Result<String, OutgoingError> {
        Ok(match self.before(recorded).next_back().map(RecordedEvent::decode::<Experiment>).transpose()? {
            Some(ExperimentEvent::ExperimentStarted(new)) => new.name,
            Some(ExperimentEvent::ExperimentRenamed { to, .. }) => to,
            _ => String::new(),
        })
    }

    fn extraction(&self, recorded: &RecordedEvent) -> Result<Option<Outgoing>, OutgoingError> {
        let (event_type, result, failure) = match recorded.decode::<ExtractionJob>()? {
            ExtractionJobEvent::ExtractionCompleted { result, .. } => {
                (EventType::ExtractionCompleted, Some(result), None)
            }
            ExtractionJobEvent::ExtractionFailed { failure } => {
                (EventType::ExtractionFailed, None, Some(failure))
            }
            _ => return Ok(None),
        };
        let Some(job) = self.submitted(recorded)? else { return Ok(None) };
        let (job_id, result) = (ExtractionJobId(recorded.aggregate_id), result.as_ref());
        let about = About::Extraction(Document {
            job_id,
            status: if result.is_some() { "completed" } else { "failed" },
            filename: &job.filename,
            size_bytes: job.size,
            sha256: job.sha256.as_str(),
            output_format: &job.options.output_format,
            mime_type: result.map(|result| result.mime_type.as_str()),
            page_count: result.and_then(|result| result.page_count),
            processing_time_ms: result.map(|result| result.milliseconds),
            cached: result.is_some_and(|result| result.cached),
            error: failure.as_ref().map(|failure| failure.message.as_str()),
            error_code: failure.as_ref().map(|failure| failure.code.as_str()),
            result: result.map(|_| format!("/api/v1/jobs/{job_id}/result")),
        });
        let event = outgoing(recorded, event_type, recorded.recorded_at, about)?;
        Ok(Some(Outgoing { callback: job.callback, ..event }))
    }

    /// A firing is published if the rule's action is a webhook.
    fn firing(&self, recorded: &RecordedEvent) -> Result<Option<Outgoing>, OutgoingError> {
        let RuleEvent::RuleTriggered(firing) = recorded.decode::<Rule>()? else { return Ok(None) };
        let RuleAction::Webhook { event_type } = firing.action else { return Ok(None) };
        let about = About::Firing {
            sensor: (&firing.reading).into(),
            rule: &firing.rule_name,
            operator: firing.condition.operator.as_str(),
            threshold: firing.condition.threshold,
            threshold_high: firing.condition.threshold_high,
        };
        let subject = EventSubject::Channel(self.channel(firing.reading.channel_id, recorded)?);
        let event = outgoing(recorded, event_type, firing.reading.occurred_at, about)?;
        Ok(Some(Outgoing { subject, ..event }))
    }

    fn reading(&self, recorded: &RecordedEvent) -> Result<Outgoing, OutgoingError> {
        let ReadingEvent::ReadingReported { reading, .. } = recorded.decode::<ReportedReading>()?;
        let subject = EventSubject::Channel(self.channel(reading.channel_id, recorded)?);
        let about = About::Reading((&reading).into());
        let event = outgoing(recorded, EventType::SensorReading, reading.occurred_at, about)?;
        Ok(Outgoing { subject, ..event })
    }

    /// The job's submission.
    fn submitted(&self, recorded: &RecordedEvent) -> Result<Option<NewExtractionJob>, OutgoingError> {
        let first = self.stream(recorded).first().map(RecordedEvent::decode::<ExtractionJob>).transpose()?;
        Ok(match first {
            Some(ExtractionJobEvent::ExtractionSubmitted(new)) => Some(new),
            _ => None,
        })
    }

    /// The known events of the stream of `recorded` up to it, oldest first.
    fn before(&self, recorded: &RecordedEvent) -> impl DoubleEndedIterator<Item = &RecordedEvent> {
        let stream = self.stream(recorded);
        let end = stream.partition_point(|event| event.sequence <= recorded.sequence);
        stream[..end].iter()
    }

    fn stream(&self, recorded: &RecordedEvent) -> &[RecordedEvent] {
        self.0.get(&recorded.aggregate_id).map(Vec::as_slice).unwrap_or_default()
    }
}

fn health(recorded: &RecordedEvent) -> Result<Outgoing, OutgoingError> {
    let HealthEvent::HealthChanged { previous, report } = recorded.decode::<Health>()?;
    let about = About::Health {
        status: report.status.as_str(),
        previous: previous.as_str(),
        components: &report.components,
    };
    outgoing(recorded, EventType::SystemHealthChanged, report.since, about)
}

/// The public id of `recorded` in everything published about it; derived from its place in its stream.
pub fn published_id(recorded: &RecordedEvent) -> Uuid {
    let place = format!("{} {}", recorded.aggregate_type, recorded.sequence);
    Uuid::new_v5(&recorded.aggregate_id, place.as_bytes())
}

fn outgoing(
    recorded: &RecordedEvent,
    event_type: EventType,
    time: DateTime<Utc>,
    about: About<'_>,
) -> Result<Outgoing, OutgoingError> {
    let id = published_id(recorded);
    let body = serde_json::to_string(&Payload::new(event_type, time, id, about))?;
    Ok(Outgoing { id, event_type, time, body, subject: EventSubject::Other, callback: None })
}
