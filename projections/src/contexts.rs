use crate::{
    Projection, identity::IdentityProjection, monitoring::MonitoringProjection, transfer::TransferProjection,
};

/// The context that an aggregate type belongs to.
pub fn context_of(aggregate_type: &str) -> &'static str {
    if IdentityProjection::AGGREGATES.contains(&aggregate_type) {
        IdentityProjection::NAME
    } else if MonitoringProjection::AGGREGATES.contains(&aggregate_type) {
        MonitoringProjection::NAME
    } else {
        TransferProjection::NAME
    }
}
