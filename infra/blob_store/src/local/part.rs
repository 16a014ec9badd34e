//! The file of an upload in progress, written by one upload at a time.
//!
//! Uploads of the same file may overlap, in one gateway or in two: an agent that lost its connection starts again
//! while the first gateway still waits for the old one. The newest upload wins, and no bytes ever mix:
//!
//! * An upload from the start makes a new file in place of the old part. The older upload still has the old one open
//!   and sees that it has no name any more.
//! * A continued upload appends to the existing part. Each upload appends only while the length equals the bytes that
//!   it has read or written itself (compare and append), so the older one stops as soon as the newer one has added a
//!   byte.
//! * Checks and changes of a part happen under its `flock`, held for one write and never while waiting for the network.
//!
//! For correctness: the lock, the length check, the rename under the lock. For economy: nothing here.
//! Killed at any point, the store holds the finished file or the part, never a finished name with half the bytes.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{LocalStore, folder::Folder};
use crate::{BlobError, BlobKey, error::IoContext};

const PREFIX_BUFFER: usize = 256 * 1024;

/// An open part. All methods but the getters block.
#[derive(Debug)]
pub(crate) struct Part {
    store: LocalStore,
    key: BlobKey,
    folder: Folder,
    file: Arc<File>,
    /// Bytes that were there before this upload.
    before: u64,
    size: u64,
}

impl Part {
    /// A new, empty part in place of any older one.
    pub(crate) fn create(store: LocalStore, key: BlobKey) -> Result<Self, BlobError> {
        loop {
            let folder = store.create_folder(&key).during("make the folder of a transfer")?;
            match new_part_file(&folder, &key.part_name()) {
                Ok(file) => return Ok(Self { store, key, folder, file: Arc::new(file), before: 0, size: 0 }),
                // The transfer was deleted between the two steps, or another upload took the name: once more.
                Err(error) if is_lost_race(&error) => {}
                Err(error) => return Err(BlobError::io("create a part", error)),
            }
        }
    }

    /// The existing part, if it ends at `offset`, and the hash of its bytes.
    pub(crate) fn resume(store: LocalStore, key: BlobKey, offset: u64) -> Result<(Self, Sha256), BlobError> {
        let Some((folder, file)) = open_part(&store, &key)? else {
            // Also beside a complete file, which the new one replaces.
            if offset == 0 {
                return Ok((Self::create(store, key)?, Sha256::new()));
            }
            return Err(BlobError::WrongOffset { present: store.final_size(&key)?.unwrap_or(0) });
        };
        let present = length_between_writes(&file).during("measure a part")?;
        if present != offset {
            return Err(BlobError::WrongOffset { present });
        }
        let hasher = hash_prefix(&file, offset)?;
        Ok((Self { store, key, folder, file: Arc::new(file), before: offset, size: offset }, hasher))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The open file, to be synced while the part grows.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Adds `bytes` to the end of the file.
    pub(crate) fn append(mut self, bytes: &[u8]) -> Result<Self, BlobError> {
        match self.try_append(bytes) {
            Ok(()) => Ok(self),
            Err(error) if error.keeps_nothing() => Err(self.refuse(error)),
            Err(error) => Err(error),
        }
    }

    fn try_append(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        self.file.lock().during("lock a part")?;
        let written = self.check_owned().and_then(|()| self.write(bytes));
        self.file.unlock().during("unlock a part")?;
        written
    }

    /// Call it with the lock held.
    fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        match (&*self.file).write_all(bytes) {
            Ok(()) => self.size += bytes.len() as u64,
            Err(error) => {
                // Cuts off a half-written piece on a full disk, so that the part is still recognised as this
                // upload's.
                self.file.set_len(self.size).during("cut a part")?;
                return Err(BlobError::io("write a part", error));
            }
        }
        Ok(())
    }

    /// Makes the part the file: durable, under its final name.
    pub(crate) fn finish(self) -> Result<(), BlobError> {
        self.file.sync_all().during("make a file durable")?;
        self.publish()
    }

    fn publish(&self) -> Result<(), BlobError> {
        self.file.lock().during("lock a part")?;
        self.check_owned()?;
        superseded_if_gone(self.folder.rename(&self.key.part_name(), self.key.file_name()))
            .during("name a finished file")??;
        self.folder.sync().during("make a file's name durable")?;
        self.store.sync_root().during("make a transfer's folder durable")
    }

    /// Removes the part, unless it is another upload's by now, and returns the reason. On a full disk the bytes stay that were there
    /// before this upload: their sender was answered that they are.
    pub(crate) fn refuse(self, reason: BlobError) -> BlobError {
        let removed = match reason {
            BlobError::DiskFull { .. } if self.before > 0 => self.cut_back(),
            _ => self.discard(),
        };
        match removed {
            Ok(()) | Err(BlobError::Superseded) => reason,
            Err(error) => error,
        }
    }

    /// Frees the space that this upload took.
    fn cut_back(&self) -> Result<(), BlobError> {
        self.file.lock().during("lock a part")?;
        let cut = self.check_owned().and_then(|()| self.file.set_len(self.before).during("cut a part"));
        self.file.unlock().during("unlock a part")?;
        cut
    }

    fn discard(&self) -> Result<(), BlobError> {
        self.file.lock().during("lock a part")?;
        self.check_owned()?;
        superseded_if_gone(self.folder.unlink(&self.key.part_name())).during("remove a part")?
    }

    /// Fails unless the part's name still leads to this file and no other upload has appended to it. Only valid while
    /// the lock is held.
    fn check_owned(&self) -> Result<(), BlobError> {
        let length = self.file.metadata().during("measure a part")?.len();
        let named = is_named(&self.folder, &self.key.part_name(), &self.file).during("look for a part")?;
        (named && length == self.size).then_some(()).ok_or(BlobError::Superseded)
    }
}

/// A deletion takes no lock: it may happen between a check and the next step.
fn superseded_if_gone(result: io::Result<()>) -> io::Result<Result<(), BlobError>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err(BlobError::Superseded)),
        result => result.map(Ok),
    }
}

/// Takes the name `name` from whichever upload has it.
fn new_part_file(folder: &Folder, name: &str) -> io::Result<File> {
    match folder.open_to_append(name) {
        Ok(older) => {
            older.lock()?;
            // Under the lock the older upload can neither be writing nor be giving the part its final name.
            if is_named(folder, name, &older)? {
                folder.unlink(name)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    folder.create_new(name)
}

fn is_named(folder: &Folder, name: &str, file: &File) -> io::Result<bool> {
    let (named, open) = (folder.stat(name)?, file.metadata()?);
    Ok(named.is_some_and(|named| named.st_ino == open.ino() && named.st_dev == open.dev()))
}

fn is_lost_race(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

fn open_part(store: &LocalStore, key: &BlobKey) -> Result<Option<(Folder, File)>, BlobError> {
    let opened = store.open_folder(key).and_then(|folder| {
        let file = folder.open_to_append(&key.part_name())?;
        Ok((folder, file))
    });
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BlobError::io("open a part", error)),
    }
}

fn length_between_writes(file: &File) -> io::Result<u64> {
    file.lock()?;
    let length = file.metadata().map(|metadata| metadata.len());
    file.unlock()?;
    length
}

fn hash_prefix(file: &File, length: u64) -> Result<Sha256, BlobError> {
    let (hasher, read) = hash(file.take(length)).during("read a part")?;
    if read < length {
        return Err(BlobError::WrongOffset { present: read });
    }
    Ok(hasher)
}

/// The digest of all that `source` gives, and how many bytes that is.
pub(crate) fn hash(mut source: impl Read) -> io::Result<(Sha256, u64)> {
    let (mut hasher, mut length, mut buffer) = (Sha256::new(), 0, vec![0; PREFIX_BUFFER]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok((hasher, length)),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
