//! Agents, their tokens, jobs and transfers, as tables.

mod fold;
mod past;
pub mod queries;
mod rows;

pub use fold::{TransferProjection, TransferRows};
pub use past::{past_job, past_transfer};
pub use rows::{
    AgentRow, AgentTokenRow, JobColumns, JobRow, TransferFileRow, TransferRow, mail_key, parse_mail_key,
};
