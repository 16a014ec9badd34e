//! Deliveries: claims of attempts, their results, and the schedule of further attempts.

mod decide;
mod events;
mod retry;
mod state;
mod status;
#[cfg(test)]
mod tests;

pub use events::{
    AttemptResult, Begun, CallbackDelivery, DeliveryBatch, DeliveryBatchCommand, DeliveryBatchEvent,
    DeliveryBatchEventKind, Ended, MessageDelivery, NewDelivery, Requeued, Verdict,
};
pub use retry::{MAX_ATTEMPTS, MAX_POSTPONED, MAX_POSTPONEMENT, MIN_POSTPONEMENT, RetryPolicy, fault_class};
pub use state::CLAIM_SECONDS;
pub use status::DeliveryStatus;
