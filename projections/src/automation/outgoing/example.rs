use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta};
use signalbox_domain::{automation::EventType, transfer::TransportMode};
use uuid::Uuid;

use super::payload::{About, AlarmState, Document, Machine, Payload, Sensor, Shipment, text_of};

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn id<I: From<Uuid>>(number: u128) -> I {
    Uuid::from_u128(0x0199_c8f1_2a40_7000_8000_0000_0000_0000 + number).into()
}

/// The JSON that receivers of `event_type` get, with made-up values.
///
/// # Errors
/// It does not serialise.
pub fn example(event_type: EventType) -> Result<serde_json::Value, serde_json::Error> {
    let time = DateTime::from_timestamp(1_760_000_000, 123_456_000).unwrap_or_default();
    let sensor = || Sensor { sensor: "Boiler", sensor_id: id(2), value: 81.25, device: "press 1" };
    let components = BTreeMap::from(
        [("broker", "error"), ("database", "ok")].map(|(part, word)| (part.to_owned(), word.to_owned())),
    );
    let document = |status| Document {
        job_id: id(4),
        status,
        filename: "invoice.pdf",
        size_bytes: 48_213,
        sha256: DIGEST,
        output_format: "markdown",
        mime_type: None,
        page_count: None,
        processing_time_ms: None,
        cached: false,
        error: None,
        error_code: None,
        result: None,
    };
    let shipment = |status| Shipment {
        transfer_id: 42,
        status,
        job_id: Some(7),
        source_agent_id: Some(1),
        destination_agent_id: 2,
        filename: "report.csv",
        source_path: "/measured/report.csv",
        destination_path: "/archive/report.csv",
        files: None,
        size_bytes: None,
        sha256: None,
        error: None,
    };
    let alarm = |state| AlarmState {
        alarm_id: id(7),
        state,
        reason: "condition",
        severity: "critical",
        sensor: "Boiler",
        sensor_id: id(2),
        value: Some(81.25),
        rule: "too hot",
        rule_id: id(8),
        operator: "gt",
        threshold: 80.0,
        threshold_high: None,
        rate_window_seconds: None,
        started_on: text_of(time - TimeDelta::seconds(60)),
        fired_on: Some(text_of(time)),
        cleared_on: None,
        acknowledged_by: None,
        comment: None,
    };
    let agent = || Machine { agent_name: "press", agent_id: 1 };
    let about = match event_type {
        EventType::SensorReading => About::Reading(sensor()),
        EventType::SensorThresholdExceeded => About::Firing {
            sensor: sensor(),
            rule: "too hot",
            operator: "gt",
            threshold: 80.0,
            threshold_high: None,
        },
        EventType::AlarmFiring => About::Alarm(alarm("firing")),
        EventType::AlarmCleared => About::Alarm(AlarmState {
            value: Some(76.5),
            cleared_on: Some(text_of(time + TimeDelta::seconds(300))),
            ..alarm("cleared")
        }),
        EventType::AlarmAcknowledged => About::Alarm(AlarmState {
            acknowledged_by: Some(id(9)),
            comment: Some("the valve is being replaced"),
            ..alarm("firing")
        }),
        EventType::ExperimentStarted | EventType::ExperimentStopped => {
            About::Experiment { experiment_name: "Trial 12", experiment_id: id(3) }
        }
        EventType::SystemHealthChanged => {
            About::Health { status: "degraded", previous: "ok", components: &components }
        }
        EventType::ExtractionCompleted => About::Extraction(Document {
            mime_type: Some("application/pdf"),
            page_count: Some(3),
            processing_time_ms: Some(840),
            result: Some(format!("/api/v1/jobs/{}/result", id::<Uuid>(4))),
            ..document("completed")
        }),
        EventType::ExtractionFailed => About::Extraction(Document {
            error: Some("the file is encrypted: remove its password and send it again"),
            error_code: Some("encrypted_file"),
            ..document("failed")
        }),
        EventType::TransferCompleted => About::Transfer(Shipment {
            files: Some(1),
            size_bytes: Some(1_048_576),
            sha256: Some(DIGEST),
            ..shipment("completed")
        }),
        EventType::TransferFailed => {
            About::Transfer(Shipment { error: Some("the file does not exist"), ..shipment("failed") })
        }
        EventType::TransferCancelled => About::Transfer(shipment("cancelled")),
        EventType::AgentOnline => About::AgentOnline { agent: agent(), transport: TransportMode::Websocket },
        EventType::AgentOffline => About::AgentOffline { agent: agent(), since: text_of(time) },
        EventType::FirmwareCompleted => About::FirmwareCompleted {
            firmware_id: id(5),
            version: "1.4.0".to_owned(),
            previous: Some("1.3.2".to_owned()),
        },
        EventType::FirmwareFailed => About::FirmwareFailed {
            firmware_id: id(5),
            version: "1.4.0".to_owned(),
            error: "download_failed: HTTP 404",
            error_code: "download_failed",
        },
        EventType::LogEntry => About::LogEntry {
            entry_id: id(6),
            log_type: "error",
            content: "Firmware 1.4.0 was not applied: the disk is full",
            source: "firmware",
        },
    };
    serde_json::to_value(Payload::new(event_type, time, id(1), about))
}
