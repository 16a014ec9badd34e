//! Background work that events cause.
//!
//! Every worker is level-triggered: a wakeup or a period starts one bounded, idempotent step that reads the read models
//! and the log and does the outstanding work. Its results are commands. One process is active per kind of worker, by a
//! lease, except for workers that share their work; if two ever do the same, the aggregates accept only one.

mod absence;
mod alarms;
mod cleanup;
mod dispatch;
mod error;
mod extraction;
mod failures;
mod faults;
mod firmware;
mod hash_chain_writer;
mod health;
mod housekeeping;
mod indexer;
mod notifications;
mod presence;
mod readings;
mod reconcile;
mod relay;
mod retention;
mod rules;
mod run;
mod scheduler;
mod skipped;
mod staged;
mod stall;
mod tried;
mod webhooks;
mod worker;

use signalbox_projections::relay_checkpoint as checkpoint;

pub use absence::AbsenceReporter;
pub use alarms::Alarms;
pub use cleanup::{BlobSweep, Cleanup};
pub use dispatch::Dispatcher;
pub use error::WorkerError;
pub use extraction::{ExtractionCleanup, ExtractionRunner, TextSweep};
pub use faults::FaultReporter;
pub use firmware::FirmwareRunner;
pub use hash_chain_writer::HashChainWriter;
pub use health::{HealthReporter, HealthWatch};
pub use housekeeping::Housekeeping;
pub use indexer::Indexer;
pub use notifications::Notifications;
pub use presence::PresenceSweep;
pub use readings::Readings;
pub use reconcile::Reconciler;
pub use relay::Relay;
pub use retention::{Retention, removal_entry, retention_entry, rollup_entry};
pub use rules::{RuleEvaluation, RuleLog};
pub use run::{Workers, run};
pub use scheduler::Scheduler;
pub use staged::StagedSweep;
pub use stall::StallSweep;
pub use webhooks::{DeliveryRemoval, WebhookDelivery, WebhookFanOut, WebhookReplay};
pub use worker::{Context, Worker};
