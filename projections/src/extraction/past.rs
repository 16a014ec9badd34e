//! Extraction jobs at a point in time.

use signalbox_domain::extraction::ExtractionJob;
use uuid::Uuid;

use super::{ExtractionJobRow, ExtractionRows};
use crate::register::Resource;

impl Resource for ExtractionJobRow {
    type Aggregate = ExtractionJob;
    type Rows = ExtractionRows;

    const PASSING: &'static [&'static str] = &["extraction_advanced"];

    fn of(rows: &ExtractionRows, id: Uuid) -> Option<&Self> {
        rows.jobs.get(id)
    }
}
