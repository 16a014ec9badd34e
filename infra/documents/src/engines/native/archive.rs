//! The parts of a document that is a ZIP archive, unpacked within limits.

use std::io::{Cursor, Read};

use zip::ZipArchive;

use crate::failure::Failure;

/// Files in an archive at most.
const FILES: usize = 20_000;
/// Largest part once it is unpacked, and all that are read together, in bytes.
const PART: u64 = 64 << 20;
const ALL: u64 = 256 << 20;

/// An archive that is read part by part.
pub(super) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    left: u64,
}

impl<'a> Archive<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, Failure> {
        let damaged = |_| Failure::corrupt("the document is damaged or truncated: it is no readable archive");
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
        if zip.len() > FILES {
            return Err(Failure::too_much(format!("the document has more than {FILES} parts")));
        }
        Ok(Self { zip, left: ALL })
    }

    /// Names of all parts.
    pub(super) fn names(&self) -> Vec<String> {
        self.zip.file_names().flatten().map(|name| name.into_owned()).collect()
    }

    /// The part called `name` as text; none if there is none.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        Ok(Some(super::text::decode(&bytes)))
    }

    /// The part called `name`, which has to be there.
    pub(super) fn main(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| Failure::corrupt("the document is damaged: its main part is missing"))
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(index) = self.zip.index_for_name(name) else { return Ok(None) };
        let file = match self.zip.by_index(index) {
            Ok(file) => file,
            Err(zip::result::ZipError::InvalidPassword | zip::result::ZipError::UnsupportedArchive(_)) => {
                return Err(Failure::Encrypted);
            }
            Err(_) => return Err(Failure::corrupt("a part of the document is damaged")),
        };
        // What is said of the size may be a lie: counted as it comes.
        let most = PART.min(self.left);
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|_| Failure::corrupt("a part of the document is damaged"))?;
        if bytes.len() as u64 > most {
            return Err(Failure::too_much(
                "the document unpacks to more than is read: it may be an archive bomb",
            ));
        }
        self.left -= bytes.len() as u64;
        Ok(Some(bytes))
    }
}
