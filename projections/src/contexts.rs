use crate::{
    Projection, automation::AutomationProjection, extraction::ExtractionProjection, fleet::FleetProjection,
    identity::IdentityProjection, monitoring::MonitoringProjection, transfer::TransferProjection,
};

/// The context that an aggregate type belongs to.
pub fn context_of(aggregate_type: &str) -> &'static str {
    if AutomationProjection::AGGREGATES.contains(&aggregate_type) {
        AutomationProjection::NAME
    } else if ExtractionProjection::AGGREGATES.contains(&aggregate_type) {
        ExtractionProjection::NAME
    } else if FleetProjection::AGGREGATES.contains(&aggregate_type) {
        FleetProjection::NAME
    } else if IdentityProjection::AGGREGATES.contains(&aggregate_type) {
        IdentityProjection::NAME
    } else if MonitoringProjection::AGGREGATES.contains(&aggregate_type) {
        MonitoringProjection::NAME
    } else {
        TransferProjection::NAME
    }
}
