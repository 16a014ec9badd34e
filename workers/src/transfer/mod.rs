//! Transfers from their start to their end: by schedule, through the agents, to the removal of what is not needed.

mod absence;
mod cleanup;
mod dispatch;
mod job_removal;
mod presence;
mod reconcile;
mod scheduler;
mod staged;
mod stall;
mod untaken;

pub use self::{
    absence::AbsenceReporter,
    cleanup::{BlobSweep, Cleanup},
    dispatch::Dispatcher,
    job_removal::JobRemoval,
    presence::PresenceSweep,
    reconcile::Reconciler,
    scheduler::Scheduler,
    staged::StagedSweep,
    stall::StallSweep,
};
