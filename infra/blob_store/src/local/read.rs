use std::{fs::File, io, io::IoSliceMut, ops::Range, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures::{Stream, stream};
use rustix::{
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, preadv2},
};
use tokio::task::spawn_blocking;

use super::{
    LocalStore,
    buffers::{Buffer, Buffers},
};
use crate::{
    BlobError, BlobKey,
    error::{IoContext, off_thread},
};

impl LocalStore {
    /// The whole size of the file `key`, and its bytes or those of `range`, cut to the file's end.
    ///
    /// The file that was there at the call is read to its end, even when it is replaced or deleted meanwhile.
    pub(crate) async fn read(
        &self,
        key: &BlobKey,
        range: Option<Range<u64>>,
    ) -> Result<(u64, impl Stream<Item = io::Result<Bytes>> + Send + 'static), BlobError> {
        let (store, key) = (self.clone(), key.clone());
        off_thread(move || {
            let file = store.open_final(&key)?;
            let size = file.metadata().during("measure a file")?.len();
            let range = range.unwrap_or(0..size);
            let reader = Reader::new(file, range.start.min(size)..range.end.min(size));
            Ok((size, reader.into_stream()))
        })
        .await
    }

    /// The size of the file `key`, and the file itself, for callers that read it more than once.
    pub(crate) async fn open_file(&self, key: &BlobKey) -> Result<(u64, File), BlobError> {
        let (store, key) = (self.clone(), key.clone());
        off_thread(move || {
            let file = store.open_final(&key)?;
            let size = file.metadata().during("measure a file")?.len();
            Ok((size, file))
        })
        .await
    }
}

/// Reads a file from front to back through a few buffers that are used again and again.
struct Reader {
    file: Arc<File>,
    left: Range<u64>,
    buffers: Buffers,
}

impl Reader {
    fn new(file: File, left: Range<u64>) -> Self {
        // Doubles the kernel's read-ahead. It is only advice, so its result does not matter.
        let _ = fadvise(&file, left.start, None, Advice::Sequential);
        Self { file: Arc::new(file), left, buffers: Buffers::default() }
    }

    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::unfold(Some(self), |reader| async move {
            let mut reader = reader.filter(|reader| !reader.left.is_empty())?;
            match reader.next_chunk().await {
                Ok(chunk) => Some((Ok(chunk), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next_chunk(&mut self) -> io::Result<Bytes> {
        let mut buffer = self.buffers.take();
        let length = usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX);
        buffer.set_len(length);
        let read = match self.read_cached(&mut buffer)? {
            Some(read) => read,
            None => {
                let (file, offset) = (Arc::clone(&self.file), self.left.start);
                let result;
                (buffer, result) = spawn_blocking(move || {
                    let result = file.read_at(buffer.as_mut(), offset);
                    (buffer, result)
                })
                .await
                .map_err(io::Error::other)?;
                result?
            }
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left.start += read as u64;
        buffer.set_len(read);
        Ok(Bytes::from_owner(buffer))
    }

    /// Reads from the page cache, which is faster than a switch to another thread. `None` if the read would block on
    /// the disk, or if the kernel does not support the query.
    fn read_cached(&self, buffer: &mut Buffer) -> io::Result<Option<usize>> {
        let mut slices = [IoSliceMut::new(buffer.as_mut())];
        match preadv2(&*self.file, &mut slices, self.left.start, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS) => Ok(None),
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(error.into()),
        }
    }
}
