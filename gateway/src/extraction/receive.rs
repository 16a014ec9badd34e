//! Receives documents of jobs, straight into the blob store: checked for their size and hashed on the way.

use axum::extract::Request;
use multer::Field;
use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Receive, Received, Start};
use signalbox_domain::kernel::Sha256Hex;
use uuid::Uuid;

use super::{
    options::Pairs,
    upload::{OPTIONS, empty, filename, missing, multipart, option, too_large, unreadable},
};
use crate::{problem::Problem, state::State as Gateway};

/// Documents of one batch.
pub(super) const BATCH: usize = 100;
/// A batch may have so many times the bytes of one document.
const BATCH_BYTES: u64 = 10;

/// What a form brought.
pub(super) struct Form {
    pub(super) documents: Vec<Document>,
    /// The other fields.
    pub(super) fields: Pairs,
    pub(super) inputs: Inputs,
}

/// A document in the blob store.
pub(super) struct Document {
    /// Its folder there.
    pub(super) input: Uuid,
    pub(super) filename: String,
    pub(super) size: u64,
    pub(super) sha256: Sha256Hex,
}

/// Folders of documents that no job has yet. What is still here when it is dropped is removed: the request was refused, or
/// the client went away.
pub(super) struct Inputs {
    blobs: BlobStore,
    ids: Vec<Uuid>,
}

impl Inputs {
    /// A job has the document now.
    pub(super) fn hand_over(&mut self, id: Uuid) {
        self.ids.retain(|known| *known != id);
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        let (blobs, ids) = (self.blobs.clone(), std::mem::take(&mut self.ids));
        if ids.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for id in ids {
                if let Err(error) = blobs.delete_transfer(id).await {
                    tracing::warn!(%error, %id, "a document that nobody needs was not removed");
                }
            }
        });
    }
}

/// Reads the form of `request`, with one document in the part `file`; or, as a batch, with many in parts `files`.
pub(super) async fn receive(state: &Gateway, request: Request, is_batch: bool) -> Result<Form, Problem> {
    let most = state.config.extraction.max_file_bytes;
    let whole = if is_batch { most.saturating_mul(BATCH_BYTES) } else { most };
    let mut parts = multipart(request, whole, most)?;
    let inputs = Inputs { blobs: state.blobs.clone(), ids: Vec::new() };
    let mut form = Form { documents: Vec::new(), fields: Pairs::new(), inputs };
    while let Some(field) = parts.next_field().await.map_err(|error| unreadable(&error, most))? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" || (is_batch && name == "files") {
            form.check_room(is_batch)?;
            let input = state.clock.new_id();
            form.inputs.ids.push(input);
            form.documents.push(receive_document(state, field, input, most).await?);
        } else if form.fields.len() < OPTIONS {
            form.fields.push((name, option(field, most).await?));
        }
    }
    match form.documents.is_empty() {
        true if is_batch => Err(Problem::malformed("No files provided")),
        true => Err(missing()),
        false => Ok(form),
    }
}

impl Form {
    fn check_room(&self, is_batch: bool) -> Result<(), Problem> {
        match self.documents.len() {
            0 => Ok(()),
            _ if !is_batch => {
                Err(Problem::invalid("file must be sent once: for more, POST /api/v1/jobs/batch takes files"))
            }
            count if count < BATCH => Ok(()),
            _ => Err(Problem::invalid(format!("files must be at most {BATCH}: send several batches"))),
        }
    }

    /// What tells this form from others that were sent to the same address.
    pub(super) fn digest(&self, query: &Pairs) -> Vec<u8> {
        let documents: Vec<_> =
            self.documents.iter().map(|document| (&document.filename, document.sha256.as_str())).collect();
        format!("{query:?} {:?} {documents:?}", self.fields).into_bytes()
    }
}

async fn receive_document(
    state: &Gateway,
    field: Field<'static>,
    input: Uuid,
    most: u64,
) -> Result<Document, Problem> {
    let filename = filename(&field)?;
    let request = Receive { start: Start::Anew, limit: most, expected_sha256: None, total: None };
    let received = state.blobs.receive(&BlobKey::new(input, "input"), request, field, |_| {}).await;
    match received.map_err(|error| refused(error, most))? {
        Received::Complete { size: 0, .. } => Err(empty()),
        Received::Complete { size, sha256 } => Ok(Document { input, filename, size, sha256 }),
        Received::Partial { .. } => Err(Problem::internal(&"a document was stored in part")),
    }
}

fn refused(error: BlobError, most: u64) -> Problem {
    match &error {
        BlobError::TooLarge { .. } => too_large(most),
        BlobError::Interrupted { source, .. } => {
            match source.as_ref().and_then(|source| source.downcast_ref::<multer::Error>()) {
                Some(error) => unreadable(error, most),
                None => Problem::malformed("the multipart body was cut off"),
            }
        }
        BlobError::DiskFull { .. } => {
            tracing::error!(%error, "the blob store is full");
            Problem::unavailable("the gateway's disk is full: free some space and try again")
        }
        _ => Problem::internal(&error),
    }
}
