use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{JobSpec, NewJob, SkipReason};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum JobCommand {
    /// Create the job.
    Create(NewJob),
    /// Replace its settings.
    Update(JobSpec),
    /// Remove it; its transfers stay.
    Delete,
    /// A firing makes no transfer.
    SkipFiring {
        /// The firing.
        scheduled_for: DateTime<Utc>,
        /// Why.
        reason: SkipReason,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "an event is made, written and dropped; it is not kept in numbers"
)]
pub enum JobEvent {
    /// A job exists now.
    JobCreated(NewJob),
    /// It moves something else, or at other times.
    JobUpdated {
        /// Before.
        from: JobSpec,
        /// Now.
        to: JobSpec,
    },
    /// The job is gone.
    JobDeleted { spec: JobSpec },
    /// A firing made no transfer.
    JobFiringSkipped {
        /// The firing.
        scheduled_for: DateTime<Utc>,
        /// Why.
        reason: SkipReason,
    },
}

event_kinds!(JobEvent, JobEventKind {
    JobCreated = "job_created", "1";
    JobUpdated = "job_updated", "1";
    JobDeleted = "job_deleted", "1";
    JobFiringSkipped = "job_firing_skipped", "1";
});
