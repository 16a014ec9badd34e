use std::{fs::File, io, ops::Range};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, path::Path};
use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;
use tokio::{
    io::{AsyncSeekExt, AsyncWriteExt},
    task::spawn_blocking,
};

use super::{
    RemoteStore,
    record::{Run, segments, size},
};
use crate::{BlobError, BlobKey, error::IoContext};

/// Of one request. A reader has two of them in memory, so that a slow one keeps no connection to the bucket waiting.
const PIECE: u64 = 4 * 1024 * 1024;
const AHEAD: usize = 2;
/// Size of the pieces passed to readers.
const CHUNK: usize = 256 * 1024;

impl RemoteStore {
    pub(crate) async fn read(
        &self,
        key: &BlobKey,
        range: Option<Range<u64>>,
    ) -> Result<(u64, impl Stream<Item = io::Result<Bytes>> + Send + 'static), BlobError> {
        let whole = self.whole(key).await?;
        let size = whole.size();
        let range = range.unwrap_or(0..size);
        let range = range.start.min(size)..range.end.min(size);
        let chunks = self.pieces(key, &whole.runs, range).map_ok(|piece| stream::iter(chunks(piece)));
        Ok((size, chunks.try_flatten()))
    }

    /// A copy in a file without a name.
    pub(crate) async fn open_file(&self, key: &BlobKey) -> Result<(u64, File), BlobError> {
        let whole = self.whole(key).await?;
        let size = whole.size();
        let file = tempfile::tempfile_in(&self.0.scratch).during("make a copy of a file")?;
        let mut file = tokio::fs::File::from_std(file);
        let mut pieces = std::pin::pin!(self.pieces(key, &whole.runs, 0..size));
        let mut hasher = Sha256::new();
        while let Some(piece) = pieces.try_next().await.map_err(unreadable)? {
            file.write_all(&piece).await.during("write a copy of a file")?;
            hasher = hashed(hasher, piece).await?;
        }
        if Sha256Hex::from_bytes(&hasher.finalize()) != whole.sha256 {
            return Err(unreadable(io::Error::other(
                "the bytes in the bucket are not those that were written",
            )));
        }
        let rewound = async {
            file.flush().await?;
            file.rewind().await
        };
        rewound.await.during("write a copy of a file")?;
        Ok((size, file.into_std().await))
    }

    /// The hash of the segments of `runs`; `None` if one is missing.
    pub(super) async fn hash(&self, key: &BlobKey, runs: &[Run]) -> Result<Option<Sha256>, BlobError> {
        let mut pieces = std::pin::pin!(self.pieces(key, runs, 0..size(runs)));
        let mut hasher = Sha256::new();
        loop {
            match pieces.try_next().await {
                Ok(Some(piece)) => hasher = hashed(hasher, piece).await?,
                Ok(None) => return Ok(Some(hasher)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    /// The bytes of `range` of the file of `runs`.
    fn pieces(
        &self,
        key: &BlobKey,
        runs: &[Run],
        range: Range<u64>,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let (mut start, mut pieces) = (0, Vec::new());
        for segment in segments(runs) {
            let end = start + segment.bytes;
            let mut from = range.start.max(start);
            while from < range.end.min(end) {
                let to = (from + PIECE).min(range.end).min(end);
                pieces.push((self.segment_path(key, &segment), from - start..to - start));
                from = to;
            }
            start = end;
        }
        let store = self.clone();
        stream::iter(pieces)
            .map(move |(path, range)| {
                let store = store.clone();
                // Spawned, so that the piece arrives whole, however slowly its reader takes the one before.
                tokio::spawn(async move { store.piece(&path, range).await })
            })
            .buffered(AHEAD)
            .map(|piece| piece.unwrap_or_else(|ended| Err(io::Error::other(ended))))
    }

    /// A segment that is not there, or not all of it, is an early end.
    async fn piece(&self, path: &Path, range: Range<u64>) -> io::Result<Bytes> {
        let expected = range.end - range.start;
        match self.bucket().get_range(path, range).await {
            Ok(bytes) if bytes.len() as u64 == expected => Ok(bytes),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(self.shortened(path, expected, error).await),
        }
    }

    /// Servers refuse a range beyond the end in different ways, so the size itself is read.
    async fn shortened(&self, path: &Path, expected: u64, error: object_store::Error) -> io::Error {
        match self.bucket().head(path).await {
            Ok(object) if object.size < expected => io::ErrorKind::UnexpectedEof.into(),
            _ => io::Error::other(error),
        }
    }
}

fn chunks(mut piece: Bytes) -> Vec<io::Result<Bytes>> {
    let mut chunks = Vec::with_capacity(piece.len().div_ceil(CHUNK));
    while !piece.is_empty() {
        chunks.push(Ok(piece.split_to(CHUNK.min(piece.len()))));
    }
    chunks
}

async fn hashed(mut hasher: Sha256, piece: Bytes) -> Result<Sha256, BlobError> {
    let hashing = spawn_blocking(move || {
        hasher.update(&piece);
        hasher
    });
    hashing.await.during("hash a file")
}

fn unreadable(error: io::Error) -> BlobError {
    BlobError::Unavailable { action: "read a file", source: error.into() }
}
