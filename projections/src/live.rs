use signalbox_boxed::boxed;
use signalbox_messaging::Bus;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{
    Leases, Runner, automation::AutomationProjection, extraction::ExtractionProjection,
    fleet::FleetProjection, identity::IdentityProjection, monitoring::MonitoringProjection,
    monitoring::series::Folder, transfer::TransferProjection,
};

/// Keeps every read model up to date until `stop`, each as long as this process holds its lease.
#[boxed]
pub async fn keep_up(pool: PgPool, bus: Bus, stop: CancellationToken) {
    let leases = Leases::new(&pool);
    tokio::join!(
        Runner::<AutomationProjection>::run(pool.clone(), leases.clone(), bus.clone(), stop.clone()),
        Runner::<ExtractionProjection>::run(pool.clone(), leases.clone(), bus.clone(), stop.clone()),
        Runner::<FleetProjection>::run(pool.clone(), leases.clone(), bus.clone(), stop.clone()),
        Runner::<IdentityProjection>::run(pool.clone(), leases.clone(), bus.clone(), stop.clone()),
        Runner::<MonitoringProjection>::run(pool.clone(), leases.clone(), bus.clone(), stop.clone()),
        Runner::<TransferProjection>::run(pool.clone(), leases.clone(), bus, stop.clone()),
        Folder::run(pool, leases, stop),
    );
}
