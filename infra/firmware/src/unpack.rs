use std::{
    cell::Cell,
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use rustix::fs::syncfs;
use tar::{Archive, Entry};

/// Files and folders in a bundle at most.
const MAX_ENTRIES: usize = 20_000;
/// All of a bundle once it is unpacked, in bytes.
const MAX_UNPACKED: u64 = 2 << 30;
/// Limit of the ratio of unpacked to packed size. Programs pack to a third; a much larger ratio is an attack.
const MAX_RATIO: u64 = 200;
/// Up to this size, in bytes, the ratio is not checked.
const SMALL: u64 = 1 << 20;
/// Limit of an archive's metadata per file, in bytes.
const MAX_METADATA: u64 = 64 << 10;
/// Longest path in a bundle, in bytes.
const MAX_PATH: usize = 512;
/// Longest name of a file or folder in a bundle, in bytes: that of Linux file systems.
const MAX_NAME: usize = 255;
const BUFFER: usize = 64 * 1024;

/// Why a bundle was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Not a `.tar.gz`, or a damaged one.
    #[error("the bundle is not a valid .tar.gz archive")]
    NotAnArchive,
    /// It would do harm when it is unpacked.
    #[error("the bundle is refused: {0}")]
    Hostile(&'static str),
    /// The disk failed.
    #[error("the bundle cannot be unpacked: {0}")]
    Io(#[from] io::Error),
}

impl UnpackError {
    /// Stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAnArchive => "invalid_bundle",
            Self::Hostile(_) => "hostile_bundle",
            Self::Io(_) => "storage",
        }
    }
}

/// Bytes that may still be unpacked.
struct Budget {
    /// Of all of it.
    whole: Cell<u64>,
    /// Of what is being read.
    part: Cell<u64>,
}

/// Reads within a budget: sizes declared in an archive may be false, and its metadata is held in memory.
struct Bounded<'b, R> {
    inner: R,
    budget: &'b Budget,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Budget { whole, part } = self.budget;
        let most = usize::try_from(whole.get().min(part.get())).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let count = self.inner.read(&mut buffer[..most])?;
        whole.set(whole.get() - count as u64);
        part.set(part.get() - count as u64);
        Ok(count)
    }
}

impl Budget {
    /// The reason why the rest of the archive could not be read.
    fn explain(&self) -> UnpackError {
        match self.whole.get().min(self.part.get()) {
            0 => UnpackError::Hostile("it unpacks to too much"),
            _ => UnpackError::NotAnArchive,
        }
    }
}

/// Unpacks `archive` into the folder `into`, which is made and is to be removed on errors. All of it is on the disk then.
pub(crate) fn unpack(archive: File, into: &Path) -> Result<(), UnpackError> {
    let packed = archive.metadata()?.len();
    let whole = MAX_UNPACKED.min(SMALL.max(packed.saturating_mul(MAX_RATIO)));
    let budget = Budget { whole: Cell::new(whole), part: Cell::new(MAX_METADATA) };
    let mut archive = Archive::new(Bounded { inner: MultiGzDecoder::new(archive), budget: &budget });
    fs::create_dir(into)?;
    let mut seen = HashSet::new();
    let mut entries = archive.entries().map_err(|_| budget.explain())?;
    for count in 0.. {
        budget.part.set(MAX_METADATA);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(|_| budget.explain())?;
        if count == MAX_ENTRIES {
            return Err(UnpackError::Hostile("it holds more than 20000 files"));
        }
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        if !kind.is_file() && !kind.is_dir() {
            return Err(UnpackError::Hostile("it holds a link or a special file"));
        }
        let relative = relative_path(&entry.path_bytes())?;
        let path = into.join(&relative);
        let folder = if kind.is_dir() { path.as_path() } else { path.parent().unwrap_or(into) };
        fs::create_dir_all(folder).map_err(collision)?;
        if kind.is_file() {
            // Case is folded, because some disks do.
            if !seen.insert(relative.to_string_lossy().to_lowercase()) {
                return Err(UnpackError::Hostile("two of its files have the same path"));
            }
            budget.part.set(u64::MAX);
            write_file(&mut entry, &path, &budget)?;
        }
    }
    if seen.is_empty() {
        return Err(UnpackError::NotAnArchive);
    }
    // Many small files are on the disk sooner this way than one by one.
    Ok(syncfs(File::open(into)?).map_err(io::Error::from)?)
}

/// The path in `name`, if that leads into the folder that everything is unpacked into.
fn relative_path(name: &[u8]) -> Result<PathBuf, UnpackError> {
    let name = str::from_utf8(name).map_err(|_| UnpackError::Hostile("a path is not text"))?;
    let leads_out = || UnpackError::Hostile("a path leads out of it");
    if name.len() > MAX_PATH {
        return Err(UnpackError::Hostile("a path in it is longer than 512 bytes"));
    }
    if name.contains('\\') || name.chars().any(char::is_control) {
        return Err(UnpackError::Hostile("a path in it has a backslash or a control character"));
    }
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) if part.len() > MAX_NAME => {
                return Err(UnpackError::Hostile("a file name in it is longer than 255 bytes"));
            }
            Component::Normal(part) => path.push(part),
            // Archives of a whole folder begin so.
            Component::CurDir => {}
            _ => return Err(leads_out()),
        }
    }
    Ok(path)
}

fn write_file<R: Read>(entry: &mut Entry<'_, R>, path: &Path, budget: &Budget) -> Result<(), UnpackError> {
    let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
    let mode = if is_program { 0o755 } else { 0o644 };
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(collision)?;
    let (mut buffer, mut left) = (vec![0; BUFFER], entry.size());
    while left > 0 {
        let count = entry.read(&mut buffer).map_err(|_| budget.explain())?;
        if count == 0 {
            return Err(UnpackError::NotAnArchive);
        }
        file.write_all(&buffer[..count])?;
        left = left.saturating_sub(count as u64);
    }
    Ok(())
}

/// A path that is a file here and a folder there is the archive's fault.
fn collision(error: io::Error) -> UnpackError {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            UnpackError::Hostile("two of its files have the same path")
        }
        _ => UnpackError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Seek, os::unix::fs::PermissionsExt};

    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, EntryType, Header};

    use super::*;

    type Tar = Builder<GzEncoder<File>>;

    fn archive(add: impl FnOnce(&mut Tar)) -> File {
        let mut tar = Builder::new(GzEncoder::new(tempfile::tempfile().unwrap(), Compression::best()));
        add(&mut tar);
        let mut file = tar.into_inner().unwrap().finish().unwrap();
        file.rewind().unwrap();
        file
    }

    /// Adds an entry whose name is not looked at.
    fn add(tar: &mut Tar, name: &str, kind: EntryType, mode: u32, bytes: &[u8]) {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("a").unwrap();
        }
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    }

    fn file(tar: &mut Tar, name: &str, bytes: &[u8]) {
        add(tar, name, EntryType::Regular, 0o644, bytes);
    }

    fn refused(what: &str, archive: File) -> String {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(archive, &folder.path().join("x")).expect_err(what);
        let beside = fs::read_dir(folder.path()).unwrap().count();
        assert!(beside <= 1, "{what} wrote beside its folder");
        error.to_string()
    }

    #[test]
    fn files_folders_and_what_is_a_program_are_unpacked() {
        let long = format!("{}/{}.txt", "a".repeat(90), "b".repeat(90));
        let archive = archive(|tar| {
            add(tar, "./", EntryType::Directory, 0o777, b"");
            add(tar, "./bin/", EntryType::Directory, 0o700, b"");
            add(tar, "./bin/run", EntryType::Regular, 0o6777, b"#!/bin/sh");
            file(tar, "ä/empty", b"");
            let mut header = Header::new_gnu();
            header.set_size(3);
            header.set_mode(0o600);
            tar.append_data(&mut header, &long, &b"abc"[..]).unwrap();
        });
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("1.0.0");
        unpack(archive, &into).unwrap();
        let mode = |name: &str| fs::metadata(into.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("bin/run") & 0o7700, 0o700, "neither set-uid nor less than a program");
        assert_eq!(mode("ä/empty") & 0o7700, 0o600);
        assert_eq!(fs::read(into.join(&long)).unwrap(), b"abc");
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for name in ["../x", "a/../../x", "/etc/x", "./../x"] {
            let message = refused(name, archive(|tar| file(tar, name, b"x")));
            assert!(message.contains("leads out"), "{name}: {message}");
        }
        for name in ["a\\..\\x", "a/\u{1}"] {
            let message = refused(name, archive(|tar| file(tar, name, b"x")));
            assert!(message.contains("a backslash or a control character"), "{name:?}: {message}");
        }
    }

    #[test]
    fn names_that_no_disk_takes_are_refused() {
        let long = |path: &str| {
            archive(|tar| {
                let mut header = Header::new_gnu();
                header.set_size(1);
                tar.append_data(&mut header, path, &b"x"[..]).unwrap();
            })
        };
        assert!(refused("a name", long(&"x".repeat(256))).contains("longer than 255 bytes"));
        assert!(refused("a path", long(&format!("{}x", "x/".repeat(300)))).contains("longer than 512 bytes"));
    }

    #[test]
    fn links_and_special_files_are_refused() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char, EntryType::Block]
        {
            let bad = archive(|tar| {
                file(tar, "a", b"x");
                add(tar, "b", kind, 0o777, b"");
            });
            assert!(refused("a link", bad).contains("link or a special file"), "{kind:?}");
        }
    }

    #[test]
    fn bombs_crowds_and_collisions_are_refused() {
        let bomb = archive(|tar| file(tar, "zeros", &vec![0; 16 << 20]));
        assert!(refused("a bomb", bomb).contains("too much"));
        let name = "n".repeat(1 << 20);
        let metadata = archive(|tar| {
            add(tar, "././@LongLink", EntryType::GNULongName, 0, name.as_bytes());
            file(tar, "a", b"x");
        });
        assert!(refused("a name of a megabyte", metadata).contains("too much"));
        let crowd = archive(|tar| {
            for number in 0..=MAX_ENTRIES {
                file(tar, &number.to_string(), b"");
            }
        });
        assert!(refused("a crowd", crowd).contains("more than 20000"));
        for (one, other) in [("a", "A"), ("a", "a"), ("a", "a/b"), ("a/b", "a")] {
            let twice = archive(|tar| {
                file(tar, one, b"x");
                file(tar, other, b"y");
            });
            assert!(refused("a collision", twice).contains("same path"), "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_archive_is_said_to_be_none() {
        let of = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            file
        };
        for bytes in [&b""[..], b"text", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]] {
            assert!(refused("no archive", of(bytes)).contains("not a valid"));
        }
        assert!(refused("nothing in it", archive(|_| {})).contains("not a valid"));
        let mut whole = Vec::new();
        archive(|tar| file(tar, "a", &[7; 100_000])).read_to_end(&mut whole).unwrap();
        assert!(refused("cut off", of(&whole[..whole.len() / 2])).contains("not a valid"));
    }
}
