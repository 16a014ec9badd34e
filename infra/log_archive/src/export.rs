use futures::TryStreamExt;
use serde::Serialize;
use signalbox_database::begin;
use sqlx::{Executor, PgConnection, PgPool};
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};

use crate::{
    Carried, End, FORMAT, Section, Start,
    tables::{DATAPOINTS, EVENTS, SEQUENCES, TABLES, columns, days},
};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;
/// Rows between two reports of progress.
const PACE: u64 = 1000;

/// Why nothing, or not everything, was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The database refused or did not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// The archive cannot be written.
    #[error("the archive cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

/// Writes an archive of the system at one point in time to `out`, while the system serves. `progress` receives the
/// rows of the logs written so far, and their total.
///
/// # Errors
/// [`ExportError`]; the written archive then lacks its last line.
pub async fn export(
    pool: &PgPool,
    out: impl AsyncWrite + Unpin,
    mut progress: impl FnMut(u64, u64),
) -> Result<Carried, ExportError> {
    let mut moment = begin(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    moment.execute("SET LOCAL TimeZone = 'UTC'").await?;
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let (events, datapoint_rows) = counts(&mut moment).await?;
    write_line(&mut out, &Start { signalbox_archive: FORMAT, events, datapoint_rows }).await?;
    let all = (events + datapoint_rows) as u64;
    let mut rows = 0;
    for table in TABLES {
        let columns = columns(&mut moment, table.name).await?;
        let columns: Vec<_> = columns.into_iter().map(|(name, _)| name).collect();
        let days = if table.by_day { days(&mut moment, table.name).await? } else { Vec::new() };
        let list = columns.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let select = format!("SELECT {list} FROM {} ORDER BY {}", table.name, table.order);
        write_line(&mut out, &Section { section: table.name.to_owned(), columns, days }).await?;
        let is_log = [EVENTS, DATAPOINTS].contains(&table.name);
        let before = rows;
        rows += copy_rows(&mut moment, &select, &mut out, |count| {
            if is_log {
                progress(before + count, all);
            }
        })
        .await?;
    }
    let names = ["name", "last_value"].map(str::to_owned).to_vec();
    write_line(&mut out, &Section { section: SEQUENCES.to_owned(), columns: names, days: Vec::new() })
        .await?;
    let select = "SELECT sequencename AS name, last_value FROM pg_sequences
                   WHERE schemaname = 'ops' AND last_value IS NOT NULL ORDER BY 1";
    rows += copy_rows(&mut moment, select, &mut out, |_| {}).await?;
    write_line(&mut out, &End { end: rows }).await?;
    out.flush().await?;
    moment.commit().await?;
    Ok(Carried { events, datapoint_rows, rows })
}

async fn counts(connection: &mut PgConnection) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(
        "SELECT (SELECT position FROM log_head WHERE log = 'events'), (SELECT count(*) FROM datapoint_log)",
    )
    .fetch_one(connection)
    .await
}

async fn write_line(out: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> Result<(), ExportError> {
    let mut text = serde_json::to_vec(line).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(out.write_all(&text).await?)
}

/// Writes a line of JSON for each row of `select`; returns how many.
async fn copy_rows(
    connection: &mut PgConnection,
    select: &str,
    out: &mut (impl AsyncWrite + Unpin),
    mut progress: impl FnMut(u64),
) -> Result<u64, ExportError> {
    // JSON holds neither of these characters, so nothing is quoted and a row is its text.
    let copy = format!(
        "COPY (SELECT row_to_json(r) FROM ({select}) AS r) TO STDOUT (FORMAT csv, QUOTE e'\\x01', DELIMITER e'\\x02')"
    );
    let mut lines = connection.copy_out_raw(&copy).await?;
    let mut count = 0;
    while let Some(line) = lines.try_next().await? {
        out.write_all(&line).await?;
        count += 1;
        if count % PACE == 0 {
            progress(count);
        }
    }
    Ok(count)
}
