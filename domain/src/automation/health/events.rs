use serde::{Deserialize, Serialize};

use super::{HealthReport, HealthStatus};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum HealthCommand {
    /// Report the current health. A report that is older than the newest one has no effect, whichever process sends
    /// it.
    Report(HealthReport),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HealthEvent {
    /// The service became worse or better.
    HealthChanged {
        /// How it was.
        previous: HealthStatus,
        /// How it is.
        #[serde(flatten)]
        report: HealthReport,
    },
}

event_kinds!(HealthEvent, HealthEventKind {
    HealthChanged = "health_changed", "1";
});
