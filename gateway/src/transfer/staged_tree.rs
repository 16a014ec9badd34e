//! The staged files of a transfer, as a tar archive.

use std::io;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use signalbox_blob_store::{BlobKey, BlobStore};
use signalbox_projections::transfer::TransferFileRow;
use uuid::Uuid;

/// Entries of a transfer at most.
pub(super) const MAX_ENTRIES: i64 = 100_000;
const TAR_BLOCK: u64 = 512;

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
