//! Tables of the schema `ops` that stand by themselves: state of running processes that neither the log nor a read model holds.
//!
//! Each table has one owner. Tables that change together with read models or with chunks of datapoints, in one transaction,
//! belong to `projections/` and `infra/datapoint_log`.

pub mod extraction_cache;
mod faults;
pub mod idempotent_requests;
pub mod login_codes;
pub mod readings_progress;
pub mod sealing_keys;
pub mod signing_keys;
mod staged_files;
mod sweep_clock;
pub mod webhook_slots;

pub(crate) use faults::report_fault_lasting;
pub use faults::{
    Fault, clear_fault, fault_entries, faults, forget_fault_entry, note_check, note_fault_entry, report_fault,
};
pub use staged_files::{
    StagedFile, forget_staged, give_up_staged, note_staged, offer_staged, postpone_staged,
};
pub use sweep_clock::{LEAP, LEAP_INTERVAL, MAX_DIFFERENCE, newest_recorded, sweep_time};
