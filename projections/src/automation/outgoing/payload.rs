use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use signalbox_domain::{
    automation::{EventType, Reading},
    kernel::{AlarmId, ChannelId, ExtractionJobId, FirmwareUpdateId, RuleId, UserId},
    transfer::TransportMode,
};
use uuid::Uuid;

/// The JSON that receivers get.
#[derive(Serialize)]
pub(super) struct Payload<'a> {
    r#type: &'static str,
    time: String,
    id: Uuid,
    #[serde(flatten)]
    about: About<'a>,
}

impl<'a> Payload<'a> {
    pub(super) fn new(event_type: EventType, time: DateTime<Utc>, id: Uuid, about: About<'a>) -> Self {
        Self { r#type: event_type.as_str(), time: text_of(time), id, about }
    }
}

/// A time as payloads write it.
pub(in crate::automation) fn text_of(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, false)
}

/// The fields beside type, time and id.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum About<'a> {
    Reading(Sensor<'a>),
    Firing {
        #[serde(flatten)]
        sensor: Sensor<'a>,
        rule: &'a str,
        operator: &'static str,
        threshold: f64,
        threshold_high: Option<f64>,
    },
    Alarm(AlarmState<'a>),
    Experiment {
        experiment_name: &'a str,
        experiment_id: Uuid,
    },
    Extraction(Document<'a>),
    Health {
        status: &'static str,
        previous: &'static str,
        components: &'a BTreeMap<String, String>,
    },
    Transfer(Shipment<'a>),
    AgentOnline {
        #[serde(flatten)]
        agent: Machine<'a>,
        transport: TransportMode,
    },
    AgentOffline {
        #[serde(flatten)]
        agent: Machine<'a>,
        since: String,
    },
    FirmwareCompleted {
        firmware_id: FirmwareUpdateId,
        version: String,
        previous: Option<String>,
    },
    FirmwareFailed {
        firmware_id: FirmwareUpdateId,
        version: String,
        error: &'a str,
        error_code: &'a str,
    },
    LogEntry {
        entry_id: Uuid,
        log_type: &'static str,
        content: &'a str,
        source: &'a str,
    },
}

/// An alarm, with the value that it was judged by last.
#[derive(Serialize)]
pub(super) struct AlarmState<'a> {
    pub(super) alarm_id: AlarmId,
    pub(super) state: &'static str,
    pub(super) reason: &'static str,
    pub(super) severity: &'static str,
    pub(super) sensor: &'a str,
    pub(super) sensor_id: ChannelId,
    pub(super) value: Option<f64>,
    pub(super) rule: &'a str,
    pub(super) rule_id: RuleId,
    pub(super) operator: &'static str,
    pub(super) threshold: f64,
    pub(super) threshold_high: Option<f64>,
    pub(super) rate_window_seconds: Option<u32>,
    pub(super) started_on: String,
    pub(super) fired_on: Option<String>,
    pub(super) cleared_on: Option<String>,
    pub(super) acknowledged_by: Option<UserId>,
    pub(super) comment: Option<&'a str>,
}

/// A finished job; of the document only its name and its properties.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) job_id: ExtractionJobId,
    pub(super) status: &'static str,
    pub(super) filename: &'a str,
    pub(super) size_bytes: u64,
    pub(super) sha256: &'a str,
    pub(super) output_format: &'a str,
    pub(super) mime_type: Option<&'a str>,
    pub(super) page_count: Option<u32>,
    pub(super) processing_time_ms: Option<u64>,
    pub(super) cached: bool,
    pub(super) error: Option<&'a str>,
    pub(super) error_code: Option<&'a str>,
    /// Path of the text.
    pub(super) result: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Sensor<'a> {
    pub(super) sensor: &'a str,
    pub(super) sensor_id: ChannelId,
    pub(super) value: f64,
    pub(super) device: &'a str,
}

impl<'a> From<&'a Reading> for Sensor<'a> {
    fn from(reading: &'a Reading) -> Self {
        let Reading { channel_id, channel_name, value, device, .. } = reading;
        Self { sensor: channel_name, sensor_id: *channel_id, value: *value, device }
    }
}

/// A transfer that has ended, with the integers that clients see.
#[derive(Serialize)]
pub(super) struct Shipment<'a> {
    pub(super) transfer_id: i64,
    pub(super) status: &'static str,
    pub(super) job_id: Option<i64>,
    pub(super) source_agent_id: Option<i64>,
    pub(super) destination_agent_id: i64,
    pub(super) filename: &'a str,
    pub(super) source_path: &'a str,
    pub(super) destination_path: &'a str,
    /// Entries, bytes and digest of the staged bytes; absent before all are staged, but for a size that the creator gave.
    pub(super) files: Option<u64>,
    pub(super) size_bytes: Option<u64>,
    pub(super) sha256: Option<&'a str>,
    pub(super) error: Option<&'a str>,
}

/// An agent.
#[derive(Serialize)]
pub(super) struct Machine<'a> {
    pub(super) agent_name: &'a str,
    pub(super) agent_id: i64,
}
