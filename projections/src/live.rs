use futures::future::{BoxFuture, join, join_all};
use signalbox_boxed::boxed;
use signalbox_domain::catalog::Context;
use signalbox_messaging::Bus;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{Leases, Projection, ProjectionVisitor, Runner, for_projection, monitoring::series::Folder};

/// A runner that is about to start.
struct Run {
    pool: PgPool,
    leases: Leases,
    bus: Bus,
    stop: CancellationToken,
}

impl ProjectionVisitor for Run {
    type Output = BoxFuture<'static, ()>;

    fn visit<P: Projection>(self) -> BoxFuture<'static, ()> {
        Box::pin(Runner::<P>::run(self.pool, self.leases, self.bus, self.stop))
    }
}

/// Keeps every read model up to date until `stop`, each as long as this process holds its lease.
#[boxed]
pub async fn keep_up(pool: PgPool, bus: Bus, stop: CancellationToken) {
    let leases = Leases::new(&pool);
    let run = || Run { pool: pool.clone(), leases: leases.clone(), bus: bus.clone(), stop: stop.clone() };
    let runners = Context::ALL.iter().map(|context| for_projection(*context, run()));
    join(join_all(runners), Folder::run(pool.clone(), leases.clone(), stop.clone())).await;
}
