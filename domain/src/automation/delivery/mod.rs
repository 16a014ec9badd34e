//! Deliveries: who claims an attempt, what becomes of it, when the next one is due.

mod decide;
mod events;
mod state;
#[cfg(test)]
mod tests;

pub use events::{
    AttemptResult, Begun, CallbackDelivery, Consignment, ConsignmentCommand, ConsignmentEvent, Ended,
    NewDelivery, Requeued, Verdict,
};
pub use state::{CLAIM_SECONDS, MAX_ATTEMPTS};
