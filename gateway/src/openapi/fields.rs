//! Descriptions of fields and parameters that mean the same wherever they stand.
//!
//! A field's own doc comment takes precedence, then the same field of a related schema, so that a change of a resource
//! need not say again what the resource says.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::walk;

/// By name, unless the field says it itself.
const FIELDS: &[(&str, &str)] = &[
    ("accepted", "How many datapoints were recorded."),
    ("access_token", "JWT for the Authorization header."),
    ("admin", "Whether the user's role is `admin`."),
    ("agent_id", "Id of the agent."),
    ("backoff_seconds", "Backoff before the next attempt, in seconds."),
    ("callback_secret", "Signs the callback; as in the query."),
    ("callback_url", "Where the outcome is posted to; as in the query."),
    ("cancelled", "Jobs that were cancelled."),
    ("changelog", "What is new in this version."),
    ("channel_id", "Name that the plugin gives to the channel."),
    ("channel_name", "Display name of the channel."),
    ("completed", "Jobs that have completed."),
    ("completed_at", "When it completed; null before."),
    ("config_json", "Configuration as JSON text."),
    ("connected", "Whether the agent has answered."),
    ("contact_public_id", "Id of the contact."),
    ("content", "Text of the entry."),
    ("correlation", "Equal for everything that one cause led to."),
    ("created_at", "When it was created."),
    ("created_on", "When it was created."),
    ("current_version", "Version that is running."),
    ("data", "Entries of this page."),
    ("datapoint_public_id", "Id of the datapoint."),
    ("delivered_on", "When it was delivered; null before."),
    ("description", "Free text, up to 2,000 characters."),
    ("destination_agent_id", "Id of the agent that receives the files."),
    ("destination_path", "Where the files are written on the destination agent."),
    ("duration_ms", "How long it took, in milliseconds."),
    ("email", "E-mail address."),
    ("enabled", "Whether it is in force."),
    ("event_id", "Id of the event; equal in all its deliveries."),
    ("event_public_id", "Id of the event (channel)."),
    ("event_type", "Type of the event."),
    ("expires_at", "When it expires."),
    ("extraction_engine", "As in the query."),
    ("extractor_used", "Engine that read the document."),
    ("failed", "Jobs that have failed."),
    ("file_name", "Name of the uploaded file."),
    ("file_size_bytes", "Size of the file in bytes."),
    ("filename", "Name of the file."),
    ("finished_at", "When it ended; null before."),
    ("front_matter", "As in the query."),
    ("keep", "As in the query."),
    ("keep_input", "As in the query."),
    ("words", "As in the query."),
    ("chunks", "As in the query."),
    ("chunk_words", "As in the query."),
    ("h", "Rows covered by the widget."),
    ("has_next", "Whether another page follows."),
    ("hostname", "Host name of the agent's machine."),
    ("id", "Id of the resource, as paths name it."),
    ("installed_on", "When it was installed."),
    ("instance_name", "Unique name, up to 255 characters."),
    ("ip_address", "Address that the agent connects from."),
    ("is_global", "Whether every user sees it."),
    ("items", "Jobs of this page."),
    ("job_id", "Id of the job."),
    ("language", "ISO 639-3 code of the text's language."),
    ("last_run", "When the job ran last; null when never."),
    ("last_seen", "When the agent was heard of last; null when never."),
    (
        "last_transfer_id",
        "Id of the job's newest transfer, also if that was deleted since; null when there was none.",
    ),
    ("max_attempts", "How often it is tried at most."),
    ("max_value", "Upper bound for displays and sliders."),
    ("message", "What happened, in one sentence for people."),
    ("message_ids", "Ids of the messages; of more than 10,000, the highest are ignored."),
    ("min_value", "Lower bound for displays and sliders."),
    ("name", "Display name."),
    ("next_run", "When the schedule is due next; null without one."),
    ("ocr_enabled", "As in the query."),
    ("ocr_engine", "As in the query."),
    ("output_formats", "Ways in which a text can be written."),
    ("package_name", "Name of the Python package."),
    ("page_size", "Entries of a page at most."),
    ("password", "8 to 256 characters."),
    ("plugin_id", "Id of the plugin class."),
    ("processing", "Jobs that a worker is reading."),
    ("processing_time_ms", "How long the extraction took, in milliseconds."),
    ("processors", "What is done with the text, in this order."),
    ("processors_applied", "What was done with the text, in this order."),
    ("public_id", "Id of the resource, as paths name it."),
    ("queued", "Jobs that wait for a worker."),
    ("reason", "Why the item was not accepted."),
    ("removable", "Whether it can be uninstalled."),
    ("retry", "How transfers of the job are retried."),
    ("rule_public_id", "Id of the rule."),
    ("schedule", "Cron expression of six fields, seconds first; null without a schedule."),
    ("secret", "Signs deliveries, at most 255 characters; null when they are not signed."),
    ("sha256", "SHA-256 of the bytes, in hexadecimal."),
    ("size", "Size in bytes."),
    ("size_bytes", "Size of the document in bytes."),
    ("source_agent_id", "Id of the agent that the files come from."),
    ("source_path", "What is moved, on the source agent; a trailing `/` means the whole tree."),
    ("started_at", "When it began; null before."),
    ("started_on", "When it began."),
    ("stream_id", "Key of the aggregate."),
    ("stream_type", "Kind of the aggregate, e.g. `transfer`."),
    ("system", "Operating system of the agent's machine."),
    ("time", "When it happened."),
    ("timezone", "IANA time zone of the schedule."),
    ("title", "Heading, 1 to 255 characters."),
    ("token", "The credential itself."),
    ("total", "How many there are in all."),
    ("total_jobs", "Jobs in all."),
    ("transfer_id", "Id of the transfer."),
    ("unit", "Measurement unit; empty when there is none."),
    ("update_available", "Whether a newer version is known."),
    ("updated_at", "When it was last changed."),
    ("updated_on", "When it was last changed."),
    ("url", "Address of its documentation or target."),
    ("user_id", "Id of the user that it belongs to."),
    ("username", "User name."),
    ("value", "The measured value."),
    ("vendor", "Who made it."),
    ("version", "Version number."),
    ("w", "Columns covered by the widget."),
    ("warnings", "What could not be done, in sentences."),
    ("webhook_public_id", "Id of the webhook."),
    ("x", "Column of the widget's left edge."),
    ("y", "Row of the widget's upper edge."),
];

/// Parameters of paths.
const PATHS: &[(&str, &str)] = &[
    ("did", "Id of the delivery."),
    ("mid", "Id of the message."),
    ("id", "Id of the resource."),
    ("mapping_id", "Id of the channel mapping."),
    ("public_id", "Id of the plugin package or instance."),
    ("wid", "Id of the widget."),
    ("n", "Number of the page, from 1."),
];

type Known = BTreeMap<(String, String), String>;

/// Gives every field and parameter of `document` a description that can be given without its own words.
pub(super) fn describe(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let known = described(schemas);
    let of_refs = own_words(schemas);
    walk::fields(schemas, |schema, field, value| {
        if value.get("description").is_none() {
            let of_reference = reference(value).and_then(|name| of_refs.get(&name).cloned());
            let text = related(&known, schema, field).or(of_reference).or_else(|| common(FIELDS, field));
            if let (Some(text), Some(value)) = (text, value.as_object_mut()) {
                value.insert("description".to_owned(), text.into());
            }
        }
    });
    walk::operations(document, |operation| {
        for parameter in
            operation.value.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let name = parameter["name"].as_str().unwrap_or_default().to_owned();
            let table = if parameter["in"] == "path" { PATHS } else { FIELDS };
            let is_bare = parameter.get("description").is_none();
            let of_reference = reference(&parameter["schema"]).and_then(|name| of_refs.get(&name).cloned());
            if let Some(text) = of_reference.or_else(|| common(table, &name)).filter(|_| is_bare) {
                parameter["description"] = text.into();
            }
        }
    });
}

/// The descriptions that fields have, by schema and field.
fn described(schemas: &mut Map<String, Value>) -> Known {
    let mut known = Known::new();
    walk::fields(schemas, |schema, field, value| {
        if let Some(text) = value["description"].as_str() {
            known.insert((schema.to_owned(), field.to_owned()), text.to_owned());
        }
    });
    known
}

/// The description of each schema.
fn own_words(schemas: &Map<String, Value>) -> BTreeMap<String, String> {
    let text = |schema: &Value| schema["description"].as_str().map(str::to_owned);
    schemas.iter().filter_map(|(name, schema)| Some((name.clone(), text(schema)?))).collect()
}

/// The description of the same field in a related schema: `RuleChangesIn` follows `RuleIn`, and that `RuleOut`.
fn related(known: &Known, schema: &str, field: &str) -> Option<String> {
    let suffixes = ["ChangesIn", "CreatedOut", "In", "Out"];
    let stem = suffixes.iter().find_map(|suffix| schema.strip_suffix(suffix))?;
    let text = |suffix: &str| known.get(&(format!("{stem}{suffix}"), field.to_owned())).cloned();
    text("In").or_else(|| text("Out"))
}

fn common(table: &[(&str, &str)], name: &str) -> Option<String> {
    table.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
}

/// The component that `value` is, or may be.
fn reference(value: &Value) -> Option<String> {
    let parts = ["oneOf", "allOf", "anyOf"].into_iter().filter_map(|key| value[key].as_array()).flatten();
    let mut references = parts.chain([value]).filter_map(|part| part["$ref"].as_str());
    references.next()?.rsplit('/').next().map(str::to_owned)
}
