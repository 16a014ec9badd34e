//! Services that handlers of documents share.

use std::sync::Arc;

use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_documents::{Documents, Extraction, FairPlaces, Searchable};
use signalbox_sealing::Sealer;
use signalbox_texts::Texts;
use tokio::sync::Semaphore;

use crate::{
    context_services::services,
    idempotency::Repetitions,
    services::{limits::Limiter, replica::Database, shared_work::SharedWork},
    staged::Staging,
};

services! {
    /// Services to receive documents and to read them.
    DocumentServices {
        blobs: BlobStore,
        clock: Clock,
        config: Arc<Config>,
        database: Database,
        documents: Option<Documents>,
        limiter: Arc<Limiter>,
        making: SharedWork<Searchable>,
        reading: SharedWork<Extraction>,
        remembering: Arc<Semaphore>,
        sealer: Sealer,
        server_clock: SharedServerClock,
        texts: Texts,
        uploads: FairPlaces;
        repetitions: Repetitions,
        staging: Staging,
    }
}
