use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ExtractionJobEvent;

/// How often a document is begun at most, whatever ends the attempts.
pub const MAX_ATTEMPTS: u32 = 3;
/// Seconds without a heartbeat after which another worker may claim the job.
pub const LEASE_SECONDS: i64 = 15;

/// A document that is read in the background.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ExtractionJob {
    pub(super) phase: Phase,
    /// Attempts that have begun.
    pub(super) attempts: u32,
    pub(super) input_kept: bool,
    pub(super) result_kept: bool,
    /// Whether the text shall be kept until its owner deletes it.
    #[serde(default)]
    pub(super) keeps: bool,
    /// Whether it is.
    #[serde(default)]
    pub(super) kept: bool,
    #[serde(default)]
    pub(super) deleted: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// It has not been submitted.
    #[default]
    Absent,
    Queued {
        /// When it may begin; at once if absent.
        due_at: Option<DateTime<Utc>>,
    },
    Processing {
        claim: Uuid,
        heard_at: DateTime<Utc>,
    },
    Completed,
    Failed,
    Cancelled,
}

impl ExtractionJob {
    pub(super) fn is_due(&self, now: DateTime<Utc>) -> bool {
        match self.phase {
            Phase::Queued { due_at } => due_at.is_none_or(|due_at| due_at <= now),
            Phase::Processing { .. } => self.has_lapsed(now) && self.attempts < MAX_ATTEMPTS,
            _ => false,
        }
    }

    /// Whether its worker has lost it.
    pub(super) fn has_lapsed(&self, now: DateTime<Utc>) -> bool {
        let Phase::Processing { heard_at, .. } = self.phase else { return false };
        heard_at + TimeDelta::seconds(LEASE_SECONDS) <= now
    }

    pub(super) fn apply(&mut self, event: ExtractionJobEvent) {
        match event {
            ExtractionJobEvent::ExtractionSubmitted(new) => {
                self.phase = Phase::Queued { due_at: None };
                self.input_kept = true;
                self.keeps = new.options.keep;
            }
            ExtractionJobEvent::ExtractionBegun { claim, at, attempt } => {
                self.phase = Phase::Processing { claim, heard_at: at };
                self.attempts = attempt;
            }
            ExtractionJobEvent::ExtractionAdvanced { claim, at, .. } => {
                self.phase = Phase::Processing { claim, heard_at: at };
            }
            ExtractionJobEvent::ExtractionCompleted { .. } => {
                self.phase = Phase::Completed;
                self.result_kept = true;
                self.kept = self.keeps;
            }
            ExtractionJobEvent::ExtractionFailed { .. } => self.phase = Phase::Failed,
            ExtractionJobEvent::ExtractionReleased { due_at, .. } => {
                self.phase = Phase::Queued { due_at: Some(due_at) };
            }
            ExtractionJobEvent::ExtractionGivenBack { .. } => {
                self.phase = Phase::Queued { due_at: None };
                self.attempts = self.attempts.saturating_sub(1);
            }
            ExtractionJobEvent::ExtractionCancelled => self.phase = Phase::Cancelled,
            ExtractionJobEvent::ExtractionRetried => self.phase = Phase::Queued { due_at: None },
            ExtractionJobEvent::ExtractionInputRemoved => self.input_kept = false,
            ExtractionJobEvent::ExtractionResultExpired => self.result_kept = false,
            ExtractionJobEvent::ExtractionDiscarded => self.kept = false,
            // Also of a job without a text, the removal of what is left is recorded, once.
            ExtractionJobEvent::ExtractionDeleted => {
                (self.deleted, self.kept, self.result_kept) = (true, false, true);
            }
        }
    }
}
