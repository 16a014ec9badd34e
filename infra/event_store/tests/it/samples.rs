//! One value of every event of the domain. A new event does not compile until it has its place here, and then the
//! tests that enumerate these require its golden file and its projection.

#[path = "samples_extraction.rs"]
mod extraction;
#[path = "samples_firmware.rs"]
mod firmware;
#[path = "samples_monitoring.rs"]
mod monitoring;
#[path = "samples_plugins.rs"]
mod plugins;
#[path = "samples_webhooks.rs"]
mod webhooks;

use std::iter::successors;

use chrono::{DateTime, TimeDelta, Utc};
use cqrs_es::DomainEvent;
use serde_json::Value;
use signalbox_domain::{
    automation::{
        Acknowledged, Alarm, AlarmEvent, AlarmReason, Condition, Contact, DatapointPlace, DeliveryBatch,
        EventType, Firing, Health, NewAlarm, NewRule, NotificationSpec, Operator, Reading, ReadingEvent,
        ReportedReading, Rule, RuleAction, RuleEvent, RuleSpec, Severity, Silence, Webhook,
    },
    extraction::ExtractionJob,
    fleet::{Firmware, PluginInstance, PluginPackage},
    identity::{
        ApiToken, ApiTokenEvent, ExternalIdentity, NewApiToken, NewUser, Role, Session, SessionEvent, User,
        UserEvent,
    },
    kernel::{AgentId, ChannelId, Decider, JobId, RuleId, Sha256Hex, UserId},
    monitoring::{Channel, Dashboard, Experiment, LogEntry},
    transfer::{
        Agent, AgentEvent, AgentProfile, AgentRef, AgentSystem, AgentToken, AgentTokenEvent, AgentType, Job,
        JobEvent, JobRef, JobSpec, JobType, Leg, NewAgent, NewAgentToken, NewJob, NewTransfer, Overlap,
        Retry, Schedule, SkipReason, StagedFile, Transfer, TransferEvent, TransportMode,
    },
};
use uuid::Uuid;

/// An event as it is written to the log today.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) aggregate_type: &'static str,
    pub(crate) event_type: String,
    pub(crate) event_version: String,
    pub(crate) payload: Value,
}

pub(crate) fn all() -> Vec<Sample> {
    [
        samples::<User>(after_user),
        samples::<Session>(after_session),
        samples::<ApiToken>(after_api_token),
        samples::<Agent>(after_agent),
        samples::<AgentToken>(after_agent_token),
        samples::<Job>(after_job),
        samples::<Transfer>(after_transfer),
        samples::<Channel>(monitoring::after_channel),
        samples::<Experiment>(monitoring::after_experiment),
        samples::<Dashboard>(monitoring::after_dashboard),
        samples::<LogEntry>(monitoring::after_log_entry),
        samples::<Rule>(after_rule),
        samples::<Alarm>(after_alarm),
        samples::<Contact>(webhooks::after_contact),
        samples::<ReportedReading>(after_reading),
        samples::<Webhook>(webhooks::after_webhook),
        samples::<DeliveryBatch>(webhooks::after_delivery_batch),
        samples::<Health>(webhooks::after_health),
        samples::<ExtractionJob>(extraction::after_job),
        samples::<PluginPackage>(plugins::after_package),
        samples::<PluginInstance>(plugins::after_instance),
        samples::<Firmware>(firmware::after_firmware),
    ]
    .concat()
}

/// Follows the chain of an aggregate's events, where each one names the next.
fn samples<D: Decider>(after: fn(Option<&D::Event>) -> Option<D::Event>) -> Vec<Sample> {
    successors(after(None), |event| after(Some(event)))
        .map(|event| Sample {
            aggregate_type: D::TYPE,
            event_type: event.event_type(),
            event_version: event.event_version(),
            payload: serde_json::to_value(&event).unwrap(),
        })
        .collect()
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

fn time() -> DateTime<Utc> {
    DateTime::from_timestamp(1_760_000_000, 123_456_000).unwrap()
}

fn sha256() -> Sha256Hex {
    Sha256Hex::from_bytes(&[0xab; 32])
}

fn agent(number: i64) -> AgentRef {
    AgentRef { id: AgentId(id(number as u128)), number }
}

fn after_user(event: Option<&UserEvent>) -> Option<UserEvent> {
    let Some(event) = event else {
        return Some(UserEvent::UserCreated(NewUser {
            number: 7,
            email: "ada@example.org".to_owned(),
            username: "ada".to_owned(),
            role: Role::Operator,
            password_hash: "$argon2id$v=19$one".to_owned(),
        }));
    };
    match event {
        UserEvent::UserCreated(_) => Some(UserEvent::UserEmailChanged {
            from: "ada@example.org".to_owned(),
            to: "countess@example.org".to_owned(),
        }),
        UserEvent::UserEmailChanged { .. } => {
            Some(UserEvent::UserRenamed { from: "ada".to_owned(), to: "countess".to_owned() })
        }
        UserEvent::UserRenamed { .. } => {
            Some(UserEvent::UserRoleChanged { from: Role::Operator, to: Role::Viewer })
        }
        UserEvent::UserRoleChanged { .. } => {
            Some(UserEvent::UserPasswordChanged { password_hash: "$argon2id$v=19$two".to_owned() })
        }
        UserEvent::UserPasswordChanged { .. } => Some(UserEvent::UserIdentityLinked {
            from: Some(identity("https://old.example.org")),
            to: identity("https://id.example.org"),
        }),
        UserEvent::UserIdentityLinked { to, .. } => Some(UserEvent::UserIdentityRemoved(to.clone())),
        UserEvent::UserIdentityRemoved(_) => Some(UserEvent::UserDeleted {
            email: "countess@example.org".to_owned(),
            username: "countess".to_owned(),
            role: Role::Viewer,
        }),
        UserEvent::UserDeleted { .. } => None,
    }
}

fn identity(issuer: &str) -> ExternalIdentity {
    ExternalIdentity {
        provider: "Plant".to_owned(),
        issuer: issuer.to_owned(),
        subject: "248289761001".to_owned(),
    }
}

fn after_session(event: Option<&SessionEvent>) -> Option<SessionEvent> {
    let Some(event) = event else {
        return Some(SessionEvent::SessionStarted { user: UserId(id(7)), expires_at: time() });
    };
    match event {
        SessionEvent::SessionStarted { .. } => {
            Some(SessionEvent::SessionRenewed { expires_at: time() + TimeDelta::hours(1) })
        }
        SessionEvent::SessionRenewed { .. } => Some(SessionEvent::SessionEnded),
        SessionEvent::SessionEnded => None,
    }
}

fn after_api_token(event: Option<&ApiTokenEvent>) -> Option<ApiTokenEvent> {
    let Some(event) = event else {
        return Some(ApiTokenEvent::ApiTokenCreated(NewApiToken {
            user: UserId(id(7)),
            name: "press".to_owned(),
            secret_sha256: sha256(),
            expires_at: Some(time()),
            controller: None,
        }));
    };
    match event {
        ApiTokenEvent::ApiTokenCreated(_) => Some(ApiTokenEvent::ApiTokenControllerNoted),
        ApiTokenEvent::ApiTokenControllerNoted => Some(ApiTokenEvent::ApiTokenRevoked),
        ApiTokenEvent::ApiTokenRevoked => None,
    }
}

fn profile(name: &str) -> AgentProfile {
    AgentProfile {
        name: name.to_owned(),
        kind: AgentType::Client,
        description: Some("in the hall".to_owned()),
    }
}

fn system() -> AgentSystem {
    AgentSystem {
        version: Some("1.2.3".to_owned()),
        hostname: Some("press".to_owned()),
        system: Some("Linux".to_owned()),
        ip_address: Some("192.0.2.1".to_owned()),
        capabilities: vec!["resume".to_owned()],
    }
}

fn after_agent(event: Option<&AgentEvent>) -> Option<AgentEvent> {
    let session = id(20);
    let Some(event) = event else {
        return Some(AgentEvent::AgentCreated(NewAgent { number: 1, profile: profile("press") }));
    };
    match event {
        AgentEvent::AgentCreated(_) => Some(AgentEvent::AgentUpdated(profile("printer"))),
        AgentEvent::AgentUpdated(_) => {
            Some(AgentEvent::AgentConnected { session, transport: TransportMode::Polling, was_away: false })
        }
        AgentEvent::AgentConnected { .. } => Some(AgentEvent::AgentDescribed(system())),
        AgentEvent::AgentDescribed(_) => {
            Some(AgentEvent::AgentWarningChanged { warning: Some("used twice".to_owned()) })
        }
        AgentEvent::AgentWarningChanged { .. } => {
            Some(AgentEvent::AgentDisconnected { session, reason: "closed".to_owned() })
        }
        AgentEvent::AgentDisconnected { .. } => Some(AgentEvent::AgentWentOffline { since: time() }),
        AgentEvent::AgentWentOffline { .. } => Some(AgentEvent::AgentDeleted { name: "printer".to_owned() }),
        AgentEvent::AgentDeleted { .. } => None,
    }
}

fn after_agent_token(event: Option<&AgentTokenEvent>) -> Option<AgentTokenEvent> {
    let Some(event) = event else {
        return Some(AgentTokenEvent::AgentTokenCreated(NewAgentToken {
            number: 3,
            name: "first".to_owned(),
            agent: agent(1),
            description: Some("for the press".to_owned()),
            secret_sha256: sha256(),
            expires_at: Some(time()),
        }));
    };
    match event {
        AgentTokenEvent::AgentTokenCreated(_) => Some(AgentTokenEvent::AgentTokenRevoked),
        AgentTokenEvent::AgentTokenRevoked => None,
    }
}

fn job_spec(name: &str) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        kind: JobType::Pull,
        source_agent: agent(1),
        destination_agent: agent(2),
        source_path: "/out/".to_owned(),
        destination_path: "/in/".to_owned(),
        schedule: Some(Schedule { cron: "0 30 2 * * *".to_owned(), timezone: "Europe/Berlin".to_owned() }),
        timezone: None,
        enabled: true,
        retry: Retry { max_attempts: 4, backoff_seconds: 9 },
        overlap: Overlap::Queue,
        description: Some("every night".to_owned()),
    }
}

fn after_job(event: Option<&JobEvent>) -> Option<JobEvent> {
    let Some(event) = event else {
        return Some(JobEvent::JobCreated(NewJob {
            number: 5,
            owner: UserId(id(7)),
            spec: job_spec("nightly"),
        }));
    };
    match event {
        JobEvent::JobCreated(_) => {
            Some(JobEvent::JobUpdated { from: job_spec("nightly"), to: job_spec("daily") })
        }
        JobEvent::JobUpdated { .. } => {
            Some(JobEvent::JobFiringSkipped { scheduled_for: time(), reason: SkipReason::TooLate })
        }
        JobEvent::JobFiringSkipped { .. } => Some(JobEvent::JobDeleted { spec: job_spec("daily") }),
        JobEvent::JobDeleted { .. } => None,
    }
}

fn new_transfer() -> NewTransfer {
    NewTransfer {
        number: 11,
        owner: UserId(id(7)),
        job: Some(JobRef { id: JobId(id(5)), number: 5 }),
        kind: JobType::Push,
        source_agent: Some(agent(1)),
        destination_agent: agent(2),
        source_path: "/out/report.csv".to_owned(),
        destination_path: "/in/report.csv".to_owned(),
        filename: "report.csv".to_owned(),
        size: Some(1234),
        retry: Retry { max_attempts: 4, backoff_seconds: 9 },
        scheduled_for: Some(time()),
    }
}

fn after_transfer(event: Option<&TransferEvent>) -> Option<TransferEvent> {
    let Some(event) = event else { return Some(TransferEvent::TransferRequested(new_transfer())) };
    let file = || StagedFile { name: "report.csv".to_owned(), size: 1234, sha256: sha256() };
    match event {
        TransferEvent::TransferRequested(_) => {
            Some(TransferEvent::TransferDispatched { attempt: 1, leg: Leg::Upload })
        }
        TransferEvent::TransferDispatched { .. } => {
            Some(TransferEvent::TransferProgressed { leg: Leg::Upload, bytes: 100, total: Some(1234) })
        }
        TransferEvent::TransferProgressed { .. } => Some(TransferEvent::FilesStaged { files: vec![file()] }),
        TransferEvent::FilesStaged { .. } => {
            Some(TransferEvent::TransferStaged { files: 1, size: 1234, sha256: sha256(), unreported: false })
        }
        TransferEvent::TransferStaged { .. } => Some(TransferEvent::TransferRequeued {
            attempt: 1,
            error: "the line broke".to_owned(),
            backoff_seconds: 9,
            discard: true,
        }),
        TransferEvent::TransferRequeued { .. } => Some(TransferEvent::TransferCompleted { proven: true }),
        TransferEvent::TransferCompleted { .. } => {
            Some(TransferEvent::TransferFailed { error: "no space".to_owned() })
        }
        TransferEvent::TransferFailed { .. } => Some(TransferEvent::TransferCancelled),
        TransferEvent::TransferCancelled => Some(TransferEvent::LateReportReceived {
            agent: AgentId(id(1)),
            error: Some("too late".to_owned()),
        }),
        TransferEvent::LateReportReceived { .. } => Some(TransferEvent::StagedBytesDeleted),
        TransferEvent::StagedBytesDeleted => Some(TransferEvent::TransferDeleted),
        TransferEvent::TransferDeleted => None,
    }
}

fn rule_spec() -> RuleSpec {
    RuleSpec {
        name: "too hot".to_owned(),
        channel: ChannelId(id(3)),
        condition: Condition { operator: Operator::Gt, threshold: 80.5, threshold_high: None },
        action: RuleAction::Log,
        cooldown_seconds: 60,
        enabled: false,
        alarm: None,
        notify: NotificationSpec::default(),
    }
}

fn reading() -> Reading {
    Reading {
        datapoint_id: "01234567-89ab-8cde-8f01-23456789abcd".to_owned(),
        place: DatapointPlace { position: 12, index: 3 },
        channel_id: ChannelId(id(3)),
        channel_name: "boiler".to_owned(),
        value: 81.25,
        device: "press".to_owned(),
        occurred_at: time(),
    }
}

fn after_reading(event: Option<&ReadingEvent>) -> Option<ReadingEvent> {
    match event {
        None => Some(ReadingEvent::ReadingReported { reading: reading(), reported_at: time() }),
        Some(ReadingEvent::ReadingReported { .. }) => None,
    }
}

fn after_rule(event: Option<&RuleEvent>) -> Option<RuleEvent> {
    let webhook = RuleAction::Webhook { event_type: EventType::SensorThresholdExceeded };
    let condition = Condition { operator: Operator::Between, threshold: 80.0, threshold_high: Some(90.0) };
    let changed =
        RuleSpec { name: "hot".to_owned(), condition, action: webhook, enabled: true, ..rule_spec() };
    let Some(event) = event else {
        let new = NewRule { owner: UserId(id(7)), spec: rule_spec(), after: 9 };
        return Some(RuleEvent::RuleCreated(new));
    };
    match event {
        RuleEvent::RuleCreated(_) => {
            Some(RuleEvent::RuleUpdated { from: rule_spec(), to: changed, after: 11 })
        }
        RuleEvent::RuleUpdated { .. } => Some(RuleEvent::RuleTriggered(Firing {
            reading: reading(),
            rule_name: "hot".to_owned(),
            condition,
            action: webhook,
            alarm: None,
        })),
        RuleEvent::RuleTriggered(_) => {
            let comment = Some("the boiler is being serviced".to_owned());
            Some(RuleEvent::RuleSilenced(Silence { until: Some(time()), comment }))
        }
        RuleEvent::RuleSilenced(_) => {
            Some(RuleEvent::RuleDeleted { name: "hot".to_owned(), after: 13, contacts: Vec::new() })
        }
        RuleEvent::RuleDeleted { .. } => None,
    }
}

fn after_alarm(event: Option<&AlarmEvent>) -> Option<AlarmEvent> {
    let Some(event) = event else {
        return Some(AlarmEvent::AlarmStarted(NewAlarm {
            rule_id: RuleId(id(5)),
            rule_name: "too hot".to_owned(),
            channel_id: ChannelId(id(3)),
            channel_name: "boiler".to_owned(),
            reason: AlarmReason::Condition,
            severity: Severity::Critical,
            condition: Condition { operator: Operator::Gt, threshold: 80.5, threshold_high: None },
            rate_window_seconds: Some(60),
            started_on: time(),
            value: Some(81.25),
        }));
    };
    let later = |seconds| time() + TimeDelta::seconds(seconds);
    match event {
        AlarmEvent::AlarmStarted(_) => {
            Some(AlarmEvent::AlarmFired { fired_on: later(30), value: Some(82.5), silenced: true })
        }
        AlarmEvent::AlarmFired { .. } => {
            let comment = Some("seen".to_owned());
            let by = Acknowledged { user: UserId(id(7)), comment, silenced: true };
            Some(AlarmEvent::AlarmAcknowledged(by))
        }
        AlarmEvent::AlarmAcknowledged(_) => Some(AlarmEvent::AlarmUnacknowledged),
        AlarmEvent::AlarmUnacknowledged => Some(AlarmEvent::AlarmAnnounced),
        AlarmEvent::AlarmAnnounced => {
            Some(AlarmEvent::AlarmCleared { cleared_on: later(90), value: Some(70.0), silenced: false })
        }
        AlarmEvent::AlarmCleared { .. } => None,
    }
}
