use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Which file of which transfer.
///
/// The name is only ever used as a hash, so that no name, however odd, becomes a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlobKey {
    transfer: Uuid,
    file: String,
}

impl BlobKey {
    /// The entry `name` of `transfer`.
    pub fn new(transfer: Uuid, name: &str) -> Self {
        Self { transfer, file: hex::encode(Sha256::digest(name.as_bytes())) }
    }

    /// The transfer that the file belongs to.
    pub fn transfer(&self) -> Uuid {
        self.transfer
    }

    /// The file that a store calls `file`.
    pub(crate) fn of_file(transfer: Uuid, file: String) -> Self {
        Self { transfer, file }
    }

    /// The file's name in every kind of store.
    pub(crate) fn file_name(&self) -> &str {
        &self.file
    }

    pub(crate) fn part_name(&self) -> String {
        format!("{}.part", self.file)
    }
}
