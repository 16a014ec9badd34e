//! Receives documents of jobs, straight into the blob store: checked for their size and hashed on the way.

use axum::extract::Request;
use futures::TryStreamExt;
use multer::{Field, Multipart};
use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Receive, Received, Start};
use signalbox_documents::TypeProbe;
use signalbox_domain::kernel::Sha256Hex;

use super::{
    options::Pairs,
    quota::{self, Coming},
    services::DocumentServices,
    upload::missing,
};
use crate::{
    extract::content_length,
    form::{OPTIONS, empty, filename, multipart, option, refused, unreadable},
    network::Network,
    problem::Problem,
    staged::{Staged, Staging},
};

/// Documents of one batch.
pub(crate) const BATCH: usize = 100;
/// A batch may have so many times the bytes of one document.
const BATCH_BYTES: u64 = 10;

/// The content of a form.
pub(super) struct Form {
    pub(super) documents: Vec<Document>,
    /// The other fields.
    pub(super) fields: Pairs,
    /// How the documents of an anonymous caller are counted.
    pub(super) coming: Option<Coming>,
}

/// A document in the blob store.
pub(super) struct Document {
    pub(super) input: Staged,
    pub(super) filename: String,
    pub(super) size: u64,
    pub(super) sha256: Sha256Hex,
    pub(super) probe: TypeProbe,
}

/// Reads the form of `request`, with one document in the part `file`; or, as a batch, with many in parts `files`. The
/// bytes of a `stranger` count against the quota before they are read.
pub(super) async fn receive(
    services: &DocumentServices,
    request: Request,
    is_batch: bool,
    stranger: Option<Network>,
) -> Result<Form, Problem> {
    let DocumentServices { database, config, clock, blobs, staging, .. } = services;
    let most = config.extraction.max_file_bytes;
    let whole = if is_batch { most.saturating_mul(BATCH_BYTES) } else { most };
    let length = content_length(request.headers());
    // A form without a length counts with the largest size that is accepted, so its limit is lower than usual.
    let whole = match stranger {
        Some(_) if length.is_none() => most.min(quota::most(config)),
        _ => whole,
    };
    let parts = multipart(request, whole, most, missing)?;
    let Some(network) = stranger else { return read(blobs, staging, parts, most, is_batch).await };
    let coming = Coming::expect(database, config, clock, network, length.unwrap_or(whole)).await?;
    let mut form = coming.until(read(blobs, staging, parts, most, is_batch)).await?;
    form.coming = Some(coming);
    Ok(form)
}

async fn read(
    blobs: &BlobStore,
    staging: &Staging,
    mut parts: Multipart<'static>,
    most: u64,
    is_batch: bool,
) -> Result<Form, Problem> {
    let mut form = Form { documents: Vec::new(), fields: Pairs::new(), coming: None };
    while let Some(field) = parts.next_field().await.map_err(|error| unreadable(&error, most))? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" || (is_batch && name == "files") {
            form.check_room(is_batch)?;
            form.documents.push(receive_document(blobs, staging, field, most, is_batch).await?);
        } else if form.fields.len() < OPTIONS {
            form.fields.push((name, option(field, most).await?));
        }
    }
    match form.documents.is_empty() {
        true if is_batch => {
            Err(Problem::field("files", "is required: send each document in a part named files"))
        }
        true => Err(missing()),
        false => Ok(form),
    }
}

impl Form {
    fn check_room(&self, is_batch: bool) -> Result<(), Problem> {
        match self.documents.len() {
            0 => Ok(()),
            _ if !is_batch => Err(Problem::field(
                "file",
                "must be sent once: for more, POST /api/v1/jobs/batch takes files",
            )),
            count if count < BATCH => Ok(()),
            _ => Err(Problem::field("files", format!("must be at most {BATCH}: send several batches"))),
        }
    }

    /// Distinguishes this form from others sent to the same address.
    pub(super) fn digest(&self, query: &Pairs) -> Vec<u8> {
        let documents: Vec<_> =
            self.documents.iter().map(|document| (&document.filename, document.sha256.as_str())).collect();
        format!("{query:?} {:?} {documents:?}", self.fields).into_bytes()
    }
}

async fn receive_document(
    blobs: &BlobStore,
    staging: &Staging,
    field: Field<'static>,
    most: u64,
    is_batch: bool,
) -> Result<Document, Problem> {
    let filename = filename(&field)?;
    let about = |problem: Problem| if is_batch { problem.of_file(&filename) } else { problem };
    let input = Staged::begin(staging).await?;
    let request = Receive { start: Start::Anew, limit: most, expected_sha256: None, total: None };
    let mut probe = TypeProbe::default();
    let body = field.inspect_ok(|piece| probe.take(piece));
    let received = blobs.receive(&BlobKey::new(input.id(), "input"), request, body, |_| {}).await;
    match received.map_err(|error| match &error {
        BlobError::TooLarge { .. } => about(refused(error, most)),
        _ => refused(error, most),
    })? {
        Received::Complete { size: 0, .. } => Err(about(empty())),
        Received::Complete { size, sha256 } => Ok(Document { input, filename, size, sha256, probe }),
        Received::Partial { .. } => Err(Problem::internal(&"a document was stored in part")),
    }
}
