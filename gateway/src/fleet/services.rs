//! Services that handlers of plugins and of firmware share.

use std::sync::Arc;

use signalbox_blob_store::BlobStore;
use signalbox_config::Config;
use signalbox_documents::FairPlaces;
use signalbox_plugins::Plugins;
use signalbox_sealing::Sealer;

use crate::{
    context_services::services,
    idempotency::Repetitions,
    services::{auth::ApiTokens, commands::Commands, replica::Database, wheels::Wheels},
    staged::Staging,
};

services! {
    /// Services to receive packages and to set up instances.
    FleetServices {
        api_tokens: Arc<ApiTokens>,
        blobs: BlobStore,
        commands: Commands,
        config: Arc<Config>,
        database: Database,
        plugins: Plugins,
        sealer: Sealer,
        uploads: FairPlaces,
        wheels: Wheels;
        repetitions: Repetitions,
        staging: Staging,
    }
}
