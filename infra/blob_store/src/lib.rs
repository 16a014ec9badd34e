//! The bytes of transfers, on the local disk or in a bucket of an object storage (S3, GCS, Azure).
//!
//! [`BlobStore::receive`] streams a file in: hashed on the way, never held whole in memory, durable, and under its name
//! only when it is whole. [`BlobStore::read`] streams it out, whole or a range of it. An upload that breaks off leaves a
//! part that a later one continues. [`BlobStore::delete_transfer`] removes all files of a transfer at once.
//!
//! Several gateways may share one folder on one machine (module `local`), or one bucket on any number of machines
//! (module `remote`). The store does not record the files of a transfer or their digests; the event log does.
//!
//! ```no_run
//! # use std::ops::Range;
//! # use futures::stream;
//! # use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Receive, Start};
//! # async fn example(transfer: uuid::Uuid) -> Result<(), BlobError> {
//! let store = BlobStore::open("blobs".into())?;
//! let key = BlobKey::new(transfer, "reports/May.pdf");
//! let request = Receive { start: Start::Anew, limit: 5 << 30, expected_sha256: None, total: None };
//! let body = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"%PDF"))]);
//! store.receive(&key, request, body, |_bytes| {}).await?;
//! let (_size, _bytes) = store.read(&key, Some(0..2)).await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod key;
mod local;
mod receive;
mod remote;
mod store;

pub use error::BlobError;
pub use key::BlobKey;
pub use receive::{Receive, Received, Start};
pub use remote::CheckError;
pub use store::{BlobStore, Progress};
