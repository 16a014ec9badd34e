//! Sheets of Excel and open documents: each a heading and a table.

use std::io::Cursor;

use calamine::{Data, Reader, open_workbook_auto_from_rs};

use super::{Content, collect::Collector};
use crate::failure::Failure;

/// Rows and columns of a sheet that are read.
const ROWS: usize = 100_000;
const COLUMNS: usize = 512;

/// Reads all sheets.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut book = open_workbook_auto_from_rs(Cursor::new(bytes)).map_err(|error| failure(&error))?;
    let mut collector = Collector::default();
    let mut warnings = Vec::new();
    for name in book.sheet_names() {
        let Ok(range) = book.worksheet_range(&name) else {
            warnings.push("a sheet cannot be read and was left out".to_owned());
            continue;
        };
        let (height, width) = range.get_size();
        if height > ROWS || width > COLUMNS {
            warnings.push(format!("of a sheet, only the first {ROWS} rows and {COLUMNS} columns were read"));
        }
        let rows = range.rows().take(ROWS).map(|row| row.iter().take(COLUMNS).map(cell).collect()).collect();
        collector.heading(2, &name);
        collector.table(rows);
    }
    Ok(Content { blocks: collector.finish(), warnings, ..Content::default() })
}

fn cell(data: &Data) -> String {
    match data {
        Data::Empty => String::new(),
        Data::DateTime(_) | Data::DateTimeIso(_) => date(data),
        other => other.to_string(),
    }
}

/// As ISO 8601, without a time that says nothing.
fn date(data: &Data) -> String {
    match data {
        Data::DateTime(date) if date.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = date.to_ymd_hms_milli();
            let day = format!("{year:04}-{month:02}-{day:02}");
            if (hour, minute, second) == (0, 0, 0) {
                day
            } else {
                format!("{day} {hour:02}:{minute:02}:{second:02}")
            }
        }
        other => other.to_string(),
    }
}

fn failure(error: &calamine::Error) -> Failure {
    let text = error.to_string().to_lowercase();
    if text.contains("password") || text.contains("encrypt") {
        Failure::Encrypted
    } else {
        Failure::corrupt("the sheets cannot be read: the file is damaged or truncated")
    }
}
