//! Agents, their tokens, jobs and transfers, as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::{TransferProjection, TransferRows};
pub use rows::{AgentRow, AgentTokenRow, JobRow, TransferFileRow, TransferRow, mail_key};
