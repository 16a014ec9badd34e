//! Keeps every path inside the configured roots.
//!
//! Paths come from the gateway and are not trusted: each is resolved part by part, symbolic links included, and
//! what it really names must lie below a root. Files are then opened by that resolved path, and checked once more
//! after opening, in case somebody swapped a part for a link in between.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Why a path is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("The root {0} is not a directory that can be used: {1}.")]
    Root(PathBuf, io::Error),
    #[error("'{0}' lies outside the directories that this agent may use.")]
    Outside(String),
    #[error("'{0}' is not a valid path.")]
    Invalid(String),
    #[error("'{0}' does not exist.")]
    Missing(String),
    #[error("'{0}' is a directory, not a file.")]
    IsDirectory(String),
    #[error("'{0}' is not a directory.")]
    NotDirectory(String),
    #[error("'{0}' is neither a file nor a directory.")]
    Special(String),
    #[error("'{0}' is a symbolic link, and files are not written through links.")]
    Link(String),
    #[error("'{0}' cannot be reached: {1}.")]
    Io(String, io::Error),
}

/// The directories that transfers may use, resolved at start.
#[derive(Debug, Clone)]
pub struct Roots {
    canonical: Vec<PathBuf>,
}

/// A place that was resolved: a canonical path that exists, and the parts below it that do not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    existing: PathBuf,
    missing: Vec<OsString>,
}

impl Place {
    /// The whole path.
    pub fn path(&self) -> PathBuf {
        self.missing.iter().fold(self.existing.clone(), |path, part| path.join(part))
    }

    /// The folder and the last part of the path, if that is a name.
    pub fn split(mut self) -> Option<(Self, String)> {
        let name = match self.missing.pop() {
            Some(name) => name,
            None => {
                let name = self.existing.file_name()?.to_owned();
                self.existing.pop();
                name
            }
        };
        Some((self, name.into_string().ok()?))
    }
}

impl Roots {
    /// Resolves the configured directories; all of them must exist.
    pub fn open(configured: &[PathBuf]) -> Result<Self, ConfineError> {
        let canonical = configured.iter().map(|root| canonical_root(root)).collect::<Result<_, _>>()?;
        Ok(Self { canonical })
    }

    /// The existing file or directory that a transfer reads, as its canonical path.
    pub fn source(&self, path: &str) -> Result<PathBuf, ConfineError> {
        let place = self.resolve_path(path)?;
        if place.missing.is_empty() {
            Ok(place.existing)
        } else {
            Err(ConfineError::Missing(path.to_owned()))
        }
    }

    /// The place that a transfer writes to. The last part may be a link to a directory, but not to a file.
    pub fn destination(&self, path: &str) -> Result<Place, ConfineError> {
        let place = self.resolve_path(path)?;
        if place.missing.is_empty() && !place.existing.is_dir() {
            refuse_link(&self.absolute(path)?, path)?;
        }
        Ok(place)
    }

    /// The place of an entry below a directory that was resolved before. Its name must be a clean one.
    pub fn entry(&self, base: &Path, name: &str) -> Result<Place, ConfineError> {
        check_entry_name(name)?;
        let place = self.resolve(base.to_owned(), Path::new(name), name)?;
        if place.missing.is_empty() && !place.existing.is_dir() {
            refuse_link(&base.join(name), name)?;
        }
        Ok(place)
    }

    /// Whether a canonical path lies in a root.
    pub fn contains(&self, canonical: &Path) -> bool {
        self.canonical.iter().any(|root| canonical.starts_with(root))
    }

    /// Opens a file for reading by its canonical path, and makes sure that it is what was resolved.
    pub fn open_source(&self, canonical: &Path, shown: &str) -> Result<(File, Metadata), ConfineError> {
        let io = |error| ConfineError::Io(shown.to_owned(), error);
        // Looked at before opening, because opening a pipe would wait for its other end.
        let before = fs::symlink_metadata(canonical).map_err(|error| not_there(shown, error))?;
        if before.is_dir() {
            return Err(ConfineError::IsDirectory(shown.to_owned()));
        } else if !before.is_file() {
            return Err(ConfineError::Special(shown.to_owned()));
        }
        let file = File::open(canonical).map_err(|error| not_there(shown, error))?;
        let metadata = file.metadata().map_err(io)?;
        let now = fs::canonicalize(canonical).map_err(io)?;
        if now != canonical || !same_file(&before, &metadata) || !self.contains(&now) {
            return Err(ConfineError::Outside(shown.to_owned()));
        }
        Ok((file, metadata))
    }

    /// Makes the missing directories of `place`, each flushed to disk, and answers with the directory.
    pub fn make_directories(&self, place: &Place, shown: &str) -> Result<PathBuf, ConfineError> {
        let io = |error| ConfineError::Io(shown.to_owned(), error);
        let mut path = place.existing.clone();
        for part in &place.missing {
            let parent = path.clone();
            path.push(part);
            match fs::create_dir(&path) {
                Ok(()) => sync_directory(&parent).map_err(io)?,
                // Another file of the same tree may have made it just now.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(error)),
            }
        }
        let metadata = fs::symlink_metadata(&path).map_err(io)?;
        if fs::canonicalize(&path).map_err(io)? != path {
            return Err(ConfineError::Outside(shown.to_owned()));
        }
        if metadata.is_dir() { Ok(path) } else { Err(ConfineError::NotDirectory(shown.to_owned())) }
    }

    /// Refuses a file's final path that is a link or a directory by now.
    pub fn check_final(&self, path: &Path, shown: &str) -> Result<(), ConfineError> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => Err(ConfineError::Link(shown.to_owned())),
            Ok(metadata) if metadata.is_dir() => Err(ConfineError::IsDirectory(shown.to_owned())),
            Ok(metadata) if !metadata.is_file() => Err(ConfineError::Special(shown.to_owned())),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(ConfineError::Io(shown.to_owned(), error)),
        }
    }

    fn absolute(&self, path: &str) -> Result<PathBuf, ConfineError> {
        if path.is_empty() || path.contains('\0') {
            return Err(ConfineError::Invalid(path.replace('\0', "\\0")));
        }
        let base = self.canonical.first().ok_or_else(|| ConfineError::Outside(path.to_owned()))?;
        Ok(base.join(path))
    }

    fn resolve_path(&self, path: &str) -> Result<Place, ConfineError> {
        let whole = self.absolute(path)?;
        self.resolve(PathBuf::from("/"), &whole, path)
    }

    /// Follows `path` from `start` (canonical). Nothing is told about what lies outside the roots, not even
    /// whether it exists.
    fn resolve(&self, start: PathBuf, path: &Path, shown: &str) -> Result<Place, ConfineError> {
        let mut place = Place { existing: start, missing: Vec::new() };
        let followed = follow(&mut place, path, shown);
        if !self.contains(&place.existing) {
            return Err(ConfineError::Outside(shown.to_owned()));
        }
        followed.map(|()| place)
    }
}

fn follow(place: &mut Place, path: &Path, shown: &str) -> Result<(), ConfineError> {
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir if place.missing.is_empty() => {
                place.existing.pop();
            }
            // What does not exist has no parent that could be trusted.
            Component::ParentDir => return Err(ConfineError::Outside(shown.to_owned())),
            Component::Normal(part) if !place.missing.is_empty() => place.missing.push(part.to_owned()),
            Component::Normal(part) => step(place, part.to_owned(), shown)?,
        }
    }
    Ok(())
}

fn step(place: &mut Place, part: OsString, shown: &str) -> Result<(), ConfineError> {
    let next = place.existing.join(&part);
    match fs::canonicalize(&next) {
        Ok(canonical) => place.existing = canonical,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(&next) {
            // A link whose target does not exist is no free name: writing would create the target.
            Ok(metadata) if metadata.is_symlink() => return Err(ConfineError::Link(shown.to_owned())),
            // Another file of the same tree has made it just now.
            Ok(_) => place.existing = next,
            Err(_) => place.missing.push(part),
        },
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(ConfineError::NotDirectory(shown.to_owned()));
        }
        Err(error) => return Err(ConfineError::Io(shown.to_owned(), error)),
    }
    Ok(())
}

fn refuse_link(path: &Path, shown: &str) -> Result<(), ConfineError> {
    // Put together anew, because a trailing slash would make the look follow the link.
    let path: PathBuf = path.components().collect();
    match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_symlink() => Err(ConfineError::Link(shown.to_owned())),
        _ => Ok(()),
    }
}

fn canonical_root(root: &Path) -> Result<PathBuf, ConfineError> {
    let fault = |error| ConfineError::Root(root.to_owned(), error);
    let canonical = fs::canonicalize(root).map_err(fault)?;
    if canonical.is_dir() { Ok(canonical) } else { Err(fault(io::ErrorKind::NotADirectory.into())) }
}

/// An entry of a tree: parts between single slashes, none of them `.` or `..`; a directory ends in one slash.
pub fn check_entry_name(name: &str) -> Result<(), ConfineError> {
    let parts = name.strip_suffix('/').unwrap_or(name);
    let clean = parts.split('/').all(|part| !matches!(part, "" | "." | "..")) && !name.contains('\0');
    if clean { Ok(()) } else { Err(ConfineError::Outside(name.replace('\0', "\\0"))) }
}

/// A file name alone, without any folder.
pub fn check_file_name(name: &str) -> Result<(), ConfineError> {
    if name.contains('/') { Err(ConfineError::Outside(name.to_owned())) } else { check_entry_name(name) }
}

/// Makes renames and new names in a directory survive a power cut.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether two looks at a path saw the same file.
pub fn same_file(left: &Metadata, right: &Metadata) -> bool {
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}

fn not_there(shown: &str, error: io::Error) -> ConfineError {
    if error.kind() == io::ErrorKind::NotFound {
        ConfineError::Missing(shown.to_owned())
    } else {
        ConfineError::Io(shown.to_owned(), error)
    }
}

#[cfg(test)]
#[path = "confine_tests.rs"]
mod tests;
