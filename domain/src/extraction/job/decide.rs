use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{
    ExtractionFailure, ExtractionJob, ExtractionJobCommand, ExtractionJobEvent, MAX_ATTEMPTS,
    NewExtractionJob, state::Phase,
};
use crate::kernel::{Decider, Rejection};

type Decided = Result<Vec<ExtractionJobEvent>, Rejection>;

impl Decider for ExtractionJob {
    const TYPE: &'static str = "extraction_job";
    const CONTEXT: &'static str = "extraction";
    const STATE_VERSION: i32 = 1;
    const IS_ONE_TRACE: bool = true;
    type Command = ExtractionJobCommand;
    type Event = ExtractionJobEvent;

    fn decide(&self, command: ExtractionJobCommand) -> Decided {
        match command {
            ExtractionJobCommand::Submit(new) => self.submit(new),
            _ if self.phase == Phase::Absent || self.is_gone_for(&command) => {
                Err(Rejection::not_found("Job"))
            }
            ExtractionJobCommand::Begin { claim, at } => self.begin(claim, at),
            ExtractionJobCommand::Advance { claim, at, pages_done, page_count } => self
                .under(claim, ExtractionJobEvent::ExtractionAdvanced { claim, at, pages_done, page_count }),
            ExtractionJobCommand::Complete { claim, result } => {
                self.under(claim, ExtractionJobEvent::ExtractionCompleted { claim, result })
            }
            ExtractionJobCommand::Fail { claim, failure } => {
                self.under(claim, ExtractionJobEvent::ExtractionFailed { failure })
            }
            ExtractionJobCommand::Release { claim, due_at, failure } => self.release(claim, due_at, failure),
            ExtractionJobCommand::GiveBack { claim } => {
                self.under(claim, ExtractionJobEvent::ExtractionGivenBack { claim })
            }
            ExtractionJobCommand::GiveUp { at } => self.give_up(at),
            ExtractionJobCommand::Cancel => Ok(self.cancel()),
            ExtractionJobCommand::Retry => self.retry(),
            ExtractionJobCommand::RecordInputRemoved => {
                self.removed(self.input_kept, ExtractionJobEvent::ExtractionInputRemoved)
            }
            ExtractionJobCommand::RecordResultExpired => self.expire(),
            ExtractionJobCommand::Discard => self.discard(),
            ExtractionJobCommand::Delete => self.removed(true, ExtractionJobEvent::ExtractionDeleted),
        }
    }

    fn evolve(&mut self, event: ExtractionJobEvent) {
        self.apply(event);
    }
}

impl ExtractionJob {
    fn submit(&self, new: NewExtractionJob) -> Decided {
        match self.phase {
            Phase::Absent => Ok(vec![ExtractionJobEvent::ExtractionSubmitted(new)]),
            _ => Err(Rejection::conflict("job_exists", "This job has been submitted already.")),
        }
    }

    fn begin(&self, claim: Uuid, at: DateTime<Utc>) -> Decided {
        if !self.is_due(at) {
            return Err(Rejection::conflict("not_due", "The job is not waiting for a worker."));
        }
        Ok(vec![ExtractionJobEvent::ExtractionBegun { claim, at, attempt: self.attempts + 1 }])
    }

    /// Whether it was deleted, and `command` is not about what is left of it.
    fn is_gone_for(&self, command: &ExtractionJobCommand) -> bool {
        let is_removal = matches!(
            command,
            ExtractionJobCommand::RecordInputRemoved | ExtractionJobCommand::RecordResultExpired
        );
        self.deleted && !is_removal
    }

    /// Accepts `event` only from the holder of `claim`.
    fn under(&self, claim: Uuid, event: ExtractionJobEvent) -> Decided {
        match self.phase {
            Phase::Processing { claim: holder, .. } if holder == claim => Ok(vec![event]),
            _ => {
                let message = "The claim has ended: the job was cancelled, or another worker has it.";
                Err(Rejection::conflict("claim_ended", message))
            }
        }
    }

    fn release(&self, claim: Uuid, due_at: DateTime<Utc>, failure: ExtractionFailure) -> Decided {
        let event = if self.attempts < MAX_ATTEMPTS {
            ExtractionJobEvent::ExtractionReleased { claim, due_at, failure }
        } else {
            ExtractionJobEvent::ExtractionFailed { failure }
        };
        self.under(claim, event)
    }

    fn give_up(&self, at: DateTime<Utc>) -> Decided {
        if !self.has_lapsed(at) || self.attempts < MAX_ATTEMPTS {
            return Err(Rejection::conflict("not_lost", "The job can still end by itself."));
        }
        let message = format!(
            "the process that read the document ended without a word, {MAX_ATTEMPTS} times: it may be more than this machine can take"
        );
        let failure = ExtractionFailure { code: ExtractionFailure::WORKER_LOST.to_owned(), message };
        Ok(vec![ExtractionJobEvent::ExtractionFailed { failure }])
    }

    fn cancel(&self) -> Vec<ExtractionJobEvent> {
        match self.phase {
            Phase::Queued { .. } | Phase::Processing { .. } => vec![ExtractionJobEvent::ExtractionCancelled],
            _ => Vec::new(),
        }
    }

    fn retry(&self) -> Decided {
        if self.phase != Phase::Failed {
            return Ok(Vec::new());
        }
        if self.attempts >= MAX_ATTEMPTS {
            let message = "Job has exceeded maximum retry attempts";
            return Err(Rejection::conflict("attempts_exhausted", message));
        }
        if !self.input_kept {
            let message = "The document of this job is not kept any more: submit it again.";
            return Err(Rejection::conflict("input_removed", message));
        }
        Ok(vec![ExtractionJobEvent::ExtractionRetried])
    }

    fn expire(&self) -> Decided {
        if self.kept {
            return Err(Rejection::conflict("text_kept", "The text is kept until its owner deletes it."));
        }
        self.removed(self.result_kept, ExtractionJobEvent::ExtractionResultExpired)
    }

    fn discard(&self) -> Decided {
        match self.kept {
            true => Ok(vec![ExtractionJobEvent::ExtractionDiscarded]),
            false => Err(Rejection::not_found("Document")),
        }
    }

    /// A job is deleted, and blobs are removed, when it has ended.
    fn removed(&self, kept: bool, event: ExtractionJobEvent) -> Decided {
        match self.phase {
            Phase::Queued { .. } | Phase::Processing { .. } => {
                let message = "The job has not ended: cancel it first, or wait.";
                Err(Rejection::conflict("job_under_way", message))
            }
            _ => Ok(if kept { vec![event] } else { Vec::new() }),
        }
    }
}
