//! Keeps every access of a transfer inside the configured roots.
//!
//! Paths come from the gateway and are not trusted, and neither is the content of the roots: another process may swap
//! a folder for a symbolic link at any moment. `resolve` follows links itself and finds the plain path beneath a root;
//! `place` opens plain paths by descriptor, and refuses every link that it meets. The checked path is therefore the one
//! that is used. Test: `a_folder_that_is_swapped_for_a_link_all_the_time_leaks_nothing`.

mod place;
mod resolve;

pub use place::{Folder, FolderEntry, Place};
pub use resolve::{Destination, Roots};

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use std::{fs::Metadata, io, os::unix::fs::MetadataExt, path::PathBuf};

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
    #[error("'{0}' leads to a symbolic link whose target does not exist.")]
    Dangling(String),
    #[error("'{0}' cannot be reached: {1}.")]
    Io(String, io::Error),
}

impl ConfineError {
    /// The system's answer for `shown`, a path that was resolved before. A link in it was put there since.
    pub fn from_system(shown: &str, error: io::Error) -> Self {
        let shown = shown.to_owned();
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Self::Missing(shown),
            Some(Errno::NOTDIR) => Self::NotDirectory(shown),
            Some(Errno::LOOP | Errno::XDEV) => Self::Outside(shown),
            _ => Self::Io(shown, error),
        }
    }
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

/// Whether both describe the same file.
pub fn same_file(left: &Metadata, right: &Metadata) -> bool {
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests;
