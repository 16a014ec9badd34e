//! `COPY` of the rows that are in an archive, out of one database and into another.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use futures::StreamExt;
use signalbox_database::begin;
use sqlx::{Executor, PgPool};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncWriteExt, BufWriter},
};

/// Those of its tables that have more than a few rows, and whether they have partitions by day.
const TABLES: [(&str, bool); 6] = [
    ("events", false),
    ("datapoint_log", true),
    ("datapoint_batches", true),
    ("datapoint_tombstones", true),
    ("claims", false),
    ("command_outcomes", false),
];
const BUFFER: usize = 1 << 20;

fn file(folder: &Path, table: &str) -> PathBuf {
    folder.join(format!("{table}.copy"))
}

/// Seconds to copy the rows into files in `folder`.
pub async fn out(pool: &PgPool, folder: &Path) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut moment = begin(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    for (table, _) in TABLES {
        let mut written = BufWriter::with_capacity(BUFFER, File::create(file(folder, table)).await?);
        // A table with partitions has no rows of its own.
        let mut rows = moment.copy_out_raw(&format!("COPY (SELECT * FROM {table}) TO STDOUT")).await?;
        while let Some(row) = rows.next().await {
            written.write_all(&row?).await?;
        }
        written.flush().await?;
        written.get_ref().sync_all().await?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds to copy the rows in `folder`, which are of the database at `source`, into the empty one at `pool`.
pub async fn into(source: &PgPool, pool: &PgPool, folder: &Path) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut transaction = begin(pool, "BEGIN").await?;
    for (table, is_by_day) in TABLES {
        if is_by_day {
            let days = "SELECT format('SELECT add_day(%L, %L)', $1, to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD'))
                          FROM pg_inherits WHERE inhparent = $1::regclass";
            let days: Vec<String> = sqlx::query_scalar(days).bind(table).fetch_all(source).await?;
            for day in days {
                transaction.execute(day.as_str()).await?;
            }
        }
        let mut rows = File::open(file(folder, table)).await?;
        let mut copy = transaction.copy_in_raw(&format!("COPY {table} FROM STDIN")).await?;
        loop {
            let mut piece = Vec::with_capacity(BUFFER);
            if (&mut rows).take(BUFFER as u64).read_to_end(&mut piece).await? == 0 {
                break;
            }
            copy.send(piece).await?;
        }
        copy.finish().await?;
    }
    transaction.commit().await?;
    Ok(start.elapsed().as_secs_f64())
}
