//! Agents that hold files, jobs that define and schedule transfers, and the transfers themselves.

mod agent;
mod agent_token;
mod job;
mod path;
mod schedule;
#[expect(clippy::module_inception, reason = "the context is named after its main aggregate")]
mod transfer;

pub use agent::{
    ABSENCE_SECONDS, Agent, AgentCommand, AgentEvent, AgentEventKind, AgentProfile, AgentStatus, AgentSystem,
    AgentType, NewAgent, TransportMode,
};
pub use agent_token::{AgentToken, AgentTokenCommand, AgentTokenEvent, AgentTokenEventKind, NewAgentToken};
pub use job::{
    AgentRef, Job, JobCommand, JobEvent, JobEventKind, JobSpec, JobType, NewJob, Overlap, Retry, SkipReason,
};
pub use path::{MAX_PART_BYTES, MAX_PATH_BYTES, PathError, check_path};
pub use schedule::{InvalidSchedule, Schedule};
pub use transfer::{
    Arrival, JobRef, Leg, NewTransfer, Phase, StagedFile, Transfer, TransferCommand, TransferEvent,
    TransferEventKind, TransferStatus, base_name, digest_lines,
};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::agent::{MAX_DESCRIPTION, MAX_NAME as AGENT_NAME};
    pub use super::agent_token::MAX_NAME as TOKEN_NAME;
    pub use super::job::{ATTEMPTS, MAX_BACKOFF, MAX_NAME as JOB_NAME};
}
