use async_trait::async_trait;
use signalbox_domain::{
    catalog::Context,
    extraction::{ExtractionJob, ExtractionJobEvent},
    kernel::Decider,
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;

use super::rows::{ExtractionJobRow, fold};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
};

/// Folds extraction jobs.
pub struct ExtractionProjection;

/// Extraction jobs in memory.
#[derive(Default)]
pub struct ExtractionRows {
    pub(super) jobs: Table<ExtractionJobRow>,
}

impl Projection for ExtractionProjection {
    const CONTEXT: Context = Context::Extraction;
    const TABLES: &'static [&'static str] = &["extraction_jobs"];

    type Rows = ExtractionRows;
}

#[async_trait]
impl Rows for ExtractionRows {
    type Event = ExtractionJobEvent;

    fn decode(recorded: &RecordedEvent) -> Result<ExtractionJobEvent, DecodeError> {
        recorded.decode::<ExtractionJob>()
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, ExtractionJobEvent)],
    ) -> Result<(), ApplyError> {
        self.jobs.load(connection, schema, changed_ids(events, ExtractionJob::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: ExtractionJobEvent) {
        fold(&mut self.jobs, recorded, event);
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        self.jobs.write(connection, schema, keep).await?;
        Ok(())
    }
}
