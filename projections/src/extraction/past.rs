//! Extraction jobs at a point in time.

use signalbox_domain::extraction::{ExtractionJob, ExtractionJobEventKind};
use uuid::Uuid;

use super::{ExtractionJobRow, ExtractionRows};
use crate::register::Resource;

impl Resource for ExtractionJobRow {
    type Aggregate = ExtractionJob;
    type Rows = ExtractionRows;

    fn is_passing(kind: ExtractionJobEventKind) -> bool {
        match kind {
            ExtractionJobEventKind::ExtractionAdvanced => true,
            ExtractionJobEventKind::ExtractionSubmitted
            | ExtractionJobEventKind::ExtractionBegun
            | ExtractionJobEventKind::ExtractionCompleted
            | ExtractionJobEventKind::ExtractionFailed
            | ExtractionJobEventKind::ExtractionReleased
            | ExtractionJobEventKind::ExtractionGivenBack
            | ExtractionJobEventKind::ExtractionCancelled
            | ExtractionJobEventKind::ExtractionRetried
            | ExtractionJobEventKind::ExtractionInputRemoved
            | ExtractionJobEventKind::ExtractionResultExpired
            | ExtractionJobEventKind::ExtractionDiscarded
            | ExtractionJobEventKind::ExtractionDeleted => false,
        }
    }

    fn of(rows: &ExtractionRows, id: Uuid) -> Option<&Self> {
        rows.jobs.get(id).filter(|row| !row.deleted)
    }
}
