//! Removes the deliveries of deleted webhooks and contacts from the read model.
//!
//! A step removes one batch, so a subscription with millions of deliveries delays nothing. If it stops, the next step
//! continues.

use std::time::Duration;

use signalbox_domain::{
    automation::{Contact, Webhook},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::remove_deliveries;

use crate::{Context, Worker, WorkerError};

/// The worker.
#[derive(Debug)]
pub struct DeliveryRemoval;

impl Worker for DeliveryRemoval {
    const NAME: &'static str = "delivery-removal";

    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Webhook::TYPE || word == Contact::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        Ok(remove_deliveries(&context.pool).await?)
    }
}
