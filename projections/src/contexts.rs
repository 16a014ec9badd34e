use signalbox_domain::catalog::{Aggregate, Context};

use crate::{
    Projection, automation::AutomationProjection, extraction::ExtractionProjection, fleet::FleetProjection,
    identity::IdentityProjection, monitoring::MonitoringProjection, transfer::TransferProjection,
};

/// Work that is done for the read model of a context that is known only at run time.
pub trait ProjectionVisitor {
    /// Its result.
    type Output;

    /// Does the work for `P`.
    fn visit<P: Projection>(self) -> Self::Output;
}

/// Does the work of `visitor` for the read model of `context`.
pub fn for_projection<V: ProjectionVisitor>(context: Context, visitor: V) -> V::Output {
    match context {
        Context::Automation => visitor.visit::<AutomationProjection>(),
        Context::Extraction => visitor.visit::<ExtractionProjection>(),
        Context::Fleet => visitor.visit::<FleetProjection>(),
        Context::Identity => visitor.visit::<IdentityProjection>(),
        Context::Monitoring => visitor.visit::<MonitoringProjection>(),
        Context::Transfer => visitor.visit::<TransferProjection>(),
    }
}

/// The context that an aggregate type belongs to.
pub fn context_of(aggregate_type: &str) -> &'static str {
    Aggregate::of_word(aggregate_type).map_or(Context::Transfer, Aggregate::context).word()
}
