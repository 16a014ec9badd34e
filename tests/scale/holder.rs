//! Which process holds a lease.

use std::{fs, path::Path};

use anyhow::Context as _;
use sqlx::PgPool;

/// Which of `processes` holds the lease `name`.
pub async fn of(pool: &PgPool, name: &str, processes: &[u32]) -> anyhow::Result<u32> {
    let port: i32 = sqlx::query_scalar(
        "SELECT a.client_port FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
            AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended($1, 0)",
    )
    .bind(name)
    .fetch_optional(pool)
    .await?
    .with_context(|| format!("the lease {name} has no holder"))?;
    let inode = socket_at(port)?;
    let holds = |process: &&u32| has_socket(**process, &inode);
    processes.iter().find(holds).copied().with_context(|| format!("another process holds the lease {name}"))
}

/// The socket whose own end is `port` on this machine.
fn socket_at(port: i32) -> anyhow::Result<String> {
    let own = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp")?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&own.as_str())).context("no socket has that port")?;
    Ok(format!("socket:[{}]", row.get(9).context("a socket without a number")?))
}

fn has_socket(process: u32, socket: &str) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link == Path::new(socket))
}
