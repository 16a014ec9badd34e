//! Background work that events cause.
//!
//! Every worker is level-triggered: a wakeup or a period starts one bounded, idempotent step that reads the read models
//! and the log and does the outstanding work. Its results are commands. One process is active per kind of worker, by a
//! lease, except for workers that share their work; if two ever do the same, the aggregates accept only one.

mod automation;
mod error;
mod extraction;
mod failures;
mod fleet;
mod monitoring;
mod operation;
mod run;
mod skipped;
mod transfer;
mod tried;
mod worker;

use signalbox_projections::relay_checkpoint as checkpoint;

pub use automation::{
    Alarms, DeliveryRemoval, Notifications, Readings, RuleDisabling, RuleEvaluation, RuleLog, Senders,
    WebhookDelivery, WebhookFanOut, WebhookReplay,
};
pub use error::WorkerError;
pub use extraction::{DocumentIndex, ExtractionCleanup, ExtractionRunner, Store, TextSweep};
pub use fleet::FirmwareRunner;
pub use monitoring::{Retention, removal_entry, retention_entry, rollup_entry};
pub use operation::{
    FaultReporter, HashChainWriter, HealthReporter, HealthWatch, Housekeeping, Indexer, Relay,
};
pub use run::{Workers, run};
pub use transfer::{
    AbsenceReporter, BlobSweep, Cleanup, Dispatcher, JobRemoval, PresenceSweep, Reconciler, Scheduler,
    StagedSweep, StallSweep,
};
pub use worker::{Context, Parts, Worker};
