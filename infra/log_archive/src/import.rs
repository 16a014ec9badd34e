use std::io;

use serde::Deserialize;
use signalbox_database::begin;
use signalbox_datapoint_log::add_day;
use sqlx::{Executor, PgConnection, PgPool};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    sync::mpsc,
};

use crate::{
    Carried, End, FORMAT, Section, Start,
    row::{Column, push_row},
    tables::{DATAPOINTS, EVENTS, SEQUENCES, TABLES, columns},
};

/// Bytes that are read or sent at once.
const BUFFER: usize = 1 << 20;
/// Pieces that wait for PostgreSQL.
const AHEAD: usize = 4;
/// Longest line.
const MAX_LINE: u64 = 64 << 20;

/// Why nothing was imported. The system is as empty as before.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The system is in use.
    #[error(
        "the system is not empty: it has {0} events or rows of datapoints; import the archive into a fresh database"
    )]
    NotEmpty(i64),
    /// The file is not an archive, or of a later program.
    #[error("this is not an archive that this program can read: {0}")]
    NoArchive(String),
    /// A line cannot be read.
    #[error("line {line} of the archive cannot be read: {reason}")]
    Line {
        /// Which line, from 1.
        line: u64,
        reason: String,
    },
    /// The archive ends too early.
    #[error("the archive is not whole: it ends after line {0} without its last line")]
    NotWhole(u64),
    /// Lines in the middle are missing, or there twice.
    #[error(
        "the archive is not whole: {found} rows were read, and its last line says that it has {expected}; copy it again from where it was made"
    )]
    Rows {
        /// How many rows were read.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// The database refused or did not answer.
    #[error("the log cannot be written: {0}")]
    Database(#[from] sqlx::Error),
    /// The archive cannot be read.
    #[error("the archive cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// Reads an archive into an empty system: all of it, or nothing. `progress` receives the rows of the logs read so
/// far, and their total.
///
/// # Errors
/// [`ImportError`].
pub async fn import(
    pool: &PgPool,
    archive: impl AsyncRead + Unpin + Send,
    progress: impl FnMut(u64, u64) + Send,
) -> Result<Carried, ImportError> {
    let mut transaction = begin(pool, "BEGIN").await?;
    // The system must not be used meanwhile.
    transaction.execute("LOCK TABLE events, datapoint_log, log_head IN ACCESS EXCLUSIVE MODE").await?;
    check_empty(&mut transaction).await?;
    let lines = Lines { archive: BufReader::with_capacity(BUFFER, archive), line: Vec::new(), number: 0 };
    let carried = Import { connection: &mut transaction, lines, progress }.run().await?;
    transaction.commit().await?;
    Ok(carried)
}

async fn check_empty(connection: &mut PgConnection) -> Result<(), ImportError> {
    let used: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM (SELECT FROM events LIMIT 1) e) + (SELECT count(*) FROM (SELECT FROM datapoint_log LIMIT 1) d)
              + (SELECT sum(position)::bigint FROM log_head)",
    )
    .fetch_one(connection)
    .await?;
    if used == 0 { Ok(()) } else { Err(ImportError::NotEmpty(used)) }
}

struct Lines<R> {
    archive: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Takes the next line; false after the last one.
    async fn next(&mut self) -> Result<bool, ImportError> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.archive).take(MAX_LINE).read_until(b'\n', &mut self.line).await?;
        if read > 0 && self.line.pop() != Some(b'\n') {
            return Err(ImportError::NotWhole(self.number - 1));
        }
        Ok(read > 0)
    }

    fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ImportError> {
        serde_json::from_slice(&self.line).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ImportError {
        ImportError::Line { line: self.number, reason: error.to_string() }
    }

    fn not_whole(&self) -> ImportError {
        ImportError::NotWhole(self.number - 1)
    }

    /// Whether the line is of one of the rows, not of the archive itself.
    fn is_row(&self) -> bool {
        !self.line.starts_with(b"{\"section\"") && !self.line.starts_with(b"{\"end\"")
    }
}

struct Import<'a, R, P> {
    connection: &'a mut PgConnection,
    lines: Lines<R>,
    progress: P,
}

impl<R: AsyncRead + Unpin + Send, P: FnMut(u64, u64) + Send> Import<'_, R, P> {
    async fn run(mut self) -> Result<Carried, ImportError> {
        let start = self.start().await?;
        let Start { events, datapoint_rows, .. } = start;
        let mut rows = 0;
        if !self.lines.next().await? {
            return Err(self.lines.not_whole());
        }
        while self.lines.line.starts_with(b"{\"section\"") {
            let section: Section = self.lines.parse()?;
            let all = (events + datapoint_rows) as u64;
            rows += match section.section.as_str() {
                SEQUENCES => self.set_sequences().await?,
                _ => self.copy(section, rows, all).await?,
            };
        }
        let End { end } = self.lines.parse()?;
        if end != rows {
            return Err(ImportError::Rows { found: rows, expected: end });
        }
        Ok(Carried { events, datapoint_rows, rows })
    }

    async fn start(&mut self) -> Result<Start, ImportError> {
        let is_there = self.lines.next().await?;
        let start: Option<Start> = serde_json::from_slice(&self.lines.line).ok().filter(|_| is_there);
        match start {
            Some(start) if start.signalbox_archive == FORMAT => Ok(start),
            Some(later) => Err(ImportError::NoArchive(format!(
                "its format is {}, and this program reads {FORMAT}",
                later.signalbox_archive
            ))),
            None => Err(ImportError::NoArchive("it does not begin like one".to_owned())),
        }
    }

    /// Copies the rows that follow; the line after them is taken.
    async fn copy(&mut self, section: Section, before: u64, all: u64) -> Result<u64, ImportError> {
        let table = TABLES.iter().find(|table| table.name == section.section);
        let name = table.map(|table| table.name).ok_or_else(|| {
            ImportError::NoArchive(format!(
                "it holds a table that this program does not know, at line {}",
                self.lines.number
            ))
        })?;
        for day in &section.days {
            add_day(&mut *self.connection, name, *day).await?;
        }
        let columns = known_columns(self.connection, name, &section).await?;
        // An archive replaces the rows of a fresh schema.
        if ![EVENTS, DATAPOINTS].contains(&name) {
            self.connection.execute(format!("DELETE FROM {name}").as_str()).await?;
        }
        let list = columns.iter().map(|column| format!("\"{}\"", column.name)).collect::<Vec<_>>().join(", ");
        let (pieces, mut ready) = mpsc::channel::<Vec<u8>>(AHEAD);
        // The next piece is made while PostgreSQL stores the one before.
        let (lines, progress) = (&mut self.lines, &mut self.progress);
        let is_log = [EVENTS, DATAPOINTS].contains(&name);
        let making = async move {
            let mut count = 0;
            let mut piece = Vec::with_capacity(BUFFER + BUFFER / 8);
            loop {
                if !lines.next().await? {
                    return Err(lines.not_whole());
                }
                let is_row = lines.is_row();
                if is_row {
                    push_row(&mut piece, &lines.line, &columns).map_err(|error| lines.unreadable(&error))?;
                    count += 1;
                }
                if !is_row || piece.len() >= BUFFER {
                    // A receiver that has stopped reports the reason itself.
                    if pieces.send(std::mem::take(&mut piece)).await.is_err() || !is_row {
                        return Ok(count);
                    }
                    if is_log {
                        progress(before + count, all);
                    }
                }
            }
        };
        let mut copy = self.connection.copy_in_raw(&format!("COPY {name} ({list}) FROM STDIN")).await?;
        let storing = async move {
            while let Some(piece) = ready.recv().await {
                copy.send(piece).await?;
            }
            Ok::<_, sqlx::Error>(copy)
        };
        let (made, stored) = tokio::join!(making, storing);
        // The database's complaint is the cause, where both have one.
        let copy = stored?;
        match made {
            Ok(count) => {
                copy.finish().await?;
                Ok(count)
            }
            Err(error) => {
                copy.abort("the archive cannot be read").await?;
                Err(error)
            }
        }
    }

    async fn set_sequences(&mut self) -> Result<u64, ImportError> {
        #[derive(Deserialize)]
        struct Sequence {
            name: String,
            last_value: i64,
        }
        let mut count = 0;
        while self.lines.next().await? {
            if !self.lines.is_row() {
                return Ok(count);
            }
            let Sequence { name, last_value } = self.lines.parse()?;
            sqlx::query("SELECT setval(format('ops.%I', $1)::regclass, $2)")
                .bind(name)
                .bind(last_value)
                .execute(&mut *self.connection)
                .await?;
            count += 1;
        }
        Err(self.lines.not_whole())
    }
}

/// The columns of `section` as the table has them.
async fn known_columns(
    connection: &mut PgConnection,
    table: &str,
    section: &Section,
) -> Result<Vec<Column>, ImportError> {
    let here = columns(connection, table).await?;
    let known = section.columns.iter().map(|name| {
        let found = here.iter().find(|(known, _)| known == name);
        found.map(|(name, is_json)| Column { name: name.clone(), is_json: *is_json }).ok_or_else(|| {
            ImportError::NoArchive(format!("{table} has no column {name}; it may come from a later program"))
        })
    });
    known.collect()
}
