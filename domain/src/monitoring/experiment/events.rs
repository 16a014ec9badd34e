use serde::{Deserialize, Serialize};

use super::NewExperiment;
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ExperimentCommand {
    /// Create it, running; refused while another one runs.
    Start(NewExperiment),
    /// Give it another name.
    Rename {
        /// The new name.
        name: String,
    },
    /// End its time.
    Stop,
    /// Remove it, and stop it before if it runs. Its datapoints stay.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExperimentEvent {
    /// An experiment exists now, and runs.
    ExperimentStarted(NewExperiment),
    /// It has another name.
    ExperimentRenamed {
        /// Old name.
        from: String,
        /// New name.
        to: String,
    },
    /// Its time has ended.
    ExperimentStopped,
    /// It is gone.
    ExperimentDeleted {
        /// Its name, which is free again.
        name: String,
    },
}

event_kinds!(ExperimentEvent, ExperimentEventKind {
    ExperimentStarted = "experiment_started", "1";
    ExperimentRenamed = "experiment_renamed", "1";
    ExperimentStopped = "experiment_stopped", "1";
    ExperimentDeleted = "experiment_deleted", "1";
});
