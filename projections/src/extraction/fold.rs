use signalbox_domain::{extraction::ExtractionJob, kernel::Decider};
use signalbox_event_store::RecordedEvent;
use sqlx::PgConnection;

use super::rows::{ExtractionJobRow, fold};
use crate::{
    ApplyError, Poison, Projection, Rows,
    projection::decode_all,
    table::{Table, changed_ids},
};

/// Folds extraction jobs.
pub struct ExtractionProjection;

/// Extraction jobs in memory.
#[derive(Default)]
pub struct ExtractionRows {
    jobs: Table<ExtractionJobRow>,
}

impl Projection for ExtractionProjection {
    const NAME: &'static str = "extraction";
    const TABLES: &'static [&'static str] = &["extraction_jobs"];
    const AGGREGATES: &'static [&'static str] = &[ExtractionJob::TYPE];

    type Rows = ExtractionRows;
}

impl Rows for ExtractionRows {
    async fn fold(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[&RecordedEvent],
    ) -> Result<Vec<Poison>, ApplyError> {
        let (decoded, poisons) = decode_all(events, RecordedEvent::decode::<ExtractionJob>);
        let changed = changed_ids(&decoded, ExtractionJob::TYPE);
        self.jobs.load(connection, schema, changed).await?;
        for (recorded, event) in decoded {
            fold(&mut self.jobs, recorded, event);
        }
        Ok(poisons)
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
