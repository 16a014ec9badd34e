//! What is staged of a transfer: as a list, and as a tar archive.

use std::io;

use axum::{Json, extract::State};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde::Serialize;
use signalbox_blob_store::{BlobKey, BlobStore};
use signalbox_domain::transfer::TransportMode;
use signalbox_projections::transfer::{TransferFileRow, queries};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{download::begin, messages::Peer, transfers::FileOut, upload::missing};
use crate::{
    auth::AgentAuth,
    client_address::ClientAddress,
    extract::Number,
    problem::{ErrorOut, Problem},
    state::AppState,
};

/// Entries of a transfer at most.
pub(super) const MAX_ENTRIES: i64 = 100_000;
const TAR_BLOCK: u64 = 512;

/// What is staged.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ManifestOut {
    /// Sorted by the bytes of their names.
    files: Vec<FileOut>,
    /// Digest of the transfer; null until everything is staged.
    sha256: Option<String>,
}

/// What is staged so far, for both agents of the transfer.
#[utoipa::path(get, path = "/api/files/{id}/manifest", tag = "files", security(("agent" = [])), params(("id" = i64, Path,)), operation_id = "get_manifest",
    responses((status = 200, body = ManifestOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn manifest(
    State(state): State<AppState>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    Number(number): Number,
) -> Result<Json<ManifestOut>, Problem> {
    let row = queries::transfer_of_agent(&state.pool, auth.agent.0, number).await?.ok_or_else(missing)?;
    // An empty tree has nothing else to download: asking for its list is its beginning.
    begin(&state, &Peer { auth, address, transport: TransportMode::Polling }, &row).await?;
    let files = queries::transfer_files(&state.pool, row.id, MAX_ENTRIES).await?;
    Ok(Json(ManifestOut { files: files.into_iter().map(FileOut::from).collect(), sha256: row.sha256 }))
}

/// The entries as a tar archive, one after the other, never whole in memory.
pub(super) fn tar_stream(
    blobs: BlobStore,
    transfer: Uuid,
    files: Vec<TransferFileRow>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let entries = stream::iter(files).then(move |file| tar_entry(blobs.clone(), transfer, file));
    let end = stream::once(async { Ok(Bytes::from_static(&[0; 2 * TAR_BLOCK as usize])) });
    entries
        .flat_map(|entry| entry.unwrap_or_else(|error| stream::once(async { Err(error) }).boxed()))
        .chain(end)
}

async fn tar_entry(
    blobs: BlobStore,
    transfer: Uuid,
    file: TransferFileRow,
) -> io::Result<stream::BoxStream<'static, io::Result<Bytes>>> {
    let size = file.size.unsigned_abs();
    let head = Bytes::from(tar_header(&file.name, size)?);
    let head = stream::once(async { Ok(head) });
    if file.name.ends_with('/') {
        return Ok(head.boxed());
    }
    let key = BlobKey::new(transfer, &file.name);
    let (_, bytes) = blobs.read(&key, None).await.map_err(io::Error::other)?;
    let padding = vec![0; (size.next_multiple_of(TAR_BLOCK) - size) as usize];
    Ok(head.chain(bytes).chain(stream::once(async { Ok(padding.into()) })).boxed())
}

/// The header blocks of an entry, with the extra ones that long names need.
fn tar_header(name: &str, size: u64) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(if name.ends_with('/') { 0o755 } else { 0o644 });
    header.set_entry_type(if name.ends_with('/') {
        tar::EntryType::Directory
    } else {
        tar::EntryType::Regular
    });
    let mut builder = tar::Builder::new(Vec::new());
    // Nothing of the body is appended: the header says how long it is, and the bytes follow on the stream.
    builder.append_data(&mut header, name, io::empty())?;
    let mut blocks = builder.into_inner()?;
    blocks.truncate(blocks.len() - 2 * TAR_BLOCK as usize);
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_long_and_odd_names_can_be_read() {
        let long = format!("{}/ä b.txt", "x".repeat(300));
        for name in ["a.txt", "dir/", long.as_str()] {
            let mut bytes = tar_header(name, 3).unwrap();
            bytes.extend([b'a', b'b', b'c']);
            bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
            let mut archive = tar::Archive::new(bytes.as_slice());
            let entry = archive.entries().unwrap().next().unwrap().unwrap();
            assert_eq!(entry.path().unwrap().to_string_lossy(), name);
        }
    }
}
