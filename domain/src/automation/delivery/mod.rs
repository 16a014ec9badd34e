//! Deliveries: claims of attempts, their results, and the schedule of further attempts.

mod decide;
mod events;
mod state;
#[cfg(test)]
mod tests;

pub use events::{
    AttemptResult, Begun, CallbackDelivery, DeliveryBatch, DeliveryBatchCommand, DeliveryBatchEvent, Ended,
    NewDelivery, Requeued, Verdict,
};
pub use state::{CLAIM_SECONDS, MAX_ATTEMPTS};
