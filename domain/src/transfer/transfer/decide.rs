use super::{
    Arrival, Leg, NewTransfer, Phase, StagedFile, Transfer, TransferCommand, TransferEvent, state::FileState,
};
use crate::{
    kernel::{AgentId, Decider, Rejection},
    transfer::path::{valid_name, valid_path},
};

/// More entries than any tree needs; bounds the size of one aggregate.
const MAX_FILES: usize = 100_000;
/// Late reports beyond this number add nothing to the audit.
const MAX_LATE_REPORTS: u32 = 5;
const MAX_ERROR_CHARS: usize = 1000;

impl Transfer {
    pub(super) fn decide_command(&self, command: TransferCommand) -> Result<Vec<TransferEvent>, Rejection> {
        if let TransferCommand::Request(new) = command {
            return self.request(new);
        }
        let spec = self.spec.as_ref().ok_or_else(|| Rejection::not_found("Transfer"))?;
        // Late reports are recorded, as those of every transfer that has ended.
        let is_about_rest = matches!(
            command,
            TransferCommand::RecordCleanup
                | TransferCommand::ReportComplete { .. }
                | TransferCommand::ReportError { .. }
        );
        if self.deleted && !is_about_rest {
            return Err(Rejection::not_found("Transfer"));
        }
        match command {
            TransferCommand::Request(_) => Ok(Vec::new()),
            TransferCommand::Dispatch => self.dispatch(),
            TransferCommand::Progress { attempt: Some(attempt), .. } if attempt != self.attempt => {
                Ok(Vec::new())
            }
            TransferCommand::Progress { leg, bytes, total, .. } => {
                Ok(self.report_progress(leg, bytes, total))
            }
            TransferCommand::Stage { files } => self.stage_files(spec, files),
            TransferCommand::ReportComplete { agent, arrival } => {
                Ok(self.report_complete(spec, agent, arrival))
            }
            TransferCommand::Conclude { attempt, leg } => Ok(self.conclude(spec, attempt, leg)),
            TransferCommand::ReportError { agent, attempt, error, retryable } => {
                Ok(self.report_error(spec, agent, attempt, &error, retryable))
            }
            TransferCommand::Stall { attempt, phase, reason } => {
                let current = self.attempt == attempt && self.phase == phase && !self.status.is_final();
                Ok(if current { vec![self.fail_attempt(spec, &reason, true)] } else { Vec::new() })
            }
            TransferCommand::Fail { reason } if !self.status.is_final() => {
                Ok(vec![TransferEvent::TransferFailed { error: bounded(&reason) }])
            }
            TransferCommand::Fail { .. } => Ok(Vec::new()),
            TransferCommand::Cancel => self.cancel(),
            TransferCommand::RecordCleanup if self.status.is_final() && !self.cleaned => {
                Ok(vec![TransferEvent::StagedBytesDeleted])
            }
            TransferCommand::RecordCleanup => Ok(Vec::new()),
            TransferCommand::Delete => self.delete(),
        }
    }

    fn request(&self, new: NewTransfer) -> Result<Vec<TransferEvent>, Rejection> {
        if self.spec.is_some() {
            return Err(Rejection::conflict("transfer_exists", "This transfer exists already."));
        }
        valid_name("filename", &new.filename)?;
        valid_path("source_path", &new.source_path)?;
        valid_path("destination_path", &new.destination_path)?;
        let retry = new.retry.validate()?;
        let new = NewTransfer { retry, ..new };
        if new.source_agent.is_some() {
            return Ok(vec![TransferEvent::TransferRequested(new)]);
        }
        if new.is_tree() {
            return Err(Rejection::field("source_path", "must name a file: a tree is moved by agents."));
        }
        // The owner receives no request.
        let begun = TransferEvent::TransferDispatched { attempt: 1, leg: Leg::Upload };
        Ok(vec![TransferEvent::TransferRequested(new), begun])
    }

    fn dispatch(&self) -> Result<Vec<TransferEvent>, Rejection> {
        let leg = if self.digest.is_some() { Leg::Download } else { Leg::Upload };
        match self.phase {
            Phase::Queued => Ok(vec![TransferEvent::TransferDispatched { attempt: self.attempt + 1, leg }]),
            Phase::Staged if !self.asked => {
                Ok(vec![TransferEvent::TransferDispatched { attempt: self.attempt, leg }])
            }
            _ => Err(Rejection::conflict("not_due", "No agent has to be notified of the transfer now.")),
        }
    }

    fn report_progress(&self, leg: Leg, bytes: u64, total: Option<u64>) -> Vec<TransferEvent> {
        // An upload may restart from zero within an attempt; without this case its progress would be ignored until it
        // has passed the old count. Other lower reports are late messages.
        let is_progress = |before| bytes > before || (bytes == 0 && before > 0);
        let has_changed = match (leg, self.phase) {
            (Leg::Upload, Phase::Dispatched) | (Leg::Download, Phase::Staged) => true,
            (Leg::Upload, Phase::Uploading) => is_progress(self.uploaded),
            (Leg::Download, Phase::Downloading) => is_progress(self.downloaded),
            _ => false,
        };
        if has_changed { vec![TransferEvent::TransferProgressed { leg, bytes, total }] } else { Vec::new() }
    }

    fn stage_files(
        &self,
        spec: &NewTransfer,
        files: Vec<StagedFile>,
    ) -> Result<Vec<TransferEvent>, Rejection> {
        if !matches!(self.phase, Phase::Dispatched | Phase::Uploading) {
            return Err(Rejection::conflict("not_uploading", "The transfer takes no upload now."));
        }
        if self.files.len() + files.len() > MAX_FILES {
            let message = format!("A transfer holds at most {MAX_FILES} entries.");
            return Err(Rejection::invalid("too_many_files", message));
        }
        for file in &files {
            valid_name("filename", &file.name)?;
        }
        if !spec.is_tree() && files.iter().any(|file| file.name.contains('/')) {
            return Err(Rejection::invalid("invalid_filename", "A single file's name must not contain '/'."));
        }
        let other = |file: &StagedFile| !self.files.is_empty() && !self.files.contains_key(&file.name);
        if !spec.is_tree() && files.iter().any(other) {
            return Err(Rejection::conflict(
                "single_file",
                "The transfer moves one file, and has another one already.",
            ));
        }
        let known = |file: &StagedFile| {
            self.files.get(&file.name) == Some(&FileState { size: file.size, sha256: file.sha256.clone() })
        };
        let files: Vec<_> = files.into_iter().filter(|file| !known(file)).collect();
        let staged = if files.is_empty() { Vec::new() } else { vec![TransferEvent::FilesStaged { files }] };
        Ok(if spec.source_agent.is_some() { staged } else { self.end_owners_upload(spec, staged) })
    }

    /// The file of an owner is whole when it is staged: there is no report of the end of its upload.
    fn end_owners_upload(&self, spec: &NewTransfer, mut staged: Vec<TransferEvent>) -> Vec<TransferEvent> {
        let mut after = self.clone();
        staged.iter().cloned().for_each(|event| after.evolve(event));
        staged.extend(after.complete_upload(spec, &Arrival::default(), false));
        staged
    }

    /// The phase decides which leg has ended, so that it works when source and destination are one agent. The right
    /// digest proves a leg whichever attempt moved the bytes: an agent that got the request twice, or before it was
    /// restarted, may report an earlier attempt, and the start of its download may be unreported.
    fn report_complete(&self, spec: &NewTransfer, agent: AgentId, arrival: Arrival) -> Vec<TransferEvent> {
        if self.status.is_final() {
            return self.late_report(agent, None);
        }
        let Some(leg) = self.leg_of(spec, agent) else { return Vec::new() };
        if arrival.leg.is_some_and(|ended| ended != leg) {
            return Vec::new();
        }
        // An agent at both ends that does not name the leg may mean the upload that has ended without its report.
        if leg == Leg::Download
            && self.unreported_upload
            && arrival.leg.is_none()
            && spec.source_agent.is_some_and(|source| source.id == agent)
        {
            return self.late_report(agent, None);
        }
        let proven = self.is_proven(spec, leg, &arrival);
        // Between two attempts no leg is in progress that a report without a digest could be about.
        if !proven
            && (self.phase == Phase::Queued || arrival.attempt.is_some_and(|attempt| attempt != self.attempt))
        {
            return Vec::new();
        }
        match leg {
            Leg::Upload => self.complete_upload(spec, &arrival, false),
            Leg::Download if proven || self.phase == Phase::Downloading => {
                self.complete_download(spec, &arrival)
            }
            Leg::Download => Vec::new(),
        }
    }

    /// Ends a leg without its agent's report. The staged file can be checked; the file at the destination cannot.
    fn conclude(&self, spec: &NewTransfer, attempt: u32, leg: Leg) -> Vec<TransferEvent> {
        match (leg, self.phase) {
            _ if attempt != self.attempt => Vec::new(),
            (Leg::Upload, Phase::Uploading) => self.complete_upload(spec, &Arrival::default(), true),
            (Leg::Download, Phase::Downloading) => vec![TransferEvent::TransferCompleted { proven: false }],
            _ => Vec::new(),
        }
    }

    /// Whether the report proves that `leg` has ended, by the digest of the bytes that had to move.
    fn is_proven(&self, spec: &NewTransfer, leg: Leg, arrival: &Arrival) -> bool {
        let expected = match leg {
            Leg::Upload => self.compute_digest(spec.is_tree()),
            Leg::Download => self.digest.clone(),
        };
        arrival.leg == Some(leg) && arrival.sha256.is_some() && arrival.sha256 == expected
    }

    fn complete_upload(&self, spec: &NewTransfer, arrival: &Arrival, unreported: bool) -> Vec<TransferEvent> {
        let files = self.files.len() as u64;
        if let Some(reported) = arrival.files.filter(|reported| *reported != files) {
            let error = format!("the source agent reported {reported} entries, but {files} arrived");
            return vec![self.discard_attempt(spec, &error)];
        }
        let Some(sha256) = self.compute_digest(spec.is_tree()) else {
            return vec![self.fail_attempt(
                spec,
                "the source agent reported the end without an upload",
                true,
            )];
        };
        if arrival.sha256.as_ref().is_some_and(|reported| *reported != sha256) {
            let error = "the checksum that the source agent computed differs from that of the bytes received";
            return vec![self.discard_attempt(spec, error)];
        }
        let size = self.files.values().map(|file| file.size).sum();
        vec![TransferEvent::TransferStaged { files, size, sha256, unreported }]
    }

    fn complete_download(&self, spec: &NewTransfer, arrival: &Arrival) -> Vec<TransferEvent> {
        match &arrival.sha256 {
            Some(reported) if Some(reported) != self.digest.as_ref() => {
                let error = "the checksum at the destination differs from that of the bytes sent";
                vec![self.fail_attempt(spec, error, true)]
            }
            _ => vec![TransferEvent::TransferCompleted { proven: true }],
        }
    }

    fn report_error(
        &self,
        spec: &NewTransfer,
        agent: AgentId,
        attempt: Option<u32>,
        error: &str,
        retryable: bool,
    ) -> Vec<TransferEvent> {
        if self.status.is_final() {
            return self.late_report(agent, Some(bounded(error)));
        }
        let current = self.phase != Phase::Queued && attempt.is_none_or(|attempt| attempt == self.attempt);
        if !current || self.leg_of(spec, agent).is_none() {
            return Vec::new();
        }
        vec![self.fail_attempt(spec, error, retryable)]
    }

    fn fail_attempt(&self, spec: &NewTransfer, error: &str, retryable: bool) -> TransferEvent {
        let error = bounded(error);
        if retryable && self.attempt < spec.retry.max_attempts {
            let backoff_seconds = spec.retry.backoff_seconds;
            return TransferEvent::TransferRequeued {
                attempt: self.attempt,
                error,
                backoff_seconds,
                discard: false,
            };
        }
        TransferEvent::TransferFailed { error }
    }

    /// The staged files differ from the source's current files (an entry was removed, say), so the next attempt
    /// starts with no staged files.
    fn discard_attempt(&self, spec: &NewTransfer, error: &str) -> TransferEvent {
        match self.fail_attempt(spec, error, true) {
            TransferEvent::TransferRequeued { attempt, error, backoff_seconds, .. } => {
                TransferEvent::TransferRequeued { attempt, error, backoff_seconds, discard: true }
            }
            failed => failed,
        }
    }

    fn cancel(&self) -> Result<Vec<TransferEvent>, Rejection> {
        if self.status.is_final() {
            return Err(Rejection::conflict("transfer_finished", "The transfer has already ended."));
        }
        Ok(vec![TransferEvent::TransferCancelled])
    }

    fn delete(&self) -> Result<Vec<TransferEvent>, Rejection> {
        if !self.status.is_final() {
            let message = "The transfer has not ended: cancel it first.";
            return Err(Rejection::conflict("transfer_under_way", message));
        }
        Ok(vec![TransferEvent::TransferDeleted])
    }

    /// The leg in progress, or the first leg of the next attempt, if `agent` performs it.
    fn leg_of(&self, spec: &NewTransfer, agent: AgentId) -> Option<Leg> {
        let leg = match self.phase {
            Phase::Queued if self.digest.is_some() => Leg::Download,
            Phase::Queued | Phase::Dispatched | Phase::Uploading => Leg::Upload,
            Phase::Staged | Phase::Downloading => Leg::Download,
            Phase::Done => return None,
        };
        let turn = match leg {
            Leg::Upload => spec.source_agent?.id,
            Leg::Download => spec.destination_agent.id,
        };
        (turn == agent).then_some(leg)
    }

    fn late_report(&self, agent: AgentId, error: Option<String>) -> Vec<TransferEvent> {
        if self.late_reports >= MAX_LATE_REPORTS {
            return Vec::new();
        }
        vec![TransferEvent::LateReportReceived { agent, error }]
    }
}

fn bounded(error: &str) -> String {
    error.replace('\0', "").chars().take(MAX_ERROR_CHARS).collect()
}
