use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Leg, NewTransfer, Phase, StagedFile, TransferCommand, TransferEvent, TransferStatus};
use crate::{
    kernel::{Claim, ClaimOp, Decider, Rejection, Sha256Hex},
    transfer::agent::{AGENT_CLAIM, unknown_agent},
};

/// State of one transfer.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Transfer {
    pub(super) spec: Option<NewTransfer>,
    pub(super) status: TransferStatus,
    pub(super) phase: Phase,
    pub(super) attempt: u32,
    /// Whether the agent that acts next has been notified.
    pub(super) asked: bool,
    pub(super) files: BTreeMap<String, FileState>,
    pub(super) digest: Option<Sha256Hex>,
    pub(super) uploaded: u64,
    pub(super) downloaded: u64,
    pub(super) late_reports: u32,
    /// Whether a report of the source agent about its upload may still arrive.
    #[serde(default)]
    pub(super) unreported_upload: bool,
    pub(super) cleaned: bool,
    #[serde(default)]
    pub(super) deleted: bool,
}

/// Size and digest of a staged entry, keyed by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileState {
    pub(super) size: u64,
    pub(super) sha256: Sha256Hex,
}

impl Decider for Transfer {
    const TYPE: &'static str = "transfer";
    const CONTEXT: &'static str = "transfer";
    const STATE_VERSION: i32 = 2;
    const IS_ONE_TRACE: bool = true;
    // A tree of thousands of files makes thousands of events.
    const SNAPSHOT_EVERY: Option<i64> = Some(100);
    type Command = TransferCommand;
    type Event = TransferEvent;

    fn decide(&self, command: TransferCommand) -> Result<Vec<TransferEvent>, Rejection> {
        self.decide_command(command)
    }

    fn evolve(&mut self, event: TransferEvent) {
        match event {
            TransferEvent::TransferRequested(new) => self.spec = Some(new),
            TransferEvent::TransferDispatched { attempt, leg } => self.begin(attempt, leg),
            TransferEvent::TransferProgressed { leg, bytes, .. } => self.progress(leg, bytes),
            TransferEvent::FilesStaged { files } => self.stage(files),
            TransferEvent::TransferStaged { sha256, size, unreported, .. } => {
                self.unreported_upload = unreported;
                self.phase = Phase::Staged;
                self.asked = false;
                self.status = TransferStatus::Running;
                self.digest = Some(sha256);
                self.uploaded = size;
            }
            TransferEvent::TransferRequeued { discard, .. } => self.requeue(discard),
            TransferEvent::TransferCompleted { .. } => self.end(TransferStatus::Completed),
            TransferEvent::TransferFailed { .. } => self.end(TransferStatus::Failed),
            TransferEvent::TransferCancelled => self.end(TransferStatus::Cancelled),
            TransferEvent::LateReportReceived { .. } => {
                self.late_reports += 1;
                self.unreported_upload = false;
            }
            TransferEvent::StagedBytesDeleted => self.cleaned = true,
            TransferEvent::TransferDeleted => self.deleted = true,
        }
    }

    fn claims(_id: Uuid, event: &TransferEvent) -> Vec<Claim> {
        let TransferEvent::TransferRequested(new) = event else { return Vec::new() };
        let agents = new.source_agent.into_iter().chain([new.destination_agent]);
        agents.map(|agent| Claim::new(ClaimOp::Require, AGENT_CLAIM, agent.id.to_string())).collect()
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        unknown_agent()
    }
}

impl Transfer {
    fn begin(&mut self, attempt: u32, leg: Leg) {
        self.attempt = attempt;
        self.asked = true;
        self.downloaded = 0;
        self.phase = match leg {
            Leg::Upload => Phase::Dispatched,
            Leg::Download => Phase::Staged,
        };
    }

    fn requeue(&mut self, discard: bool) {
        self.phase = Phase::Queued;
        if discard {
            self.files.clear();
            self.uploaded = 0;
        }
    }

    fn progress(&mut self, leg: Leg, bytes: u64) {
        self.status = TransferStatus::Running;
        match leg {
            Leg::Upload => {
                self.phase = Phase::Uploading;
                self.uploaded = bytes;
            }
            Leg::Download => {
                self.phase = Phase::Downloading;
                self.downloaded = bytes;
            }
        }
    }

    fn stage(&mut self, files: Vec<StagedFile>) {
        self.phase = Phase::Uploading;
        self.status = TransferStatus::Running;
        for StagedFile { name, size, sha256 } in files {
            self.files.insert(name, FileState { size, sha256 });
        }
    }

    fn end(&mut self, status: TransferStatus) {
        self.status = status;
        self.phase = Phase::Done;
    }

    /// Digest of all staged entries: of a single file its own, of a tree that of its sorted list.
    pub(super) fn compute_digest(&self, tree: bool) -> Option<Sha256Hex> {
        if !tree {
            return self.files.values().next_back().map(|file| file.sha256.clone());
        }
        Some(digest_lines(self.files.iter().map(|(name, file)| (name.as_str(), &file.sha256))))
    }
}

/// SHA-256 over one line `<sha256>  <name>\n` per entry; `entries` are sorted by the bytes of their names.
pub fn digest_lines<'a>(entries: impl Iterator<Item = (&'a str, &'a Sha256Hex)>) -> Sha256Hex {
    let mut hasher = Sha256::new();
    for (name, sha256) in entries {
        hasher.update(sha256.as_str());
        hasher.update("  ");
        hasher.update(name);
        hasher.update("\n");
    }
    Sha256Hex::from_bytes(&hasher.finalize())
}
