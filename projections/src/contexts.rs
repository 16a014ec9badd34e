use crate::{Projection, identity::IdentityProjection, transfer::TransferProjection};

/// The context that an aggregate type belongs to.
pub fn context_of(aggregate_type: &str) -> &'static str {
    if IdentityProjection::AGGREGATES.contains(&aggregate_type) {
        IdentityProjection::NAME
    } else {
        TransferProjection::NAME
    }
}
