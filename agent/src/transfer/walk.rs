//! Lists the files of a tree, with names relative to it.

use super::{Interrupt, TransferError, part};
use crate::confine::{FolderEntry, Place, Roots};
use rustix::fs::FileType;
use std::io;

/// More entries would not fit in memory comfortably, here or at the gateway.
const MAX_ENTRIES: usize = 1_000_000;

/// An entry of a tree.
#[derive(Debug, Clone)]
pub struct Found {
    /// Relative to the tree, `/` between parts; that of a directory ends in `/`.
    pub name: String,
    pub size: u64,
    /// Where a file is; `None` for an empty directory.
    pub place: Option<Place>,
}

/// Lists files and empty directories below `root`. Links to files inside the roots are read; other
/// links are passed over, those to directories too, so that no loop is possible.
pub fn walk(
    roots: &Roots,
    root: &Place,
    shown: &str,
    interrupt: &Interrupt,
) -> Result<Vec<Found>, TransferError> {
    let mut walk = Walk { roots, shown, found: Vec::new(), folders: vec![(root.clone(), String::new())] };
    while let Some((folder, prefix)) = walk.folders.pop() {
        interrupt.check()?;
        walk.folder(&folder, &prefix)?;
    }
    walk.found.sort_by(|left, right| left.name.as_bytes().cmp(right.name.as_bytes()));
    Ok(walk.found)
}

struct Walk<'a> {
    roots: &'a Roots,
    shown: &'a str,
    found: Vec<Found>,
    folders: Vec<(Place, String)>,
}

impl Walk<'_> {
    fn folder(&mut self, place: &Place, prefix: &str) -> Result<(), TransferError> {
        let mut is_empty = true;
        let folder = place.open_folder().map_err(|error| self.fault(prefix, error))?;
        for entry in folder.entries().map_err(|error| self.fault(prefix, error))? {
            let entry = entry.map_err(|error| self.fault(prefix, error))?;
            is_empty &= !self.entry(place, entry, prefix)?;
        }
        if is_empty && !prefix.is_empty() {
            self.add(Found { name: prefix.to_owned(), size: 0, place: None })?;
        }
        Ok(())
    }

    /// Takes one entry in; whether it counts.
    fn entry(&mut self, folder: &Place, entry: FolderEntry, prefix: &str) -> Result<bool, TransferError> {
        let Some(name) = entry.name.to_str() else {
            let name = entry.name.to_string_lossy().into_owned();
            return Err(TransferError::NonUtf8(self.shown.to_owned(), name));
        };
        if part::is_part(name) {
            return Ok(false);
        }
        let name = format!("{prefix}{name}");
        match entry.kind {
            FileType::Directory => self.folders.push((folder.join(&entry.name), format!("{name}/"))),
            FileType::RegularFile => {
                let place = Some(folder.join(&entry.name));
                self.add(Found { name, size: entry.size, place })?;
            }
            FileType::Symlink => {
                let linked = self.roots.linked_file(folder, &entry.name, &name);
                let sized = linked.and_then(|place| Some((place.file_size()?, place)));
                let Some((size, place)) = sized else { return Ok(self.pass_over(&name)) };
                self.add(Found { name, size, place: Some(place) })?;
            }
            _ => return Ok(self.pass_over(&name)),
        }
        Ok(true)
    }

    fn pass_over(&self, name: &str) -> bool {
        tracing::warn!(
            entry = name,
            "passed over: neither a file, a directory, nor a link to a file inside the roots"
        );
        false
    }

    fn add(&mut self, found: Found) -> Result<(), TransferError> {
        if self.found.len() >= MAX_ENTRIES {
            return Err(TransferError::TooManyEntries(self.shown.to_owned(), MAX_ENTRIES));
        }
        self.found.push(found);
        Ok(())
    }

    fn fault(&self, name: &str, error: io::Error) -> TransferError {
        TransferError::Read(format!("{}/{name}", self.shown.trim_end_matches('/')), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, os::unix::fs::symlink};

    fn names(scratch: &Scratch) -> Result<Vec<String>, TransferError> {
        let roots = Roots::open(&[scratch.path("in")]).unwrap();
        let root = roots.source("tree").unwrap();
        let found = walk(&roots, &root, "tree/", &Interrupt::default())?;
        Ok(found.into_iter().map(|found| found.name).collect())
    }

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("in/tree/a/b")).unwrap();
        fs::create_dir_all(scratch.path("in/tree/empty/inner")).unwrap();
        fs::write(scratch.path("in/tree/a/b/deep"), "1").unwrap();
        fs::write(scratch.path("in/tree/top \u{fc}"), "2").unwrap();
        scratch
    }

    #[test]
    fn files_and_only_empty_directories_are_listed() {
        assert_eq!(names(&tree()).unwrap(), ["a/b/deep", "empty/inner/", "top \u{fc}"]);
    }

    #[test]
    fn an_empty_tree_has_no_entries() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path("in/tree")).unwrap();
        assert!(names(&scratch).unwrap().is_empty());
    }

    #[test]
    fn links_are_read_only_when_they_lead_to_a_file_inside() {
        let scratch = tree();
        fs::write(scratch.path("in/shared"), "3").unwrap();
        fs::write(scratch.path("secret"), "4").unwrap();
        for (target, link) in
            [("in/shared", "good"), ("secret", "out"), ("in/tree", "loop"), ("none", "dangling")]
        {
            symlink(scratch.path(target), scratch.path("in/tree").join(link)).unwrap();
        }
        assert_eq!(names(&scratch).unwrap(), ["a/b/deep", "empty/inner/", "good", "top \u{fc}"]);
    }

    #[test]
    fn temporary_files_of_downloads_are_passed_over() {
        let scratch = tree();
        fs::write(scratch.path("in/tree/.x.5.signalbox-part"), "half").unwrap();
        assert_eq!(names(&scratch).unwrap().len(), 3);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_an_error() {
        let scratch = tree();
        fs::write(scratch.path("in/tree").join(OsStr::from_bytes(b"\xff")), "5").unwrap();
        let error = names(&scratch).unwrap_err();
        assert!(matches!(error, TransferError::NonUtf8(..)));
        assert!(!error.is_retryable());
    }
}
