//! Limits of fields, from the constants by which the rules enforce them.

use std::ops::RangeInclusive;

use serde_json::{Value, json};
use signalbox_domain::{automation, fleet, identity, kernel, monitoring, transfer};

use super::walk;
use crate::{
    auth, automation::limits as rules, extract, extraction::limits as documents, fleet::limits as plugins,
    monitoring::limits as sensors, target, transfer::limits as files,
};

/// A limit of a field's values.
enum Limit {
    /// Characters of a text.
    Text(usize, usize),
    /// A text of this form.
    Pattern(&'static str),
    /// A number.
    Number(i64, i64),
    /// Entries of a list.
    Items(usize, usize),
}

use Limit::{Items, Number, Pattern, Text};

const DIGEST: Limit = Pattern("^[0-9a-fA-F]{64}$");
const LARGEST_ID: i64 = i64::MAX;

/// Limits of requests, by schema without `In` or `ChangesIn`, and field.
fn requests() -> Vec<(&'static str, &'static str, Limit)> {
    let path = || Text(1, transfer::MAX_PATH_BYTES);
    let id = || Number(1, LARGEST_ID);
    let password = || range(&auth::PASSWORD);
    let place = || Number(0, monitoring::limits::WIDGET_PLACE.into());
    let size = || Number(1, monitoring::limits::WIDGET_SIZE.into());
    vec![
        ("Acknowledge", "comment", Text(1, automation::limits::MAX_COMMENT)),
        ("Agent", "name", Text(1, transfer::limits::AGENT_NAME)),
        ("Agent", "description", Text(0, transfer::limits::MAX_DESCRIPTION)),
        ("ApiToken", "name", Text(1, identity::limits::TOKEN_NAME)),
        ("Batch", "datapoints", Items(1, sensors::MAX_ITEMS)),
        ("Claims", "controller", Text(1, plugins::MAX_CONTROLLER)),
        ("Claims", "session", Text(1, plugins::MAX_CONTROLLER)),
        ("Claims", "previous_session", Text(1, plugins::MAX_CONTROLLER)),
        ("Claims", "instances", Items(0, plugins::MAX_CLAIMED)),
        ("Contact", "name", Text(1, automation::limits::MAX_CONTACT_NAME)),
        ("Contact", "address", Text(3, automation::limits::MAX_MAIL_ADDRESS)),
        ("Contact", "url", Text(1, target::MAX_LENGTH)),
        ("Contact", "secret", Text(0, rules::MAX_SECRET)),
        ("QuietHours", "from", Pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")),
        ("QuietHours", "to", Pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")),
        ("QuietHours", "timezone", Text(1, 64)),
        ("Dashboard", "name", Text(1, monitoring::limits::DASHBOARD_NAME)),
        ("Datapoint", "event_public_id", Text(1, sensors::MAX_EVENT_ID)),
        ("Document", "language", Text(2, 3)),
        ("Event", "name", Text(1, monitoring::limits::CHANNEL_TEXT)),
        ("Event", "description", Text(0, monitoring::limits::CHANNEL_DESCRIPTION)),
        ("Event", "retention_days", Number(0, monitoring::limits::RETENTION_DAYS.into())),
        ("Event", "unit", Text(0, monitoring::limits::CHANNEL_TEXT)),
        ("Experiment", "name", Text(1, monitoring::limits::EXPERIMENT_NAME)),
        ("ExtractionJob", "language", Text(2, 3)),
        ("Pages", "language", Text(2, 3)),
        ("ExtractionJob", "callback_url", Text(1, target::MAX_LENGTH)),
        ("ExtractionJob", "callback_secret", Text(1, documents::MAX_SECRET)),
        ("ExtractionJobs", "files", Items(1, documents::BATCH)),
        ("ExtractionJobs", "language", Text(2, 3)),
        ("ExtractionJobs", "callback_url", Text(1, target::MAX_LENGTH)),
        ("ExtractionJobs", "callback_secret", Text(1, documents::MAX_SECRET)),
        ("Firmware", "version", Text(1, kernel::VERSION_LENGTH)),
        ("Firmware", "changelog", Text(0, fleet::limits::MAX_CHANGELOG)),
        ("Firmware", "download_url", Text(0, fleet::limits::MAX_URL)),
        ("Firmware", "file_hash_sha256", DIGEST),
        ("Firmware", "signature", Text(0, fleet::limits::MAX_SIGNATURE)),
        ("FirmwareApply", "download_url", Text(0, fleet::limits::MAX_URL)),
        ("FirmwareApply", "file_hash_sha256", DIGEST),
        ("FirmwareUpload", "version", Text(1, kernel::VERSION_LENGTH)),
        ("FirmwareUpload", "changelog", Text(0, fleet::limits::MAX_CHANGELOG)),
        ("FirmwareUpload", "file_hash_sha256", DIGEST),
        ("FirmwareUpload", "signature", Text(0, fleet::limits::MAX_SIGNATURE)),
        ("Instance", "plugin_id", Text(1, fleet::limits::CHANNEL_ID)),
        ("Instance", "instance_name", Text(1, fleet::limits::INSTANCE_NAME)),
        ("Instance", "config_json", Text(0, fleet::limits::INSTANCE_CONFIG)),
        ("Job", "name", Text(1, transfer::limits::JOB_NAME)),
        ("Job", "description", Text(0, transfer::limits::MAX_DESCRIPTION)),
        ("Job", "source_path", path()),
        ("Job", "destination_path", path()),
        ("Job", "source_agent_id", id()),
        ("Job", "destination_agent_id", id()),
        ("LogEntry", "content", Text(1, monitoring::limits::LOG_CONTENT)),
        ("LogEntry", "source", Text(1, monitoring::limits::LOG_SOURCE)),
        ("Mapping", "channel_id", Text(1, fleet::limits::CHANNEL_ID)),
        ("Mapping", "channel_name", Text(1, fleet::limits::CHANNEL_NAME)),
        ("Mapping", "unit", Text(0, fleet::limits::CHANNEL_UNIT)),
        ("Password", "new_password", password()),
        ("Report", "error_message", Text(0, fleet::limits::INSTANCE_ERROR)),
        ("Restore", "version", Number(1, LARGEST_ID)),
        (
            "Retry",
            "max_attempts",
            Number((*transfer::limits::ATTEMPTS.start()).into(), (*transfer::limits::ATTEMPTS.end()).into()),
        ),
        ("Retry", "backoff_seconds", Number(0, transfer::limits::MAX_BACKOFF.into())),
        ("RotateSecret", "keep_old_seconds", Number(0, rules::MAX_KEEP_SECONDS.into())),
        ("Rule", "name", Text(1, automation::limits::RULE_NAME)),
        ("Rule", "event_public_id", Text(1, sensors::MAX_EVENT_ID)),
        ("Rule", "cooldown_seconds", Number(0, automation::limits::MAX_COOLDOWN.into())),
        ("Rule", "for_seconds", Number(0, automation::limits::MAX_SECONDS.into())),
        ("Rule", "keep_firing_seconds", Number(0, automation::limits::MAX_SECONDS.into())),
        ("Rule", "no_data_seconds", Number(1, automation::limits::MAX_SECONDS.into())),
        ("Rule", "contact_ids", Items(0, automation::limits::MAX_CONTACTS)),
        ("Rule", "escalation_contact_ids", Items(0, automation::limits::MAX_CONTACTS)),
        ("Rule", "summary", Text(1, automation::limits::MAX_SUMMARY)),
        (
            "Rule",
            "remind_seconds",
            Number(automation::limits::MIN_REPETITION.into(), automation::limits::MAX_SECONDS.into()),
        ),
        (
            "Rule",
            "escalate_seconds",
            Number(automation::limits::MIN_REPETITION.into(), automation::limits::MAX_SECONDS.into()),
        ),
        ("Rule", "rate_window_seconds", Number(1, automation::limits::MAX_RATE_WINDOW.into())),
        ("Series", "event_public_ids", items(&sensors::SERIES_EVENTS)),
        ("Series", "minutes", numbers(&sensors::SERIES_MINUTES)),
        ("Series", "max_points", numbers(&sensors::SERIES_POINTS)),
        ("Series", "step_seconds", numbers(&sensors::SERIES_STEPS)),
        ("Silence", "comment", Text(1, automation::limits::MAX_COMMENT)),
        ("Token", "name", Text(1, transfer::limits::TOKEN_NAME)),
        ("Token", "description", Text(0, transfer::limits::MAX_DESCRIPTION)),
        ("Token", "agent_id", id()),
        ("Token", "expires_in", Number(i64::MIN, files::MAX_TOKEN_DAYS)),
        ("Transfer", "filename", path()),
        ("Transfer", "source_path", path()),
        ("Transfer", "destination_path", path()),
        ("Transfer", "job_id", id()),
        ("Transfer", "source_agent_id", id()),
        ("Transfer", "destination_agent_id", id()),
        ("Transfer", "size", Number(0, LARGEST_ID)),
        ("User", "email", Text(3, identity::limits::MAX_EMAIL)),
        ("User", "username", range(&identity::limits::USERNAME)),
        ("User", "password", password()),
        ("Webhook", "url", Text(1, target::MAX_LENGTH)),
        ("Webhook", "secret", Text(0, rules::MAX_SECRET)),
        ("Webhook", "events", Items(1, usize::MAX)),
        ("WebhookFilters", "channels", Items(0, automation::limits::MAX_FILTERED)),
        ("WebhookFilters", "jobs", Items(0, automation::limits::MAX_FILTERED)),
        ("Widget", "title", Text(1, monitoring::limits::WIDGET_TITLE)),
        ("Widget", "event_public_id", Text(0, sensors::MAX_EVENT_ID)),
        ("Widget", "config_json", Text(0, monitoring::limits::WIDGET_CONFIG)),
        ("Widget", "x", place()),
        ("Widget", "y", place()),
        ("Widget", "w", size()),
        ("Widget", "h", size()),
    ]
}

/// Limits of answers, by field, wherever it stands.
fn answers() -> Vec<(&'static str, &'static str, Limit)> {
    vec![
        ("Backtest", "firings", Items(0, rules::MAX_FIRINGS)),
        ("Backtest", "intervals", Items(0, rules::MAX_INTERVALS)),
        ("DeliveryDetail", "attempt_log", Items(0, 30)),
        ("DryRun", "data", Items(0, rules::SHOWN)),
        ("Transfer", "files", Items(0, files::FILES_OF_ONE as usize)),
        ("Transfer", "progress", Number(0, 1)),
        ("ExtractionJob", "progress", Number(0, 1)),
        ("ExtractionJob", "confidence", Number(0, 1)),
        ("Extract", "confidence", Number(0, 1)),
        ("Dashboard", "widgets", Items(0, monitoring::limits::MAX_WIDGETS)),
        ("Instance", "channel_mappings", Items(0, fleet::limits::MAX_MAPPINGS)),
        ("Delivery", "attempts", Number(0, automation::limits::DELIVERY_ATTEMPTS.into())),
        ("Page", "data", Items(0, *extract::PAGE_SIZES.end() as usize)),
    ]
}

fn range(characters: &RangeInclusive<usize>) -> Limit {
    Text(*characters.start(), *characters.end())
}

fn items(entries: &RangeInclusive<usize>) -> Limit {
    Items(*entries.start(), *entries.end())
}

fn numbers(values: &RangeInclusive<i64>) -> Limit {
    Number(*values.start(), *values.end())
}

/// Writes the limits into the fields of `document`.
pub(super) fn describe(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let (requests, answers) = (requests(), answers());
    walk::fields(schemas, |schema, field, value| {
        let (stem, limits) = if let Some(stem) = schema.strip_suffix("In") {
            (stem.strip_suffix("Changes").unwrap_or(stem), &requests)
        } else if schema.starts_with("Page_") {
            ("Page", &answers)
        } else {
            (schema.strip_suffix("Out").unwrap_or(schema), &answers)
        };
        if let Some((_, _, limit)) = limits.iter().find(|(known, name, _)| (*known, *name) == (stem, field)) {
            limit.write(value);
        }
    });
}

impl Limit {
    fn write(&self, schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        let mut put = |key: &str, value: Value| drop(schema.insert(key.to_owned(), value));
        match self {
            Text(least, most) => {
                if *least > 0 {
                    put("minLength", json!(least));
                }
                put("maxLength", json!(most));
            }
            Pattern(form) => put("pattern", json!(form)),
            Number(least, most) => {
                if *least > i64::MIN {
                    put("minimum", json!(least));
                }
                if *most < LARGEST_ID {
                    put("maximum", json!(most));
                }
            }
            Items(least, most) => {
                if *least > 0 {
                    put("minItems", json!(least));
                }
                if *most < usize::MAX {
                    put("maxItems", json!(most));
                }
            }
        }
    }
}
