//! Data beside the log is deleted by the time of sweeps: PostgreSQL's clock alone deletes nothing.

use chrono::TimeDelta;
use signalbox_clock::Clock;
use signalbox_projections::{
    extraction::{anonymous, keeping},
    transfer::queries::forget_old_legs,
};

use crate::world::World;

async fn count(world: &World, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM ops.{table}");
    sqlx::query_scalar(&sql).fetch_one(world.pool()).await.unwrap()
}

#[tokio::test]
async fn notes_are_kept_while_sweeps_lag_behind_postgresql() {
    let world = World::start().await;
    let pool = world.pool();
    for sql in [
        "INSERT INTO ops.transfer_legs (transfer_id, leg, attempt, noted_at)
         VALUES (gen_random_uuid(), 'upload', 1, now() - interval '8 days')",
        "INSERT INTO ops.anonymous_jobs (job_id, network, size, noted_at)
         VALUES (gen_random_uuid(), '192.0.2.1', 1, now() - interval '2 hours')",
        "INSERT INTO ops.keeping_jobs (job_id, owner_id, size, noted_at)
         VALUES (gen_random_uuid(), gen_random_uuid(), 1, now() - interval '2 hours')",
    ] {
        sqlx::query(sql).execute(pool).await.unwrap();
    }
    let now = Clock::system().now();
    let lagging = now - TimeDelta::days(2);
    forget_old_legs(pool, lagging).await.unwrap();
    anonymous::forget(pool, lagging).await.unwrap();
    keeping::forget(pool, lagging).await.unwrap();
    const TABLES: [&str; 3] = ["transfer_legs", "anonymous_jobs", "keeping_jobs"];
    for table in TABLES {
        assert_eq!(count(&world, table).await, 1, "{table}");
    }
    forget_old_legs(pool, now).await.unwrap();
    anonymous::forget(pool, now).await.unwrap();
    keeping::forget(pool, now).await.unwrap();
    for table in TABLES {
        assert_eq!(count(&world, table).await, 0, "{table}");
    }
}
