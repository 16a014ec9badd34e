//! The catalogue of webhook events: for each type a schema of its bodies, and an example.

use axum::Json;
use serde::Serialize;
use serde_json::{Map, Value, json};
use signalbox_domain::automation::{AlarmReason, EventType, Operator, Severity};
use signalbox_projections::automation::outgoing::example;
use utoipa::ToSchema;

use crate::{
    auth::Admin,
    problem::{Problem, ProblemOut},
};

/// All types of webhook events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventTypesOut {
    data: Vec<EventTypeOut>,
}

/// A type of webhook events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventTypeOut {
    #[schema(value_type = crate::words::WebhookEvent)]
    r#type: &'static str,
    /// When such an event is published.
    description: &'static str,
    /// The filters of a subscription that limit events of this type.
    #[schema(value_type = Vec<crate::words::WebhookFilter>)]
    filters: &'static [&'static str],
    /// JSON Schema (draft 2020-12) of the bodies.
    #[schema(value_type = Object)]
    schema: Value,
    /// A body with made-up values.
    #[schema(value_type = Object)]
    example: Value,
}

/// The types of events that webhooks can subscribe to, each with a JSON schema of its bodies and an example.
#[utoipa::path(get, path = "/api/v1/webhooks/event-types", tag = "webhooks", security(("jwt" = [])), operation_id = "list_webhook_event_types",
    responses((status = 200, body = EventTypesOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut)))]
pub(crate) async fn list(_: Admin) -> Result<Json<EventTypesOut>, Problem> {
    let entry = |event_type: EventType| -> Result<EventTypeOut, Problem> {
        Ok(EventTypeOut {
            r#type: event_type.as_str(),
            description: description(event_type),
            filters: filters(event_type),
            schema: schema(event_type),
            example: example(event_type).map_err(|error| Problem::internal(&error))?,
        })
    };
    let data = EventType::ALL.into_iter().map(entry).collect::<Result<_, _>>()?;
    Ok(Json(EventTypesOut { data }))
}

fn description(event_type: EventType) -> &'static str {
    match event_type {
        EventType::SensorReading => {
            "A value arrived on a channel of type `sensor`: the first at once, then the newest every 5 s."
        }
        EventType::SensorThresholdExceeded => "A rule with this webhook event fired.",
        EventType::AlarmFiring => "An alarm fires, or still does when the silence of its rule has ended.",
        EventType::AlarmCleared => "An alarm whose firing was published is cleared.",
        EventType::AlarmAcknowledged => "A user has acknowledged an alarm whose firing was published.",
        EventType::ExperimentStarted => "An experiment was started.",
        EventType::ExperimentStopped => "An experiment was stopped.",
        EventType::SystemHealthChanged => "The service has been worse, or better again, for 5 s.",
        EventType::ExtractionCompleted => "A document that was read in the background gave a text.",
        EventType::ExtractionFailed => "A document that was read in the background gave no text.",
        EventType::TransferCompleted => "A transfer has arrived.",
        EventType::TransferFailed => "A transfer was given up.",
        EventType::TransferCancelled => "A transfer was cancelled.",
        EventType::AgentOnline => "An agent connected for the first time, or after it had been offline.",
        EventType::AgentOffline => "An agent has been without a connection for 60 s.",
        EventType::FirmwareCompleted => "A firmware update is in force.",
        EventType::FirmwareFailed => {
            "A firmware update was not applied; the firmware before it stays in force."
        }
        EventType::LogEntry => {
            "An error was written to the log that people read, other than one about deliveries."
        }
    }
}

/// Names of the fields of `filters` that limit events of this type. A rule may publish any of the specification's types, and then the
/// event is about its channel.
fn filters(event_type: EventType) -> &'static [&'static str] {
    match event_type {
        EventType::TransferCompleted | EventType::TransferFailed | EventType::TransferCancelled => &["jobs"],
        EventType::AlarmFiring | EventType::AlarmCleared | EventType::AlarmAcknowledged => {
            &["channels", "labels", "severity"]
        }
        EventType::SensorReading
        | EventType::SensorThresholdExceeded
        | EventType::ExperimentStarted
        | EventType::ExperimentStopped
        | EventType::SystemHealthChanged => &["channels", "labels"],
        EventType::ExtractionCompleted
        | EventType::ExtractionFailed
        | EventType::AgentOnline
        | EventType::AgentOffline
        | EventType::FirmwareCompleted
        | EventType::FirmwareFailed
        | EventType::LogEntry => &[],
    }
}

/// The schema of each type's bodies, by the word for the type: for tests of receivers.
pub fn webhook_event_schemas() -> Vec<(&'static str, Value)> {
    EventType::ALL.into_iter().map(|event_type| (event_type.as_str(), schema(event_type))).collect()
}

/// The schema of bodies that events of this kind have. A body may get further fields in later versions.
fn schema(event_type: EventType) -> Value {
    let fields = fields(event_type);
    let common = [
        ("type", json!({"const": event_type.as_str()})),
        ("time", described(time(), "When it happened.")),
        ("id", described(uuid(), "Equal in all deliveries of the event.")),
    ];
    let (own, everywhere) = (names(&fields), names(&common));
    let properties = common.into_iter().chain(fields);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": event_type.as_str(),
        "description": description(event_type),
        "type": "object",
        "properties": by_name(properties),
        "required": everywhere,
    });
    if EventType::OF_RULES.contains(&event_type) && event_type != EventType::SensorThresholdExceeded {
        let fired = firing();
        let text = "A rule with this webhook event fired.";
        let (required, properties) = (names(&fired), by_name(fired));
        schema["anyOf"] = json!([
            {"required": own},
            {"description": text, "properties": properties, "required": required},
        ]);
    } else {
        schema["required"] = everywhere.into_iter().chain(own).collect();
    }
    schema
}

type Field = (&'static str, Value);

fn names(fields: &[Field]) -> Vec<&'static str> {
    fields.iter().map(|(name, _)| *name).collect()
}

fn by_name(fields: impl IntoIterator<Item = Field>) -> Map<String, Value> {
    fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn fields(event_type: EventType) -> Vec<Field> {
    match event_type {
        EventType::SensorReading => sensor(),
        EventType::SensorThresholdExceeded => firing(),
        EventType::AlarmFiring | EventType::AlarmAcknowledged => alarm("firing"),
        EventType::AlarmCleared => alarm("cleared"),
        EventType::ExperimentStarted | EventType::ExperimentStopped => {
            vec![("experiment_name", text()), ("experiment_id", uuid())]
        }
        EventType::SystemHealthChanged => vec![
            ("status", one_of(&["ok", "degraded"])),
            ("previous", one_of(&["ok", "degraded"])),
            ("components", json!({"type": "object", "additionalProperties": one_of(&["ok", "error"])})),
        ],
        EventType::ExtractionCompleted => document("completed"),
        EventType::ExtractionFailed => document("failed"),
        EventType::TransferCompleted => transfer("completed"),
        EventType::TransferFailed => transfer("failed"),
        EventType::TransferCancelled => transfer("cancelled"),
        EventType::AgentOnline => {
            vec![
                ("agent_name", text()),
                ("agent_id", count()),
                ("transport", one_of(&["websocket", "polling"])),
            ]
        }
        EventType::AgentOffline => {
            let since = described(time(), "When its connection ended.");
            vec![("agent_name", text()), ("agent_id", count()), ("since", since)]
        }
        EventType::FirmwareCompleted => vec![
            ("firmware_id", uuid()),
            ("version", text()),
            (
                "previous",
                described(or_null(text()), "The version before; null for what came with the product."),
            ),
        ],
        EventType::FirmwareFailed => {
            vec![("firmware_id", uuid()), ("version", text()), ("error", text()), ("error_code", text())]
        }
        EventType::LogEntry => vec![
            ("entry_id", uuid()),
            ("log_type", one_of(&["error"])),
            ("content", text()),
            ("source", text()),
        ],
    }
}

fn sensor() -> Vec<Field> {
    vec![("sensor", text()), ("sensor_id", uuid()), ("value", json!({"type": "number"})), ("device", text())]
}

fn firing() -> Vec<Field> {
    let mut fields = sensor();
    fields.extend([
        ("rule", text()),
        ("operator", operator()),
        ("threshold", json!({"type": "number"})),
        ("threshold_high", or_null(json!({"type": "number"}))),
    ]);
    fields
}

fn alarm(state: &str) -> Vec<Field> {
    let number = || json!({"type": "number"});
    let clock = "By the clock of the channel: the time of its newest value, and what has passed since.";
    let newest = "The newest value that was judged; null when there was none.";
    vec![
        ("alarm_id", uuid()),
        ("state", one_of(&[state])),
        ("reason", one_of(&AlarmReason::ALL.map(AlarmReason::as_str))),
        ("severity", one_of(&Severity::ALL.map(Severity::as_str))),
        ("sensor", text()),
        ("sensor_id", uuid()),
        ("value", described(or_null(number()), newest)),
        ("rule", text()),
        ("rule_id", uuid()),
        ("operator", operator()),
        ("threshold", number()),
        ("threshold_high", or_null(number())),
        ("rate_window_seconds", or_null(count())),
        ("started_on", described(time(), clock)),
        ("fired_on", or_null(time())),
        ("cleared_on", or_null(time())),
        ("acknowledged_by", described(or_null(uuid()), "The user, in alarm.acknowledged.")),
        ("comment", or_null(text())),
    ]
}

fn operator() -> Value {
    use Operator::{Between, Eq, Gt, Gte, Lt, Lte, NotBetween};
    one_of(&[Gt, Lt, Gte, Lte, Eq, Between, NotBetween].map(Operator::as_str))
}

fn document(status: &str) -> Vec<Field> {
    vec![
        ("job_id", uuid()),
        ("status", one_of(&[status])),
        ("filename", text()),
        ("size_bytes", count()),
        ("sha256", digest()),
        ("output_format", text()),
        ("mime_type", or_null(text())),
        ("page_count", or_null(count())),
        ("processing_time_ms", or_null(count())),
        ("cached", json!({"type": "boolean"})),
        ("error", or_null(text())),
        ("error_code", or_null(text())),
        ("result", described(or_null(text()), "Path of the text.")),
    ]
}

fn transfer(status: &str) -> Vec<Field> {
    vec![
        ("transfer_id", count()),
        ("status", one_of(&[status])),
        ("job_id", described(or_null(count()), "The job that it ran; null if none did.")),
        ("source_agent_id", described(or_null(count()), "Null if its owner uploaded the file.")),
        ("destination_agent_id", count()),
        ("filename", text()),
        ("source_path", text()),
        ("destination_path", text()),
        ("files", described(or_null(count()), "How many there are; null before all were received.")),
        ("size_bytes", or_null(count())),
        ("sha256", or_null(digest())),
        ("error", or_null(text())),
    ]
}

fn text() -> Value {
    json!({"type": "string"})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn digest() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
}

fn one_of(words: &[&str]) -> Value {
    json!({ "enum": words })
}

fn or_null(mut schema: Value) -> Value {
    let plain = schema["type"].take();
    schema["type"] = json!([plain, "null"]);
    schema
}

fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.into();
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_example_conforms_to_the_schema_of_its_type_alone() {
        for event_type in EventType::ALL {
            let example = example(event_type).unwrap();
            for other in EventType::ALL {
                let schema = jsonschema::draft202012::new(&schema(other)).unwrap();
                let faults: Vec<_> = schema.iter_errors(&example).map(|fault| fault.to_string()).collect();
                assert_eq!(faults.is_empty(), event_type == other, "{event_type:?} as {other:?}: {faults:?}");
            }
        }
    }

    #[test]
    fn bodies_of_rules_conform_to_every_type_that_rules_publish() {
        let fired = example(EventType::SensorThresholdExceeded).unwrap();
        for event_type in EventType::OF_RULES {
            let schema = jsonschema::draft202012::new(&schema(event_type)).unwrap();
            let mut body = fired.clone();
            body["type"] = json!(event_type.as_str());
            assert!(schema.is_valid(&body), "{event_type:?}");
            body.as_object_mut().unwrap().remove("value");
            assert!(!schema.is_valid(&body), "{event_type:?}");
        }
    }

    #[test]
    fn types_that_rules_publish_are_filtered_by_channel() {
        for event_type in EventType::OF_RULES {
            assert_eq!(filters(event_type), ["channels", "labels"], "{event_type:?}");
        }
    }

    #[test]
    fn a_schema_names_each_field_of_its_example() {
        for event_type in EventType::ALL {
            let (schema, example) = (schema(event_type), example(event_type).unwrap());
            let named: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().collect();
            let present: BTreeSet<_> = example.as_object().unwrap().keys().collect();
            assert_eq!(named, present, "{event_type:?}");
        }
    }
}
