//! The closed sets of words of all contexts, as the description shows them.

use std::borrow::Cow;

use signalbox_documents::{
    Engine, FailureCode, OcrEngine as OcrEngineWord, OutputFormat as Format, Processor,
};
use signalbox_domain::{automation, catalog, extraction, fleet, identity, monitoring, transfer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

pub(crate) use crate::http::word_sets::Success;
use crate::{
    http::word_sets::{of, word_set},
    services::changes::CHANGED_RESOURCES,
};

macro_rules! word_sets {
    ($(#[doc = $doc:literal] $name:ident = $words:expr;)*) => {
        $(word_set! { #[doc = $doc] $name = $words })*

        /// All sets, by their names in the description.
        pub(crate) fn all() -> Vec<(Cow<'static, str>, RefOr<Schema>)> {
            vec![$(($name::name(), $name::schema())),*]
        }
    };
}

word_sets! {
    /// Permissions of a user; each role includes the ones before it.
    Role = of::<identity::Role>();
    /// Kind of an agent's machine.
    AgentType = of::<transfer::AgentType>();
    /// Whether an agent can be reached; `error` when it has reported one.
    AgentStatus = of::<transfer::AgentStatus>();
    /// How an agent is connected.
    TransportMode = of::<transfer::TransportMode>();
    /// The agent is registered.
    Connected = ["connected"];
    /// The message was taken.
    Taken = ["ok"];
    /// Which side of a job is dispatched to first; the bytes flow the same way.
    JobType = of::<transfer::JobType>();
    /// Whether a job's schedule is followed.
    JobStatus = ["active", "paused"];
    /// Policy when a job is due while its last transfer still runs.
    Overlap = of::<transfer::Overlap>();
    /// State of a transfer; the last three are final.
    TransferStatus = of::<transfer::TransferStatus>();
    /// Step that an attempt of a transfer has reached.
    TransferPhase = of::<transfer::Phase>();
    /// Kind of a channel.
    EventKind = of::<monitoring::ChannelType>();
    /// How a widget shows its channel.
    WidgetType = of::<monitoring::WidgetType>();
    /// Severity of a log entry.
    LogType = of::<monitoring::LogType>();
    /// Whether somebody has read a log entry.
    LogStatus = of::<monitoring::LogStatus>();
    /// Whether an experiment runs.
    ExperimentStatus = ["running", "stopped"];
    /// How a value is compared with the thresholds of a rule.
    Operator = of::<automation::Operator>();
    /// State of an alarm.
    AlarmState = of::<automation::AlarmState>();
    /// Cause of an alarm: the rule's condition, or the silence of its channel.
    AlarmReason = of::<automation::AlarmReason>();
    /// How a contact is notified.
    ContactKind = of::<automation::ContactKind>();
    /// Message format of a chat.
    ChatFormat = of::<automation::ChatFormat>();
    /// The step of an alarm in a message.
    NotificationKind = of::<automation::LineKind>();
    /// Severity of an alarm.
    Severity = of::<automation::Severity>();
    /// Action of a rule when it fires.
    ActionType = of::<automation::ActionType>();
    /// Events that webhooks can subscribe to.
    WebhookEvent = of::<automation::EventType>();
    /// Events that a new rule may dispatch.
    RuleWebhookEvent = automation::EventType::OF_RULES.map(automation::EventType::as_str);
    /// When failed attempts are repeated: `default` within seconds, `standard` within days.
    WebhookRetry = of::<automation::RetryPolicy>();
    /// Signature of deliveries after Standard Webhooks: HMAC-SHA256, or ed25519.
    WebhookSignature = ["v1", "v1a"];
    /// Filter of a webhook subscription.
    WebhookFilter = ["channels", "labels", "jobs", "severity"];
    /// State of a delivery; `failed` when another attempt follows, `dead_letter` when none does.
    DeliveryStatus = of::<automation::DeliveryStatus>();
    /// Direction of a plugin's channel, seen from the service.
    Direction = of::<fleet::Direction>();
    /// State of a plugin instance.
    InstanceStatus = of::<fleet::InstanceStatus>();
    /// State of a firmware update.
    FirmwareStatus = of::<fleet::FirmwareStatus>();
    /// Origin of a plugin package.
    PackageSource = ["uploaded"];
    /// How a text is written.
    OutputFormat = of::<Format>();
    /// Engine that reads documents; `pymupdf` is another name of `pdfium`.
    ExtractionEngine = of::<Engine>();
    /// Engine that recognises text in pictures.
    OcrEngine = of::<OcrEngineWord>();
    /// Step of processing an extracted text.
    TextProcessor = of::<Processor>();
    /// State of an extraction job; the last three are final.
    ExtractionStatus = of::<extraction::ExtractionStatus>();
    /// Why a job gave no text. Later versions may add words.
    ExtractionError = extraction_errors();
    /// Unit of times in the line protocol; `n` is that of `ns`, `u` and `µ` are that of `us`.
    Precision = ["ns", "n", "us", "u", "µ", "ms", "s", "m", "h"];
    /// The text is complete.
    Extracted = ["completed"];
    /// The job waits for a worker.
    Submitted = ["queued"];
    /// Whether the service works; `degraded` while a part does not.
    HealthStatus = ["ok", "degraded"];
    /// Whether a part works.
    PartStatus = ["ok", "error"];
    /// Whether requests can be served.
    ReadyStatus = ["ok", "unavailable"];
    /// Part without which requests cannot be served.
    MissingPart =
        ["broker", "commands", "read_models", "database", "background_database", "users", "stopping"];
    /// How two versions differ at a place.
    ChangeOperation = ["add", "remove", "replace"];
    /// How exported datapoints are written.
    ExportFormat = ["csv", "ndjson"];
    /// Aggregate of the values between two points of a series.
    Aggregate = ["none", "avg", "min", "max", "minmax", "sum", "count", "first", "last"];
    /// In which order events of the log are listed.
    LogOrder = ["newest", "oldest"];
    /// Kind of a changed resource.
    ChangedResource = CHANGED_RESOURCES;
    /// Kind of an aggregate.
    LogStreamType = catalog::Aggregate::ALL.iter().map(|aggregate| aggregate.word()).collect::<Vec<_>>();
    /// Kind of an event of the log. Kinds are added, and never removed.
    LogEventType = catalog::Kind::words_where(|_| true);
    /// How an event of the log ends something.
    Outcome = ["succeeded", "failed", "cancelled", "retried"];
}

/// Those of reading a document, and those of the service itself.
fn extraction_errors() -> Vec<&'static str> {
    of::<FailureCode>().into_iter().chain(extraction::ExtractionFailure::OWN_CODES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_enum_without_its_aliases() {
        assert_eq!(of::<identity::Role>(), ["viewer", "operator", "admin"]);
        assert_eq!(
            of::<automation::EventType>(),
            automation::EventType::ALL.map(automation::EventType::as_str)
        );
    }
}
