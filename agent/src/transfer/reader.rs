//! Reads a source file in large pieces on a blocking thread and hashes them on the way.

use super::{BUFFER, Interrupt, TransferError};
use crate::{
    confine::{Place, same_file},
    digest::Sha256Hex,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
};
use tokio::sync::mpsc;

/// A file to be read.
#[derive(Debug, Clone)]
pub struct Source {
    pub place: Place,
    /// How it is called in messages.
    pub shown: String,
}

/// An open source, read and hashed up to some point.
pub struct Reading {
    file: File,
    opened: Metadata,
    hasher: Sha256,
    left: u64,
    shown: String,
}

impl Reading {
    /// Opens the file; its present length is the number of bytes to read.
    pub fn open(source: &Source) -> Result<Self, TransferError> {
        let (file, opened) = source.place.open_file(&source.shown)?;
        let left = opened.len();
        Ok(Self { file, opened, hasher: Sha256::new(), left, shown: source.shown.clone() })
    }

    /// The length that will be read.
    pub fn total(&self) -> u64 {
        self.opened.len()
    }

    /// Reads and hashes `length` bytes that need not be sent again.
    pub fn skip(&mut self, length: u64, interrupt: &Interrupt) -> Result<(), TransferError> {
        let end = self.left.saturating_sub(length);
        while self.left > end {
            interrupt.check()?;
            self.piece(self.left - end)?;
        }
        Ok(())
    }

    /// Sends the rest piece by piece and returns the digest of the whole file. If the receiver is dropped, it stops
    /// early with an error that is ignored.
    pub fn send(mut self, pieces: &mpsc::Sender<io::Result<Bytes>>) -> Result<Sha256Hex, TransferError> {
        while self.left > 0 {
            match self.piece(self.left) {
                Ok(piece) => {
                    if pieces.blocking_send(Ok(piece)).is_err() {
                        return Err(TransferError::Short(self.shown));
                    }
                }
                Err(error) => {
                    // Without this the body would just end, and look complete if its length is not announced.
                    let _ = pieces.blocking_send(Err(io::ErrorKind::UnexpectedEof.into()));
                    return Err(error);
                }
            }
        }
        self.finish()
    }

    /// The digest of the whole file, which was not sent.
    pub fn digest(mut self, interrupt: &Interrupt) -> Result<Sha256Hex, TransferError> {
        self.skip(self.left, interrupt)?;
        self.finish()
    }

    fn piece(&mut self, most: u64) -> Result<Bytes, TransferError> {
        let size = most.min(BUFFER as u64);
        let mut piece = Vec::with_capacity(size as usize);
        let read = Read::by_ref(&mut self.file).take(size).read_to_end(&mut piece);
        let read = read.map_err(|error| TransferError::Read(self.shown.clone(), error))?;
        if (read as u64) < size {
            return Err(TransferError::SourceChanged(self.shown.clone()));
        }
        self.left -= size;
        self.hasher.update(&piece);
        Ok(piece.into())
    }

    fn finish(self) -> Result<Sha256Hex, TransferError> {
        let now = self.file.metadata().map_err(|error| TransferError::Read(self.shown.clone(), error))?;
        if unchanged(&self.opened, &now) {
            Ok(Sha256Hex::finish(self.hasher))
        } else {
            Err(TransferError::SourceChanged(self.shown))
        }
    }
}

fn unchanged(before: &Metadata, now: &Metadata) -> bool {
    let stamp = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    same_file(before, now) && stamp(before) == stamp(now)
}
