//! Files and folders beneath a root, opened by descriptor and never through a link.

use super::{ConfineError, kind};
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fsync, mkdirat, openat,
        openat2, renameat, statat, unlinkat,
    },
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// Longest path that the kernel takes in one call, with its final NUL.
const PATH_MAX: usize = 4096;

/// `openat2` answers EAGAIN when something was renamed while it looked; then the path is looked up part by part.
const LOOKUPS: usize = 8;

/// To look up names in a folder; needs no permission to list it.
pub(super) const LOOKUP_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
const OPEN_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
// A pipe that was put in the place of a file must not block the thread.
const OPEN_FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
const NO_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// How paths of more than one part are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// In one call of Linux 5.6 and later.
    Openat2,
    PartByPart,
}

impl Lookup {
    /// The operations that the kernel, and a filter of system calls around this process, allow.
    pub(super) fn detect() -> Self {
        match openat2(CWD, ".", LOOKUP_FOLDER | OFlags::CLOEXEC, Mode::empty(), NO_LINKS) {
            Ok(_) => Self::Openat2,
            Err(_) => Self::PartByPart,
        }
    }

    fn open(self, folder: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if self == Self::Openat2 && path.as_os_str().len() < PATH_MAX {
            for _ in 0..LOOKUPS {
                match openat2(folder, path, flags, Mode::empty(), NO_LINKS) {
                    Err(Errno::AGAIN) => {}
                    opened => return opened,
                }
            }
        }
        open_part_by_part(folder, path, flags)
    }
}

fn open_part_by_part(folder: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let open = |folder: &OwnedFd, part: &OsStr, flags| openat(folder, part, flags, Mode::empty());
    let mut parts = path.iter().peekable();
    let mut opened = None;
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        let flags = if is_last { flags } else { LOOKUP_FOLDER | OFlags::CLOEXEC | OFlags::NOFOLLOW };
        opened = Some(open(opened.as_ref().unwrap_or(folder), part, flags)?);
    }
    opened.ok_or(Errno::NOENT)
}

/// A configured directory, open.
#[derive(Debug)]
pub(super) struct Root {
    /// Its canonical path.
    pub(super) path: PathBuf,
    descriptor: OwnedFd,
    lookup: Lookup,
}

impl Root {
    /// Opens the root at `path`, which is canonical: a link in it was put there since, and is refused. A root may lie
    /// inside another one.
    pub(super) fn open(path: &Path, lookup: Lookup) -> io::Result<Self> {
        let top = openat(CWD, "/", LOOKUP_FOLDER | OFlags::CLOEXEC, Mode::empty())?;
        let rest = path.strip_prefix("/").unwrap_or(path);
        let descriptor = lookup.open(&top, rest, LOOKUP_FOLDER)?;
        Ok(Self { path: path.to_owned(), descriptor, lookup })
    }

    /// Whether both are the same directory on disk.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (fstat(&self.descriptor), fstat(&other.descriptor)) {
            (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        }
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(self.lookup.open(&self.descriptor, path, flags)?)
    }
}

/// A plain path beneath a root: no link, no `..`. It holds no descriptor of its own, because a tree has up to a million
/// of them: each opening looks the path up again, and refuses links.
#[derive(Debug, Clone)]
pub struct Place {
    pub(super) root: Arc<Root>,
    pub(super) path: PathBuf,
}

impl Place {
    /// The whole path, for people and as a key.
    pub fn path(&self) -> PathBuf {
        self.root.path.join(&self.path)
    }

    /// The last part; that of a root is the root's.
    pub fn file_name(&self) -> Option<OsString> {
        self.path().file_name().map(OsStr::to_owned)
    }

    /// The entry `name` of this folder.
    pub fn join(&self, name: &OsStr) -> Self {
        Self { root: self.root.clone(), path: self.path.join(name) }
    }

    /// The folder of this place and its name in it; `None` for a root.
    pub(super) fn split(mut self) -> Option<(Self, OsString)> {
        let name = self.path.file_name()?.to_owned();
        self.path.pop();
        Some((self, name))
    }

    /// Opens the folder.
    pub fn open_folder(&self) -> io::Result<Folder> {
        let descriptor = self.root.open_beneath(&self.path, OPEN_FOLDER)?;
        Ok(Folder { descriptor, place: self.clone() })
    }

    /// Opens the folder for `resolve`.
    pub(super) fn open_for_lookup(&self) -> io::Result<OwnedFd> {
        self.root.open_beneath(&self.path, LOOKUP_FOLDER)
    }

    /// Opens the file for reading.
    pub fn open_file(&self, shown: &str) -> Result<(File, Metadata), ConfineError> {
        let fault = |error| ConfineError::from_system(shown, error);
        let Some((folder, name)) = self.clone().split() else {
            return Err(ConfineError::IsDirectory(shown.to_owned()));
        };
        let folder = folder.open_for_lookup().map_err(fault)?;
        // Before opening, because to open a device may have an effect.
        let before =
            statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| fault(error.into()))?;
        match kind(&before) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(ConfineError::IsDirectory(shown.to_owned())),
            FileType::Symlink => return Err(ConfineError::Outside(shown.to_owned())),
            _ => return Err(ConfineError::Special(shown.to_owned())),
        }
        let flags = OPEN_FILE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&folder, &name, flags, Mode::empty()).map_err(|error| fault(error.into()))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(fault)?;
        if is_same(&before, &metadata) { Ok((file, metadata)) } else { Err(changed(shown)) }
    }

    /// The size of the file, if it is one.
    pub fn file_size(&self) -> Option<u64> {
        let (folder, name) = self.clone().split()?;
        let stat = statat(folder.open_for_lookup().ok()?, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (kind(&stat) == FileType::RegularFile).then_some(stat.st_size.unsigned_abs())
    }

    /// Removes the file or link.
    pub fn remove(&self) -> io::Result<()> {
        let (folder, name) = self.clone().split().ok_or(io::ErrorKind::IsADirectory)?;
        Ok(unlinkat(folder.open_for_lookup()?, &name, AtFlags::empty())?)
    }
}

/// An entry of a folder.
#[derive(Debug)]
pub struct FolderEntry {
    pub name: OsString,
    pub kind: FileType,
    pub size: u64,
}

/// An open folder. Names in it are looked up relative to the descriptor.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    place: Place,
}

impl Folder {
    /// Where it was when it was opened.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its entries, but for those that are removed meanwhile.
    pub fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<FolderEntry>> + '_> {
        let names = Dir::read_from(&self.descriptor)?.filter_map(|entry| match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
            Ok(entry) => Some(Ok(OsString::from_vec(entry.file_name().to_bytes().to_vec()))),
            Err(error) => Some(Err(io::Error::from(error))),
        });
        Ok(names.filter_map(|name| match name {
            Ok(name) => self.entry(name).transpose(),
            Err(error) => Some(Err(error)),
        }))
    }

    fn entry(&self, name: OsString) -> io::Result<Option<FolderEntry>> {
        let stat = self.stat(&name)?;
        Ok(stat.map(|stat| FolderEntry { name, kind: kind(&stat), size: stat.st_size.unsigned_abs() }))
    }

    /// The folder `name` in this one, made if it is missing; its name is on disk then.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<Self> {
        match mkdirat(&self.descriptor, name, FOLDER_MODE) {
            Ok(()) => self.sync()?,
            // Another file of the same tree may have made it just now.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let descriptor = self.open(name, OPEN_FOLDER, Mode::empty())?;
        Ok(Self { descriptor, place: self.place.join(name) })
    }

    /// Refuses the name of a file that is a link or a folder by now.
    pub fn check_final(&self, name: &str) -> Result<(), ConfineError> {
        let stat = self.stat(name.as_ref()).map_err(|error| ConfineError::from_system(name, error))?;
        match stat.as_ref().map(kind) {
            None | Some(FileType::RegularFile) => Ok(()),
            Some(FileType::Symlink) => Err(ConfineError::Link(name.to_owned())),
            Some(FileType::Directory) => Err(ConfineError::IsDirectory(name.to_owned())),
            Some(_) => Err(ConfineError::Special(name.to_owned())),
        }
    }

    /// Opens or makes the temporary file `name`. A link, also a hard one, leads to a file that is not ours: it is
    /// removed first.
    pub fn open_temporary(&self, name: &str) -> io::Result<File> {
        let create = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            self.open(name.as_ref(), flags, FILE_MODE).map(File::from)
        };
        match self.stat(name.as_ref())? {
            Some(before) if kind(&before) == FileType::RegularFile && before.st_nlink == 1 => {
                let file = File::from(self.open(name.as_ref(), OFlags::RDWR, Mode::empty())?);
                let metadata = file.metadata()?;
                if is_same(&before, &metadata) && metadata.nlink() == 1 {
                    Ok(file)
                } else {
                    Err(io::ErrorKind::AlreadyExists.into())
                }
            }
            Some(_) => {
                unlinkat(&self.descriptor, name, AtFlags::empty())?;
                create()
            }
            None => create(),
        }
    }

    /// Gives an entry another name; replaces a file or link of that name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    /// Makes renames and new names in the folder survive a power cut, where the file system can: some, such as those of folders
    /// that virtual machines share, refuse to sync any folder, and yet what was written is in place.
    pub fn sync(&self) -> io::Result<()> {
        match fsync(&self.descriptor) {
            Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            synced => Ok(synced?),
        }
    }

    fn open(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(openat(&self.descriptor, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?)
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.descriptor, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_same(before: &Stat, now: &Metadata) -> bool {
    (before.st_dev, before.st_ino) == (now.dev(), now.ino())
}

fn changed(shown: &str) -> ConfineError {
    ConfineError::Io(shown.to_owned(), io::Error::other("it was replaced at this moment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_synced_is_no_failure() {
        let root = Arc::new(Root::open(Path::new("/proc"), Lookup::detect()).unwrap());
        let folder = Place { root, path: PathBuf::new() }.open_folder().unwrap();
        assert_eq!(fsync(&folder.descriptor), Err(Errno::INVAL), "the test needs such a file system");
        folder.sync().unwrap();
    }
}
