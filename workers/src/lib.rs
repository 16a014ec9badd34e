//! Work that follows from events.
//!
//! Every worker is level-triggered: a wake-up or a period starts one bounded, idempotent step that looks at the read
//! models and the log and does what is outstanding. Its results are commands. One process is active per kind of
//! worker, by a lease, but for those that share their work; should two ever do the same, the aggregates let one of them
//! win.

mod checkpoint;
mod cleanup;
mod dispatch;
mod error;
mod extraction;
mod firmware;
mod health;
mod housekeeping;
mod indexer;
mod notary;
mod presence;
mod readings;
mod reconcile;
mod relay;
mod rules;
mod scheduler;
mod staged;
mod stall;
mod webhooks;
mod worker;

pub use cleanup::{BlobSweep, Cleanup};
pub use dispatch::Dispatcher;
pub use error::WorkerError;
pub use extraction::{ExtractionCleanup, ExtractionRunner, TextSweep};
pub use firmware::FirmwareRunner;
pub use health::{HealthReporter, HealthWatch};
pub use housekeeping::Housekeeping;
pub use indexer::Indexer;
pub use notary::Notary;
pub use presence::PresenceSweep;
pub use readings::Readings;
pub use reconcile::Reconciler;
pub use relay::Relay;
pub use rules::{RuleEvaluation, RuleLog};
pub use scheduler::Scheduler;
pub use staged::StagedSweep;
pub use stall::StallSweep;
pub use webhooks::{WebhookDelivery, WebhookFanOut, WebhookReplay};
pub use worker::{Context, Worker, run};
