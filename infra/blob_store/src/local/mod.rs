//! Files in a folder on the local disk: hashed on the way, fsynced, and renamed into place.
//!
//! Several gateways may share one root on one machine: see the module `part` for how uploads of the same file are
//! kept apart. The root must be on a local disk: the store relies on its `flock` and `fsync`.

mod buffers;
mod disk;
mod folder;
mod part;
mod read;

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::Arc,
};

use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;
use uuid::Uuid;

use self::{
    disk::Disk,
    folder::{Folder, is_not_empty, remove_folder},
    part::Part,
};
use crate::{
    BlobError, BlobKey, Progress, Start,
    error::{IoContext, off_thread},
};

/// Holds the folders of deleted transfers while their files are being removed.
const DELETED: &str = ".deleted";

/// The files of all transfers under one root folder. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LocalStore(Arc<Root>);

#[derive(Debug)]
struct Root {
    path: PathBuf,
    open: File,
}

impl LocalStore {
    /// The store in the folder `root`, which is made if need be. Finishes deletions that a crash interrupted.
    pub(crate) fn open(root: PathBuf) -> Result<Self, BlobError> {
        fs::create_dir_all(root.join(DELETED)).during("make the blob folder")?;
        let open = File::open(&root).during("open the blob folder")?;
        let store = Self(Arc::new(Root { path: root, open }));
        // The service starts all the same, and the sweep reports it.
        if let Err(error) = store.empty_deleted() {
            tracing::warn!(%error, "what was deleted cannot be removed");
        }
        Ok(store)
    }

    /// The way to the disk of an upload from the start or of one that is continued.
    pub(crate) async fn begin(&self, key: &BlobKey, start: Start) -> Result<Disk, BlobError> {
        let (store, key) = (self.clone(), key.clone());
        let (part, hasher) = off_thread(move || match start {
            Start::Anew => Ok((Part::create(store, key)?, Sha256::new())),
            Start::At { offset, .. } => Part::resume(store, key, offset),
        })
        .await?;
        Ok(Disk::new(part, hasher))
    }

    /// How much of `key` is there, complete or for a later upload to continue.
    pub(crate) async fn received(&self, key: &BlobKey) -> Result<Progress, BlobError> {
        let (store, key) = (self.clone(), key.clone());
        off_thread(move || match store.size_of(&key, &key.part_name())? {
            Some(size) => Ok(Progress::Part(size)),
            None => Ok(store.final_size(&key)?.map_or(Progress::Nothing, |size| Progress::Complete { size })),
        })
        .await
    }

    /// The digest of the complete file `key`, computed from its bytes.
    ///
    /// Digests are kept in the event log. This is for the file that was completed just before a crash, so that its
    /// digest never reached the log.
    pub(crate) async fn digest(&self, key: &BlobKey) -> Result<Sha256Hex, BlobError> {
        let (store, key) = (self.clone(), key.clone());
        off_thread(move || {
            let file = store.open_final(&key)?;
            let (hasher, _) = part::hash(file).during("read a file")?;
            Ok(Sha256Hex::from_bytes(&hasher.finalize()))
        })
        .await
    }

    /// Removes all files of `transfer`. Does nothing when there are none.
    ///
    /// The transfer's folder is first moved away in one step: from then on nothing in it can be read or continued.
    /// Reads in progress run to their end; an upload in progress ends with [`BlobError::Superseded`], and the bytes
    /// it wrote are deleted. After a crash in between, the next [`Self::open`] or deletion removes the rest.
    pub(crate) async fn delete_transfer(&self, transfer: Uuid) -> Result<(), BlobError> {
        let store = self.clone();
        off_thread(move || {
            store.set_aside(transfer)?;
            store.remove_deleted(|name| name.starts_with(&format!("{transfer}.")))
        })
        .await
    }

    /// The transfers that have files here, so that those which ended long ago can be deleted.
    pub(crate) async fn list_transfers(&self) -> Result<Vec<Uuid>, BlobError> {
        let store = self.clone();
        off_thread(move || {
            let names = entry_names(&store.0.path).during("list the blob folder")?;
            Ok(names.iter().filter_map(|name| Uuid::try_parse(name).ok()).collect())
        })
        .await
    }

    pub(crate) async fn sweep(&self) -> Result<(), BlobError> {
        let store = self.clone();
        off_thread(move || store.empty_deleted()).await
    }

    /// Moves the folder of `transfer` to a free name among the deleted ones.
    fn set_aside(&self, transfer: Uuid) -> Result<(), BlobError> {
        for attempt in 0_u64.. {
            let aside = self.deleted().join(format!("{transfer}.{attempt}"));
            match fs::rename(self.0.path.join(folder_name(transfer)), aside) {
                Err(error) if is_not_empty(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                result => return result.during("set a deleted transfer aside"),
            }
        }
        Ok(())
    }

    fn empty_deleted(&self) -> Result<(), BlobError> {
        self.remove_deleted(|_| true)
    }

    /// Removes deleted entries whose name satisfies `is_meant`. An entry that cannot be removed does not stop the
    /// others.
    fn remove_deleted(&self, is_meant: impl Fn(&str) -> bool) -> Result<(), BlobError> {
        let mut failed = None;
        for name in entry_names(&self.deleted()).during("list deleted transfers")? {
            if is_meant(&name) {
                let removed = remove_folder(&self.deleted().join(name)).during("remove a deleted transfer");
                failed = removed.err().or(failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn deleted(&self) -> PathBuf {
        self.0.path.join(DELETED)
    }

    pub(crate) fn create_folder(&self, key: &BlobKey) -> io::Result<Folder> {
        Folder::create(&self.0.open, &folder_name(key.transfer()))
    }

    pub(crate) fn open_folder(&self, key: &BlobKey) -> io::Result<Folder> {
        Folder::open(&self.0.open, &folder_name(key.transfer()))
    }

    pub(crate) fn open_final(&self, key: &BlobKey) -> Result<File, BlobError> {
        let opened = self.open_folder(key).and_then(|folder| folder.open_to_read(key.file_name()));
        found(opened).during("open a file")?.ok_or(BlobError::NotFound)
    }

    /// Size of the complete file, if there is one.
    pub(crate) fn final_size(&self, key: &BlobKey) -> Result<Option<u64>, BlobError> {
        self.size_of(key, key.file_name())
    }

    fn size_of(&self, key: &BlobKey, name: &str) -> Result<Option<u64>, BlobError> {
        let Some(folder) = found(self.open_folder(key)).during("open the folder of a transfer")? else {
            return Ok(None);
        };
        let stat = folder.stat(name).during("measure a file")?;
        Ok(stat.map(|stat| stat.st_size.unsigned_abs()))
    }

    /// Makes the names of the transfers' folders durable.
    pub(crate) fn sync_root(&self) -> io::Result<()> {
        self.0.open.sync_all()
    }
}

fn folder_name(transfer: Uuid) -> String {
    transfer.hyphenated().to_string()
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn entry_names(folder: &std::path::Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}
