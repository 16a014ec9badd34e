//! The temporary file of a download: it is beside the final one and is renamed only when it is complete.

use super::{BUFFER, Interrupt, Parts, TransferError};
use crate::{confine::Folder, digest::Sha256Hex, protocol::TransferId};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read, Write},
    sync::Arc,
};
use tokio::sync::mpsc;

const SUFFIX: &str = ".signalbox-part";

/// File systems take names of up to 255 bytes; the transfer's number and the suffix must fit too.
const LONGEST_STEM: usize = 180;

/// Whether a file name is one of ours.
pub fn is_part(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(SUFFIX)
}

/// `.<name>.<transfer id>.signalbox-part`, the name cut where it would be too long.
pub fn part_name(name: &str, id: TransferId) -> String {
    if name.len() <= LONGEST_STEM {
        return format!(".{name}.{id}{SUFFIX}");
    }
    let cut = name.floor_char_boundary(LONGEST_STEM - 17);
    let digest = Sha256Hex::of(name.as_bytes());
    format!(".{}-{}.{id}{SUFFIX}", &name[..cut], &digest.as_str()[..16])
}

/// A temporary file, written and hashed up to `length`.
pub struct Part {
    file: File,
    folder: Arc<Folder>,
    name: String,
    hasher: Sha256,
    length: u64,
    shown: String,
}

impl Part {
    /// Opens the temporary file of `final_name` in `folder`. With `keep`, the bytes of an earlier try are read and
    /// kept (if there are at most `keep`), otherwise the file is emptied.
    pub fn open(
        folder: &Arc<Folder>,
        final_name: &str,
        id: TransferId,
        keep: Option<u64>,
        parts: &Parts,
        interrupt: &Interrupt,
    ) -> Result<Self, TransferError> {
        let shown = final_name.to_owned();
        let name = part_name(final_name, id);
        let file = folder.open_temporary(&name).map_err(|error| TransferError::write(&shown, error))?;
        parts.add(folder, &name);
        let mut part = Self { file, folder: folder.clone(), name, hasher: Sha256::new(), length: 0, shown };
        let there = part.file.metadata().map_err(|error| part.fault(error))?.len();
        if keep.is_some_and(|most| there <= most) {
            part.read(there, interrupt)?;
        } else {
            part.empty()?;
        }
        Ok(part)
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Starts again from nothing.
    pub fn empty(&mut self) -> Result<(), TransferError> {
        let emptied = self.file.set_len(0).and_then(|()| io::Seek::rewind(&mut self.file));
        emptied.map_err(|error| self.fault(error))?;
        self.hasher = Sha256::new();
        self.length = 0;
        Ok(())
    }

    /// Writes all pieces received. After an error it drops the receiver, which the sender notices.
    pub fn write(mut self, mut pieces: mpsc::Receiver<Bytes>) -> Result<Self, TransferError> {
        while let Some(piece) = pieces.blocking_recv() {
            self.file.write_all(&piece).map_err(|error| self.fault(error))?;
            self.hasher.update(&piece);
            self.length += piece.len() as u64;
        }
        Ok(self)
    }

    /// The digest of the written bytes.
    pub fn digest(&self) -> Sha256Hex {
        Sha256Hex::finish(self.hasher.clone())
    }

    /// Gives the file its final name, on disk for good.
    pub fn finish(self, parts: &Parts) -> Result<(), TransferError> {
        self.file.sync_all().map_err(|error| self.fault(error))?;
        self.folder.check_final(&self.shown)?;
        self.folder.rename(&self.name, &self.shown).map_err(|error| self.fault(error))?;
        parts.remove(&self.folder, &self.name);
        self.folder.sync().map_err(|error| self.fault(error))
    }

    fn read(&mut self, length: u64, interrupt: &Interrupt) -> Result<(), TransferError> {
        let mut buffer = vec![0; BUFFER];
        while self.length < length {
            interrupt.check()?;
            let most = (length - self.length).min(BUFFER as u64) as usize;
            let read = self.file.read(&mut buffer[..most]).map_err(|error| self.fault(error))?;
            if read == 0 {
                break;
            }
            self.hasher.update(&buffer[..read]);
            self.length += read as u64;
        }
        Ok(())
    }

    fn fault(&self, error: io::Error) -> TransferError {
        TransferError::write(&self.shown, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{confine::Roots, scratch::Scratch};
    use std::{fs, os::unix::fs::symlink};

    fn open(scratch: &Scratch, keep: Option<u64>, parts: &Parts) -> Part {
        let roots = Roots::open(&[scratch.path("")]).unwrap();
        let folder = Arc::new(roots.source(".").unwrap().open_folder().unwrap());
        Part::open(&folder, "f", TransferId(9), keep, parts, &Interrupt::default()).unwrap()
    }

    fn write(part: Part, text: &'static str) -> Part {
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(Bytes::from_static(text.as_bytes())).unwrap();
        drop(sender);
        part.write(receiver).unwrap()
    }

    #[test]
    fn a_file_bears_its_name_only_when_it_is_finished() {
        let (scratch, parts) = (Scratch::new(), Parts::default());
        let part = write(open(&scratch, None, &parts), "half");
        assert!(!scratch.path("f").exists() && scratch.path(".f.9.signalbox-part").exists());
        drop(part);
        let part = write(open(&scratch, Some(8), &parts), " and");
        assert_eq!(part.digest(), Sha256Hex::of(b"half and"));
        part.finish(&parts).unwrap();
        assert_eq!(fs::read(scratch.path("f")).unwrap(), b"half and");
        assert!(!scratch.path(".f.9.signalbox-part").exists());
    }

    #[test]
    fn what_is_too_long_to_be_kept_is_emptied_and_parts_are_deleted() {
        let (scratch, parts) = (Scratch::new(), Parts::default());
        drop(write(open(&scratch, None, &parts), "12345"));
        assert_eq!(open(&scratch, Some(5), &parts).length(), 5);
        assert_eq!(open(&scratch, Some(4), &parts).length(), 0);
        parts.delete();
        assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_the_temporary_file_is_not_written_through() {
        let part = ".f.9.signalbox-part";
        type Link = fn(std::path::PathBuf, std::path::PathBuf) -> io::Result<()>;
        let links: [Link; 2] =
            [|target, link| symlink(target, link), |target, link| fs::hard_link(target, link)];
        for link in links {
            let (scratch, parts) = (Scratch::new(), Parts::default());
            fs::write(scratch.path("victim"), "safe").unwrap();
            link(scratch.path("victim"), scratch.path(part)).unwrap();
            drop(write(open(&scratch, None, &parts), "evil"));
            assert_eq!(fs::read(scratch.path("victim")).unwrap(), b"safe");
        }
    }

    #[test]
    fn long_names_still_fit() {
        let name = "\u{fc}".repeat(127);
        let part = part_name(&name, TransferId(u64::MAX));
        assert!(part.len() <= 255 && is_part(&part));
        assert_ne!(part, part_name(&format!("{}x", "\u{fc}".repeat(126)), TransferId(u64::MAX)));
    }
}
