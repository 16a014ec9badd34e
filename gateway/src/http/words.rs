//! Closed sets of words, which the description shows as enums. Views name them by `#[schema(value_type = …)]`, so that a
//! word is written down once: where the code has an enum, its words are read from there.

use std::{borrow::Cow, fmt, sync::LazyLock};

use serde::{
    Deserializer, Serialize,
    de::{self, DeserializeOwned, Visitor},
    forward_to_deserialize_any,
};
use serde_json::Value;
use signalbox_documents::{
    Engine, FailureCode, OcrEngine as OcrEngineWord, OutputFormat as Format, Processor,
};
use signalbox_domain::{automation, catalog, extraction, fleet, identity, monitoring, transfer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr,
        schema::{Schema, Type},
    },
};

/// Types of resources that clients are notified of. The others, such as login sessions, are shown by no route.
pub(crate) static CHANGED_RESOURCES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let shown = catalog::Aggregate::ALL.iter().filter(|aggregate| is_shown(**aggregate));
    let mut words: Vec<_> = shown.map(|aggregate| aggregate.word()).collect();
    words.sort_unstable();
    words
});

/// Whether a route shows the aggregate.
fn is_shown(aggregate: catalog::Aggregate) -> bool {
    match aggregate {
        catalog::Aggregate::Agent
        | catalog::Aggregate::AgentToken
        | catalog::Aggregate::Alarm
        | catalog::Aggregate::ApiToken
        | catalog::Aggregate::Channel
        | catalog::Aggregate::Contact
        | catalog::Aggregate::Dashboard
        | catalog::Aggregate::DeliveryBatch
        | catalog::Aggregate::Experiment
        | catalog::Aggregate::ExtractionJob
        | catalog::Aggregate::Firmware
        | catalog::Aggregate::Job
        | catalog::Aggregate::LogEntry
        | catalog::Aggregate::PluginInstance
        | catalog::Aggregate::PluginPackage
        | catalog::Aggregate::Rule
        | catalog::Aggregate::Transfer
        | catalog::Aggregate::User
        | catalog::Aggregate::Webhook => true,
        catalog::Aggregate::Session | catalog::Aggregate::ReportedReading | catalog::Aggregate::Health => {
            false
        }
    }
}

macro_rules! word_sets {
    ($(#[doc = $doc:literal] $name:ident = $words:expr;)*) => {
        $(
            #[doc = $doc]
            pub(crate) enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    word_set($doc.trim(), $words.iter().copied())
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )*

        /// All sets, by their names in the description.
        pub(crate) fn all() -> Vec<(Cow<'static, str>, RefOr<Schema>)> {
            vec![$(($name::name(), $name::schema())),*]
        }
    };
}

word_sets! {
    /// The request succeeded.
    Success = ["success"];
    /// Permissions of a user; each role includes the ones before it.
    Role = of::<identity::Role>();
    /// Kind of an agent's machine.
    AgentType = of::<transfer::AgentType>();
    /// Whether an agent can be reached; `error` when it has reported one.
    AgentStatus = ["online", "offline", "error"];
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
    ContactKind = ["email", "chat", "webhook"];
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

fn word_set(description: &str, words: impl Iterator<Item = &'static str>) -> RefOr<Schema> {
    let schema = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
    schema.enum_values(Some(words)).build().into()
}

/// The words that `T` is written as, without those that are only read.
fn of<T: Serialize + DeserializeOwned>() -> Vec<&'static str> {
    let Err(Variants(words)) = T::deserialize(Probe) else { return Vec::new() };
    let is_written = |word: &str| {
        let read = serde_json::from_value::<T>(Value::from(word));
        read.ok().and_then(|value| serde_json::to_value(value).ok()) == Some(Value::from(word))
    };
    words.iter().copied().filter(|word| is_written(word)).collect()
}

/// Reads nothing, and learns which variants an enum has.
struct Probe;

#[derive(Debug)]
struct Variants(&'static [&'static str]);

impl fmt::Display for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is nothing to read")
    }
}

impl std::error::Error for Variants {}

impl de::Error for Variants {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Variants;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Variants> {
        Err(Variants(&[]))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Variants> {
        Err(Variants(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
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
