use signalbox_config::Config;
use signalbox_database::{ReplicaState, replica_state, wal_writer_delay};
use signalbox_gateway::FRESH;
use sqlx::PgPool;
use tokio::time::timeout;

use super::{CHECK_TIMEOUT, Finding, slow};

const CHECK: &str = "replica";
/// Limit of the delay, in ms, after which commits that do not wait for the disk are sent to the replica.
const WAL_WRITER_MS: i32 = 20;

/// Checks that the replica can be read, follows, and is not slowed down by the primary.
pub(super) async fn look(config: &Config, primary: &PgPool) -> Vec<Finding> {
    let asked = async {
        let pool = signalbox_database::replica(config.database.replica_url.expose(), 1)?;
        Ok::<_, signalbox_database::DatabaseError>(vec![
            standing(&pool, primary).await?,
            delay(primary).await?,
        ])
    };
    match timeout(CHECK_TIMEOUT, asked).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => {
            let mend = "start it, or mend SIGNALBOX_DATABASE__REPLICA_URL; until then the primary is read";
            vec![Finding::warning(CHECK, error.to_string(), mend)]
        }
        Err(_) => vec![slow(CHECK)],
    }
}

async fn standing(replica: &PgPool, primary: &PgPool) -> Result<Finding, sqlx::Error> {
    let ReplicaState { is_replica, is_current, seconds } = replica_state(replica, primary).await?;
    Ok(if !is_replica {
        let mend =
            "set SIGNALBOX_DATABASE__REPLICA_URL to a streaming replica of DATABASE_URL, or leave it empty";
        Finding::failure(CHECK, "it is not a replica, and is not read", mend)
    } else if is_current || seconds < FRESH.as_secs_f64() {
        Finding::ok(CHECK, "it follows the primary")
    } else {
        let found = format!("it is {seconds:.1} s behind, and is not read");
        Finding::warning(
            CHECK,
            found,
            "see whether it is connected (pg_stat_replication on the primary) or overloaded",
        )
    })
}

async fn delay(primary: &PgPool) -> Result<Finding, sqlx::Error> {
    let delay = wal_writer_delay(primary).await?;
    Ok(if delay > WAL_WRITER_MS {
        let found = format!(
            "wal_writer_delay is {delay} ms on the primary: each write may wait that long for the replica"
        );
        Finding::warning(CHECK, found, "ALTER SYSTEM SET wal_writer_delay = '5ms'; SELECT pg_reload_conf();")
    } else {
        Finding::ok(CHECK, format!("the primary writes its log every {delay} ms at the latest"))
    })
}
