//! Agents that hold files, jobs that say what moves when, and the transfers that move it.

mod agent;
mod agent_token;
mod job;
mod schedule;
#[expect(clippy::module_inception, reason = "the context is named after its main aggregate")]
mod transfer;

pub use agent::{
    Agent, AgentCommand, AgentEvent, AgentProfile, AgentSystem, AgentType, NewAgent, TransportMode,
};
pub use agent_token::{AgentToken, AgentTokenCommand, AgentTokenEvent, NewAgentToken};
pub use job::{AgentRef, Job, JobCommand, JobEvent, JobSpec, JobType, NewJob, Overlap, Retry, SkipReason};
pub use schedule::{InvalidSchedule, Schedule};
pub use transfer::{
    Arrival, JobRef, Leg, NewTransfer, Phase, StagedFile, Transfer, TransferCommand, TransferEvent,
    TransferStatus, base_name, digest_lines,
};
