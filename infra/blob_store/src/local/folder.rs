use std::{
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

/// An open folder of a transfer. Names in it are looked up relative to the open folder and never by path, so that an
/// upload which outlives the deletion of its transfer ends in the folder that is going away, not in a new one.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;

impl Folder {
    /// The folder `name` in `root`, if it exists.
    pub(crate) fn open(root: &File, name: &str) -> io::Result<Self> {
        Ok(Self(openat(root, name, OPEN_FOLDER, Mode::empty())?))
    }

    /// The folder `name` in `root`, made if need be.
    pub(crate) fn create(root: &File, name: &str) -> io::Result<Self> {
        loop {
            match mkdirat(root, name, FOLDER_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            match Self::open(root, name) {
                // A deletion happened between the two steps, and the upload failed here with an I/O error: test
                // `deleting_while_many_uploads_begin_and_end_leaves_nothing`. Without a root it is mkdirat that
                // fails.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => return result,
            }
        }
    }

    pub(crate) fn open_to_read(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY, Mode::empty())
    }

    pub(crate) fn open_to_append(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND, Mode::empty())
    }

    pub(crate) fn create_new(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL, FILE_MODE)
    }

    fn open_file(&self, name: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?.into())
    }

    pub(crate) fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Makes the names in the folder durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }
}

/// How often a folder that is going away is emptied again because an upload slipped one more file into it.
const EMPTYING_ATTEMPTS: usize = 16;

/// Removes the folder at `path` and the files in it. Others may be removing it too.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    for _ in 0..EMPTYING_ATTEMPTS {
        match remove_files(path).and_then(|()| fs::remove_dir(path)) {
            Err(error) if is_not_empty(&error) => {}
            result => return gone_is_fine(result),
        }
    }
    Err(io::ErrorKind::DirectoryNotEmpty.into())
}

fn remove_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        gone_is_fine(fs::remove_file(entry?.path()))?;
    }
    Ok(())
}

/// File systems use different error codes for it.
pub(crate) fn is_not_empty(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
