use signalbox_blob_store::BlobStore;
use signalbox_texts::Texts;

/// Documents and their texts. Clones share them.
#[derive(Debug, Clone)]
pub struct Store {
    /// Extracted texts.
    pub texts: Texts,
    /// The documents.
    pub blobs: BlobStore,
}
