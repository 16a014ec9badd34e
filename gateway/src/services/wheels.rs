//! The wheels of installed plugin packages.

use std::ops::Deref;

use signalbox_blob_store::BlobStore;

/// The blob store of wheels, apart from that of files.
#[derive(Debug, Clone)]
pub(crate) struct Wheels(pub(crate) BlobStore);

impl Deref for Wheels {
    type Target = BlobStore;

    fn deref(&self) -> &BlobStore {
        &self.0
    }
}
