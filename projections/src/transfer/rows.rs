use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::{
    kernel::{AgentId, AgentTokenId, JobId, TransferId, UserId},
    transfer::{
        AgentRef, AgentStatus, AgentType, JobRef, JobSpec, JobType, Leg, Overlap, Phase, Retry, Schedule,
        TransferStatus, TransportMode,
    },
};
use signalbox_from_row::FromRow;
use uuid::Uuid;

use crate::{UnknownWord, Word, table::ReadRow};

/// The columns of a value of the domain, and the ways from one to the other, in one list: each entry has the columns with
/// their content, and the field that is made from them.
macro_rules! columns {
    (
        $(#[$about:meta])* $columns:ident of $value:ident, with $from:ident and $row:ident:
        $([$($(#[$doc:meta])* $column:ident: $type:ty = $content:expr),+] => $field:ident: $made:expr;)*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
        pub struct $columns {
            $($($(#[$doc])* pub $column: $type,)+)*
        }

        impl From<$value> for $columns {
            fn from($from: $value) -> Self {
                Self { $($($column: $content,)+)* }
            }
        }

        impl $columns {
            /// The value as the aggregate has it.
            ///
            /// # Errors
            /// [`UnknownWord`].
            pub fn to_spec(&self) -> Result<$value, UnknownWord> {
                let $row = self;
                Ok($value { $($field: $made,)* })
            }
        }
    };
}

/// A file agent.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct AgentRow {
    /// Key.
    pub id: AgentId,
    /// The integer that clients see.
    pub number: i64,
    /// Display name.
    pub name: String,
    pub agent_type: Word<AgentType>,
    /// Free text.
    pub description: Option<String>,
    pub status: Word<AgentStatus>,
    /// Version of the agent program.
    pub version_text: Option<String>,
    /// Name of the machine.
    pub hostname: Option<String>,
    /// Operating system.
    pub system: Option<String>,
    /// Address of the machine.
    pub ip_address: Option<String>,
    /// Protocol extensions that it understands.
    pub capabilities: Vec<String>,
    pub transport_mode: Option<Word<TransportMode>>,
    /// Its present session.
    pub session: Option<Uuid>,
    /// When that began.
    pub connected_at: Option<DateTime<Utc>>,
    /// Last contact by the log; presence may be more recent.
    pub last_seen: Option<DateTime<Utc>>,
    /// When its session ended, until it connects again or its absence is recorded.
    pub away_since: Option<DateTime<Utc>>,
    /// A warning for users, in one sentence.
    pub warning: Option<String>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for AgentRow {
    const TABLE: &'static str = "agents";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl AgentRow {
    /// Whether its last session was by long polling.
    pub fn polls(&self) -> bool {
        self.transport_mode.as_ref().is_some_and(|mode| mode.is(TransportMode::Polling))
    }
}

/// A deleted resource that clients know by an integer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct RemovedNumberRow {
    /// Key of the deleted resource.
    pub id: Uuid,
    /// `agent` or `job`.
    pub kind: String,
    /// The integer.
    pub number: i64,
    /// The former owner; `None` for a shared resource.
    pub owner_id: Option<UserId>,
}

impl ReadRow for RemovedNumberRow {
    const TABLE: &'static str = "removed_numbers";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// A credential of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct AgentTokenRow {
    /// Key.
    pub id: AgentTokenId,
    /// The integer that clients see.
    pub number: i64,
    /// Display name.
    pub name: String,
    pub agent_id: AgentId,
    /// The agent's integer.
    pub agent_number: i64,
    /// Free text.
    pub description: Option<String>,
    /// SHA-256 of the secret, hex.
    pub secret_sha256: String,
    /// When it stops working.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Version of the aggregate.
    pub version: i64,
}

impl ReadRow for AgentTokenRow {
    const TABLE: &'static str = "agent_tokens";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct JobRow {
    /// Key.
    pub id: JobId,
    /// The integer that clients see.
    pub number: i64,
    pub owner_id: UserId,
    #[serde(flatten)]
    #[row(flatten)]
    pub settings: JobColumns,
    /// When it last made a transfer.
    pub last_run: Option<DateTime<Utc>>,
    /// When it is due next.
    pub next_run: Option<DateTime<Utc>>,
    /// Its newest transfer.
    pub last_transfer_number: Option<i64>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl JobRow {
    /// The job as transfers name it.
    pub fn reference(&self) -> JobRef {
        JobRef { id: self.id, number: self.number }
    }
}

columns! {
    /// The settings of a job, in columns.
    JobColumns of JobSpec, with spec and row:

    [/** IANA time zone of the schedule. */ timezone: Option<String> = spec.zone()]
        => timezone: row.timezone.clone();
    [/** Display name. */ name: String = spec.name]
        => name: row.name.clone();
    [job_type: Word<JobType> = spec.kind.into()]
        => kind: row.job_type.known()?;
    [/** Whether the schedule is followed. */ enabled: bool = spec.enabled]
        => enabled: row.enabled;
    [/** Agent that holds the files. */ source_agent_id: AgentId = spec.source_agent.id,
     /** Its integer. */ source_agent_number: i64 = spec.source_agent.number]
        => source_agent: AgentRef { id: row.source_agent_id, number: row.source_agent_number };
    [/** Agent that receives them. */ destination_agent_id: AgentId = spec.destination_agent.id,
     /** Its integer. */ destination_agent_number: i64 = spec.destination_agent.number]
        => destination_agent: AgentRef { id: row.destination_agent_id, number: row.destination_agent_number };
    [/** Path on the source. */ source_path: String = spec.source_path]
        => source_path: row.source_path.clone();
    [/** Path on the destination. */ destination_path: String = spec.destination_path]
        => destination_path: row.destination_path.clone();
    [/** Cron expression. */ schedule: Option<String> = spec.schedule.map(|schedule| schedule.cron)]
        => schedule: row.schedule();
    [/** How often a transfer is tried. */ max_attempts: i32 = spec.retry.max_attempts as i32,
     /** Delay between attempts, in seconds. */ backoff_seconds: i32 = spec.retry.backoff_seconds as i32]
        => retry: Retry {
            max_attempts: row.max_attempts.unsigned_abs(),
            backoff_seconds: row.backoff_seconds.unsigned_abs(),
        };
    [overlap: Word<Overlap> = spec.overlap.into()]
        => overlap: row.overlap.known()?;
    [/** Free text. */ description: Option<String> = spec.description]
        => description: row.description.clone();
}

impl JobColumns {
    pub(super) fn schedule(&self) -> Option<Schedule> {
        let (cron, timezone) = self.schedule.clone().zip(self.timezone.clone())?;
        Some(Schedule { cron, timezone })
    }
}

impl ReadRow for JobRow {
    const TABLE: &'static str = "jobs";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct TransferRow {
    /// Key.
    pub id: TransferId,
    /// The integer that clients see.
    pub number: i64,
    pub owner_id: UserId,
    /// Its job.
    pub job_id: Option<JobId>,
    /// The job's integer.
    pub job_number: Option<i64>,
    pub job_type: Word<JobType>,
    /// Agent that holds the files; `None` where the owner uploads the file.
    pub source_agent_id: Option<AgentId>,
    /// Its integer.
    pub source_agent_number: Option<i64>,
    /// Agent that receives them.
    pub destination_agent_id: AgentId,
    /// Its integer.
    pub destination_agent_number: i64,
    /// Path on the source.
    pub source_path: String,
    /// Path on the destination.
    pub destination_path: String,
    /// Name for people.
    pub filename: String,
    /// Bytes, once known.
    pub size: Option<i64>,
    pub status: Word<TransferStatus>,
    pub phase: Word<Phase>,
    /// Attempts begun.
    pub attempts: i32,
    /// Whether the agent that acts next has been notified.
    pub asked: bool,
    /// Attempts at most.
    pub max_attempts: i32,
    /// Entries staged.
    pub file_count: i64,
    /// Bytes that have reached the gateway.
    pub uploaded: i64,
    /// Bytes that have left it.
    pub downloaded: i64,
    /// Digest of the transfer, once staged.
    pub sha256: Option<String>,
    /// Whether the destination proved the digest.
    pub proven: bool,
    /// Whether the staged bytes are gone.
    pub cleaned: bool,
    /// Whether its owner has deleted it: it is shown only as of a moment before.
    pub deleted: bool,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// When the next attempt may begin.
    pub not_before: Option<DateTime<Utc>>,
    /// When something last happened to it.
    pub active_at: DateTime<Utc>,
    /// When the first byte moved.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for TransferRow {
    const TABLE: &'static str = "transfers";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl TransferRow {
    /// Whether a whole tree is moved.
    pub fn is_tree(&self) -> bool {
        self.source_path.ends_with('/')
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.phase.is(Phase::Done)
    }
}

/// Key of the present leg's request in an agent's mailbox; `None` if no agent has to act.
pub fn mail_key(number: i64, attempt: u32, leg: Leg) -> String {
    let leg = match leg {
        Leg::Upload => "upload",
        Leg::Download => "download",
    };
    format!("transfer.{number}.{attempt}.{leg}")
}

/// The transfer's integer, the attempt and the leg whose request waits under `key`; `None` for other messages.
pub fn parse_mail_key(key: &str) -> Option<(i64, u32, Leg)> {
    let mut parts = key.strip_prefix("transfer.")?.split('.');
    let (number, attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let leg = match parts.next()? {
        "upload" => Leg::Upload,
        "download" => Leg::Download,
        _ => return None,
    };
    parts.next().is_none().then_some((number, attempt, leg))
}

/// A staged entry of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct TransferFileRow {
    /// Its transfer.
    pub transfer_id: TransferId,
    /// File name, or path in the tree.
    pub name: String,
    /// Bytes.
    pub size: i64,
    /// Of the bytes, hex.
    pub sha256: String,
}
