//! Checks whether a file can be a document at all, while its bytes are received.

use memchr::memmem::find;

use crate::detect::{self, Envelope};

/// Bytes from the start that are kept to detect the type of a file.
const HEAD: usize = 64 << 10;
/// Every archive that a parser reads has one of these: the name of its main part, or of a part that names its kind.
const IN_ARCHIVES: [&[u8]; 6] = [
    b"mimetype",
    b"META-INF/container.xml",
    b"[Content_Types].xml",
    b"word/document.xml",
    b"xl/workbook.xml",
    b"ppt/presentation.xml",
];
/// The streams of compound files that a parser reads, in UTF-16.
const IN_COMPOUND_FILES: [&[u8]; 4] = [
    b"W\0o\0r\0d\0D\0o\0c\0u\0m\0e\0n\0t\0",
    b"W\0o\0r\0k\0b\0o\0o\0k\0",
    b"B\0o\0o\0k\0",
    b"E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e\0",
];
/// No name is longer; so much of a piece is searched again with the next one.
const OVERLAP: usize = 40;

/// Compares bytes as they arrive, and parses nothing: it finds files that no parser reads, so that no job is made of them.
/// A parser decides about all others.
#[derive(Debug, Clone, Default)]
pub struct TypeProbe {
    head: Vec<u8>,
    /// The last bytes that were searched.
    tail: Vec<u8>,
    /// Whether an envelope holds a name that a parser knows.
    is_known: bool,
}

impl TypeProbe {
    /// Takes the next bytes of the file.
    pub fn take(&mut self, piece: &[u8]) {
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        // A first piece that is too short to show an envelope stays in `tail`, and is searched together with the next one.
        let names: &[&[u8]] = match detect::envelope(&self.head) {
            Some(Envelope::Archive) => &IN_ARCHIVES,
            Some(Envelope::Compound) => &IN_COMPOUND_FILES,
            None => &[],
        };
        let is_in = |bytes: &[u8]| names.iter().any(|name| find(bytes, name).is_some());
        if !self.is_known {
            self.tail.extend_from_slice(&piece[..piece.len().min(OVERLAP)]);
            self.is_known = is_in(&self.tail) || is_in(piece);
            self.tail.extend_from_slice(&piece[piece.len().min(OVERLAP)..]);
            self.tail.drain(..self.tail.len().saturating_sub(OVERLAP));
        }
    }

    /// The type of the file, if no parser reads that.
    pub(crate) fn unreadable(&self) -> Option<&'static str> {
        let found = match detect::envelope(&self.head) {
            _ if self.is_known => return None,
            Some(Envelope::Archive) => detect::in_broken_zip(&self.head),
            Some(Envelope::Compound) => detect::in_compound_file(&self.head),
            // The file name only distinguishes kinds of text.
            None => detect::detect(&self.head, ""),
        };
        [detect::UNKNOWN, detect::COMPOUND].into_iter().chain(detect::FOR_TIKA).find(|known| *known == found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(bytes: &[u8], piece: usize) -> Option<&'static str> {
        let mut probe = TypeProbe::default();
        bytes.chunks(piece).for_each(|piece| probe.take(piece));
        probe.unreadable()
    }

    #[test]
    fn only_files_that_no_parser_reads_are_found() {
        let filler = vec![7; 70_000];
        let archive =
            |name: &[u8]| [b"PK\x03\x04\x14\0\0\0", filler.as_slice(), name, b"PK\x05\x06"].concat();
        let compound = |name: &[u8]| [b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", filler.as_slice(), name].concat();
        let cases: [(Vec<u8>, Option<&str>); 9] = [
            (b"text".to_vec(), None),
            (b"%PDF-1.7".to_vec(), None),
            (b"\x7fELF\x02\x01\x01\0\0\0".to_vec(), Some(detect::UNKNOWN)),
            (archive(b"song.mp3"), Some("application/zip")),
            (archive(b"[Content_Types].xml"), None),
            (archive(b"META-INF/container.xml"), None),
            (b"PK\x03\x04\x14\0docProps/app.xml".to_vec(), None),
            (compound(b"x"), Some(detect::COMPOUND)),
            (compound(b"W\0o\0r\0k\0b\0o\0o\0k\0"), None),
        ];
        for (bytes, expected) in cases {
            for piece in [7, 39, 4096, 1 << 20] {
                let shown = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(8)..]).into_owned();
                assert_eq!(unreadable(&bytes, piece), expected, "{shown} by {piece}");
            }
        }
    }

    #[test]
    fn samples_are_all_readable() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/documents");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                assert_eq!(unreadable(&std::fs::read(&path).unwrap(), 8192), None, "{}", path.display());
            }
        }
    }
}
