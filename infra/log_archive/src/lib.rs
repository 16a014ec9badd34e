//! The whole log as lines of JSON (NDJSON), out of one system and into an empty one.
//!
//! * [`export`] writes both logs, and the tables that cannot be derived from them: claims, keys of ids and of sealed
//!   secrets, assigned numbers, and the positions of workers.
//! * [`import`] reads it into an empty system, which then makes its read models of it.
//!
//! An archive starts with a line about itself. Each table starts with a line that names it, followed by a line for
//! each row. The last line confirms that the archive is complete. Rows are streamed by `COPY`, in one transaction on
//! either side.
//!
//! It is not a backup of the blob store: files and texts of documents are not in it.

mod export;
mod import;
mod row;
mod tables;

use serde::{Deserialize, Serialize};

pub use export::{ExportError, export};
pub use import::{ImportError, import};

/// Version of the format.
const FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    signalbox_archive: u32,
    /// Rows of both logs, for reports of progress.
    events: i64,
    datapoint_rows: i64,
}

/// The line before the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Section {
    section: String,
    columns: Vec<String>,
    /// Days that its partitions are of, if it has partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    days: Vec<chrono::NaiveDate>,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    /// Rows of all tables.
    end: u64,
}

/// The number of rows carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// Events.
    pub events: i64,
    /// Rows of the datapoint log.
    pub datapoint_rows: i64,
    /// Rows of all tables, these among them.
    pub rows: u64,
}
