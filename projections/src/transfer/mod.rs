//! Agents, their tokens, jobs and transfers, as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::TransferProjection;
pub use rows::{AgentRow, AgentTokenRow, JobRow, TransferFileRow, TransferRow, mail_key};
