//! A server's folder: claimed by one process at a time, with the server's secret, log and data in it.
//!
//! The folder itself stays this process's own, also where the server runs as another user: that user may write
//! only in a folder inside it. Otherwise it could put links here that root would follow.

use std::fmt;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use crate::error::EmbeddedError;

/// A word that lets a client in; it does not print.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(word: &str) -> Self {
        Self(word.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// An exclusive lock on a folder; released when dropped, or by the kernel when the process ends.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Makes the folder when it is missing, sets its mode and claims it.
    pub(crate) fn claim(path: &Path, mode: u32) -> Result<Self, EmbeddedError> {
        make(path, mode).map_err(EmbeddedError::file("make the folder", path))?;
        let path = path.canonicalize().map_err(EmbeddedError::file("open the folder", path))?;
        let lock = lock(&path)?;
        Ok(Self { path, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The random secret in file `name`, created by the first call; it keeps other local users out.
    pub(crate) fn secret(&self, name: &str) -> Result<Secret, EmbeddedError> {
        let path = self.join(name);
        match fs::read_to_string(&path) {
            Ok(secret) if !secret.is_empty() => return Ok(Secret(secret)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(EmbeddedError::file("read", path)(error));
            }
            _ => {}
        }
        let secret = random_word();
        self.write_private(name, &secret)?;
        Ok(Secret(secret))
    }

    /// Writes a file that only its owner can read; it is there completely or not at all.
    pub(crate) fn write_private(&self, name: &str, content: &str) -> Result<PathBuf, EmbeddedError> {
        let path = self.join(name);
        let unfinished = self.join(&format!("{name}.new"));
        write_new(&unfinished, content)
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(EmbeddedError::file("write", &path))?;
        Ok(path)
    }
}

impl Drop for Folder {
    /// To close the file would not be enough: a child that another thread has just forked holds a copy of it until it
    /// runs its own program, and the lock with it.
    fn drop(&mut self) {
        // The kernel releases it when the last copy is closed.
        let _ = self.lock.unlock();
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::set_permissions(path, Permissions::from_mode(mode))
        }
        result => result,
    }
}

fn lock(folder: &Path) -> Result<File, EmbeddedError> {
    let path = folder.join("lock");
    let file =
        File::options().create(true).append(true).open(&path).map_err(EmbeddedError::file("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(EmbeddedError::InUse { data_dir: folder.to_owned() }),
        Err(TryLockError::Error(error)) => Err(EmbeddedError::file("lock", path)(error)),
    }
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    fs::remove_file(path)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

pub(crate) fn random_word() -> String {
    hex::encode(rand::random::<[u8; 24]>())
}

/// Hands a folder and everything in it to another user, unless the folder is that user's already.
///
/// The folder itself is last, so that an interrupted hand-over is repeated.
pub(crate) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if (metadata.uid(), metadata.gid()) == (uid, gid) {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    lchown(path, Some(uid), Some(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/folder");
        let first = Folder::claim(&path, 0o700).unwrap();
        let refused = Folder::claim(&path, 0o700).unwrap_err();
        assert!(matches!(refused, EmbeddedError::InUse { .. }), "{refused}");
        drop(first);
        Folder::claim(&path, 0o700).unwrap();
    }

    #[test]
    fn a_folder_is_free_when_it_is_dropped_whatever_a_child_holds() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::claim(place.path(), 0o700).unwrap();
        let held_by_a_child = first.lock.try_clone().unwrap();
        drop(first);
        Folder::claim(place.path(), 0o700).unwrap();
        drop(held_by_a_child);
    }

    #[test]
    fn a_secret_is_private_and_stays_the_same() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::claim(place.path(), 0o700).unwrap();
        let secret = folder.secret("password").unwrap();
        assert_eq!(secret.reveal().len(), 48);
        assert_eq!(format!("{secret:?}"), "[secret]");
        assert_eq!(folder.secret("password").unwrap(), secret);
        assert_eq!(fs::metadata(folder.join("password")).unwrap().mode() & 0o777, 0o600);
    }
}
