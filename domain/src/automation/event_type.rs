use serde::{Deserialize, Serialize};

/// The events that a webhook can subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// A value arrived on a channel; at most one in five seconds per channel.
    #[serde(rename = "sensor.reading")]
    SensorReading,
    /// A rule fired.
    #[serde(rename = "sensor.threshold_exceeded")]
    SensorThresholdExceeded,
    /// An alarm fires.
    #[serde(rename = "alarm.firing")]
    AlarmFiring,
    /// An alarm that fired is cleared.
    #[serde(rename = "alarm.cleared")]
    AlarmCleared,
    /// A user has seen an alarm.
    #[serde(rename = "alarm.acknowledged")]
    AlarmAcknowledged,
    /// An experiment began.
    #[serde(rename = "experiment.started")]
    ExperimentStarted,
    /// An experiment ended.
    #[serde(rename = "experiment.stopped")]
    ExperimentStopped,
    /// The service became worse or better.
    #[serde(rename = "system.health_changed")]
    SystemHealthChanged,
    /// A document has become text in the background.
    #[serde(rename = "extraction.completed")]
    ExtractionCompleted,
    /// A document gave no text.
    #[serde(rename = "extraction.failed")]
    ExtractionFailed,
    /// A transfer has arrived.
    #[serde(rename = "transfer.completed")]
    TransferCompleted,
    /// A transfer was given up.
    #[serde(rename = "transfer.failed")]
    TransferFailed,
    /// A transfer was cancelled by a user.
    #[serde(rename = "transfer.cancelled")]
    TransferCancelled,
    /// An agent is connected that was away before.
    #[serde(rename = "agent.online")]
    AgentOnline,
    /// An agent has been away for a minute.
    #[serde(rename = "agent.offline")]
    AgentOffline,
    /// Firmware is in force.
    #[serde(rename = "firmware.completed")]
    FirmwareCompleted,
    /// Firmware was not applied.
    #[serde(rename = "firmware.failed")]
    FirmwareFailed,
    /// An error was written to the users' log, other than one about deliveries.
    #[serde(rename = "log.entry")]
    LogEntry,
}

impl EventType {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::SensorReading,
        Self::SensorThresholdExceeded,
        Self::AlarmFiring,
        Self::AlarmCleared,
        Self::AlarmAcknowledged,
        Self::ExperimentStarted,
        Self::ExperimentStopped,
        Self::SystemHealthChanged,
        Self::ExtractionCompleted,
        Self::ExtractionFailed,
        Self::TransferCompleted,
        Self::TransferFailed,
        Self::TransferCancelled,
        Self::AgentOnline,
        Self::AgentOffline,
        Self::FirmwareCompleted,
        Self::FirmwareFailed,
        Self::LogEntry,
    ];

    /// The types that a new rule may publish: those of the specification.
    pub const OF_RULES: [Self; 5] = [
        Self::SensorReading,
        Self::SensorThresholdExceeded,
        Self::ExperimentStarted,
        Self::ExperimentStopped,
        Self::SystemHealthChanged,
    ];

    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SensorReading => "sensor.reading",
            Self::SensorThresholdExceeded => "sensor.threshold_exceeded",
            Self::AlarmFiring => "alarm.firing",
            Self::AlarmCleared => "alarm.cleared",
            Self::AlarmAcknowledged => "alarm.acknowledged",
            Self::ExperimentStarted => "experiment.started",
            Self::ExperimentStopped => "experiment.stopped",
            Self::SystemHealthChanged => "system.health_changed",
            Self::ExtractionCompleted => "extraction.completed",
            Self::ExtractionFailed => "extraction.failed",
            Self::TransferCompleted => "transfer.completed",
            Self::TransferFailed => "transfer.failed",
            Self::TransferCancelled => "transfer.cancelled",
            Self::AgentOnline => "agent.online",
            Self::AgentOffline => "agent.offline",
            Self::FirmwareCompleted => "firmware.completed",
            Self::FirmwareFailed => "firmware.failed",
            Self::LogEntry => "log.entry",
        }
    }

    /// The type that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_the_same_everywhere() {
        for known in EventType::ALL {
            assert_eq!(serde_json::to_value(known).unwrap(), known.as_str());
            assert_eq!(EventType::parse(known.as_str()), Some(known));
        }
        assert_eq!(EventType::parse("sensor.*"), None);
    }

    #[test]
    fn every_type_is_in_the_document_for_receivers() {
        let document = include_str!("../../../docs/webhooks.md");
        for known in EventType::ALL {
            assert!(document.contains(&format!("`{}`", known.as_str())), "{} is missing", known.as_str());
        }
    }
}
