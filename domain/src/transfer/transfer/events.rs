use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{
    kernel::{AgentId, JobId, Sha256Hex, UserId, event_kinds},
    transfer::{AgentRef, JobSpec, JobType, Retry},
};

/// Status of a transfer for users. The last three are final.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferStatus {
    /// No byte has moved yet.
    #[default]
    Pending,
    /// Bytes move, or wait for the next attempt.
    Running,
    /// The file has arrived.
    Completed,
    /// Given up; `error` has the reason.
    Failed,
    /// Stopped by a user.
    Cancelled,
}

impl TransferStatus {
    /// Whether nothing can change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The step that an attempt is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits to be dispatched.
    #[default]
    Queued,
    /// The source agent has the request to upload.
    Dispatched,
    /// Bytes arrive from the source.
    Uploading,
    /// All bytes are staged; the destination agent is asked to download.
    Staged,
    /// Bytes go out.
    Downloading,
    /// Nothing more happens.
    Done,
}

/// Half of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leg {
    /// Source agent to gateway.
    Upload,
    /// Gateway to destination agent.
    Download,
}

/// A job as transfers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// Key of the job.
    pub id: JobId,
    /// The integer that clients see.
    pub number: i64,
}

/// A new transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTransfer {
    /// The integer that clients see; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    /// The user who may see it.
    pub owner: UserId,
    /// The job it runs, if any.
    pub job: Option<JobRef>,
    /// Which side is dispatched to first.
    #[serde(rename = "job_type")]
    pub kind: JobType,
    /// Agent that holds the files; `None` where the owner uploads the file.
    pub source_agent: Option<AgentRef>,
    /// Agent that receives them.
    pub destination_agent: AgentRef,
    /// Path on the source; a trailing `/` means the whole tree.
    pub source_path: String,
    /// Path on the destination.
    pub destination_path: String,
    /// Name for people; of a tree, its last folder.
    pub filename: String,
    /// Expected bytes, if the creator gave them.
    pub size: Option<u64>,
    /// How often it is tried.
    pub retry: Retry,
    /// The firing that made it, if a schedule did.
    pub scheduled_for: Option<DateTime<Utc>>,
}

/// The last part of a path: the name of a file or a tree. Where parts are separated by `/`, a backslash is a letter of a name.
pub fn base_name(path: &str) -> String {
    let separators: &[char] = if path.contains('/') { &['/'] } else { &['/', '\\'] };
    let name = path.trim_end_matches(separators).rsplit(separators).next().unwrap_or_default();
    if name.is_empty() { "root".to_owned() } else { name.to_owned() }
}

impl NewTransfer {
    /// A run of `job`, for the firing `scheduled_for` if a schedule made it.
    pub fn of_job(job: JobRef, owner: UserId, spec: &JobSpec, scheduled_for: Option<DateTime<Utc>>) -> Self {
        Self {
            number: 0,
            owner,
            job: Some(job),
            kind: spec.kind,
            source_agent: Some(spec.source_agent),
            destination_agent: spec.destination_agent,
            source_path: spec.source_path.clone(),
            destination_path: spec.destination_path.clone(),
            filename: base_name(&spec.source_path),
            size: None,
            retry: spec.retry,
            scheduled_for,
        }
    }

    /// Whether a whole tree is moved.
    pub fn is_tree(&self) -> bool {
        self.source_path.ends_with('/')
    }
}

/// One entry whose bytes the gateway holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// File name, or path relative to the tree's root; a directory ends in `/`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Of the bytes.
    pub sha256: Sha256Hex,
}

/// An agent's report at the end of a leg.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Attempt that ended, if reported.
    pub attempt: Option<u32>,
    /// Leg that ended, if reported.
    pub leg: Option<Leg>,
    /// Digest of the bytes that the agent read or wrote.
    pub sha256: Option<Sha256Hex>,
    /// Number of entries.
    pub files: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum TransferCommand {
    /// Create the transfer.
    Request(NewTransfer),
    /// Notify the agent that acts next: starts the next attempt of a queued transfer, or the second leg of one that
    /// has just been staged. Refused otherwise, so that only one dispatcher succeeds.
    Dispatch,
    /// Bytes have moved.
    Progress {
        /// On which leg.
        leg: Leg,
        /// Bytes so far.
        bytes: u64,
        /// Bytes in all, if known.
        total: Option<u64>,
        /// The attempt that the bytes belong to, if it is known: those of an earlier one do not count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
    /// Entries have been received whole and stored durably.
    Stage {
        /// The entries.
        files: Vec<StagedFile>,
    },
    /// An agent has ended its leg well.
    ReportComplete {
        /// Which agent.
        agent: AgentId,
        /// The agent's report.
        arrival: Arrival,
    },
    /// A leg has ended although its agent did not report it.
    Conclude {
        /// The attempt that it belongs to.
        attempt: u32,
        /// Which leg.
        leg: Leg,
    },
    /// An agent has given up.
    ReportError {
        /// Which agent.
        agent: AgentId,
        /// Attempt that failed, if reported.
        attempt: Option<u32>,
        /// Why, for people.
        error: String,
        /// Whether another attempt may help.
        retryable: bool,
    },
    /// Nothing has moved for too long in this phase of this attempt.
    Stall {
        /// The attempt that was seen to stall.
        attempt: u32,
        /// The phase it was in.
        phase: Phase,
        /// Why, for people.
        reason: String,
    },
    /// It can never succeed.
    Fail {
        /// Why, for people.
        reason: String,
    },
    /// A user stops it.
    Cancel,
    /// The staged bytes have been deleted.
    RecordCleanup,
    /// Its owner wants to see it no more.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TransferEvent {
    /// A transfer exists now.
    TransferRequested(NewTransfer),
    /// The agent that acts next has been notified.
    TransferDispatched {
        /// Counted from 1.
        attempt: u32,
        /// Which half; the download when all bytes are here.
        leg: Leg,
    },
    /// Bytes have moved.
    TransferProgressed {
        /// On which leg.
        leg: Leg,
        /// Bytes so far.
        bytes: u64,
        /// Bytes in all, if known.
        total: Option<u64>,
    },
    /// Entries are stored durably.
    FilesStaged {
        /// The entries.
        files: Vec<StagedFile>,
    },
    /// All entries are stored durably.
    TransferStaged {
        /// Number of entries.
        files: u64,
        /// Bytes of all entries.
        size: u64,
        /// Digest of the transfer.
        sha256: Sha256Hex,
        /// Whether the source agent did not report the end of its upload.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unreported: bool,
    },
    /// The attempt has failed, another one follows.
    TransferRequeued {
        /// The attempt that failed.
        attempt: u32,
        /// Why.
        error: String,
        /// Delay before the next attempt, in seconds.
        backoff_seconds: u32,
        /// Whether the entries staged so far are obsolete and the next attempt starts without any.
        #[serde(default)]
        discard: bool,
    },
    /// The file or tree has arrived.
    TransferCompleted {
        /// Whether the destination agent reported it. Otherwise the gateway only knows that all bytes reached it.
        proven: bool,
    },
    /// Given up.
    TransferFailed {
        /// Why.
        error: String,
    },
    /// A user stopped it.
    TransferCancelled,
    /// An agent reported after the end of the transfer, or of an upload that had ended without its report; the state
    /// does not change.
    LateReportReceived {
        /// Which agent.
        agent: AgentId,
        /// The error it reported, if it was one.
        error: Option<String>,
    },
    /// The staged bytes are gone.
    StagedBytesDeleted,
    /// It is not shown any more; bytes that are still staged are deleted after this.
    TransferDeleted,
}

event_kinds!(TransferEvent, TransferEventKind {
    TransferRequested = "transfer_requested", "1";
    TransferDispatched = "transfer_dispatched", "1";
    TransferProgressed = "transfer_progressed", "1";
    FilesStaged = "files_staged", "1";
    TransferStaged = "transfer_staged", "1";
    TransferRequeued = "transfer_requeued", "1";
    TransferCompleted = "transfer_completed", "1";
    TransferFailed = "transfer_failed", "1";
    TransferCancelled = "transfer_cancelled", "1";
    LateReportReceived = "late_report_received", "1";
    StagedBytesDeleted = "staged_bytes_deleted", "1";
    TransferDeleted = "transfer_deleted", "1";
});
