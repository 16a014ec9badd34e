//! Microsoft's compound files, [MS-CFB]: streams in sectors that are chained by a table.

use crate::failure::Failure;

const HEADER: usize = 512;
const SIGNATURE: &[u8] = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1";
/// Ends a chain; larger numbers are not sectors.
const LAST_SECTOR: u32 = 0xFFFF_FFFA;
const ENTRY: usize = 128;
/// Entries of the first table of tables, in the header.
const FIRST_TABLES: usize = 109;
/// Smaller streams are in small sectors.
const SMALL_STREAM: u64 = 4096;
const SMALL_SECTOR: usize = 64;
const STREAM: u8 = 2;
const ROOT: u8 = 5;

/// A compound file.
pub(super) struct Compound<'a> {
    bytes: &'a [u8],
    sector: usize,
    table: Vec<u32>,
    small_table: Vec<u32>,
    small: Vec<u8>,
    directory: Vec<u8>,
}

fn damaged() -> Failure {
    Failure::corrupt("the document is damaged or truncated")
}

/// The little-endian number at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// The little-endian number at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

impl<'a> Compound<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, Failure> {
        let shift = u16_at(bytes, 30).filter(|shift| matches!(shift, 9 | 12)).ok_or_else(damaged)?;
        if !bytes.starts_with(SIGNATURE) {
            return Err(damaged());
        }
        let mut file = Self {
            bytes,
            sector: 1 << shift,
            table: Vec::new(),
            small_table: Vec::new(),
            small: Vec::new(),
            directory: Vec::new(),
        };
        file.table = file.read_table()?;
        file.directory = file.chain(u32_at(bytes, 48).ok_or_else(damaged)?)?;
        file.small_table = numbers(&file.chain(u32_at(bytes, 60).ok_or_else(damaged)?)?);
        let root = file.entries().find(|entry| entry[66] == ROOT).and_then(|root| u32_at(root, 116));
        if let Some(root) = root {
            file.small = file.chain(root)?;
        }
        Ok(file)
    }

    /// The stream called `name`; `None` if it does not exist.
    pub(super) fn stream(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let is_it = |entry: &&[u8]| {
            let length = usize::from(u16_at(entry, 64).unwrap_or(0));
            entry[66] == STREAM && length == name.len() + 2 && entry.starts_with(&name)
        };
        let Some(entry) = self.entries().find(is_it) else { return Ok(None) };
        let (start, size) =
            (u32_at(entry, 116).ok_or_else(damaged)?, u32_at(entry, 120).ok_or_else(damaged)?);
        let mut stream =
            if u64::from(size) < SMALL_STREAM { self.small_chain(start)? } else { self.chain(start)? };
        stream.truncate(size as usize);
        Ok(Some(stream))
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.directory.chunks_exact(ENTRY)
    }

    fn sector(&self, number: u32) -> Option<&'a [u8]> {
        let from = (number as usize).checked_add(1)?.checked_mul(self.sector)?.max(HEADER);
        let rest = self.bytes.get(from..)?;
        // The last sector of a file may be cut short.
        (!rest.is_empty()).then(|| &rest[..rest.len().min(self.sector)])
    }

    fn read_table(&self) -> Result<Vec<u32>, Failure> {
        let most = self.bytes.len() / self.sector + 1;
        let first = self.bytes.get(76..76 + 4 * FIRST_TABLES).ok_or_else(damaged)?;
        let mut tables = numbers(first);
        let mut more = u32_at(self.bytes, 68).ok_or_else(damaged)?;
        while more < LAST_SECTOR && tables.len() <= most + FIRST_TABLES {
            let mut listed = numbers(self.sector(more).ok_or_else(damaged)?);
            more = listed.pop().ok_or_else(damaged)?;
            tables.extend(listed);
        }
        let mut table = Vec::new();
        for number in tables.into_iter().filter(|number| *number < LAST_SECTOR).take(most) {
            table.extend(numbers(self.sector(number).ok_or_else(damaged)?));
        }
        Ok(table)
    }

    /// The bytes of a chain of sectors; a circular chain is cut at the file's size.
    fn chain(&self, start: u32) -> Result<Vec<u8>, Failure> {
        let (mut found, mut number) = (Vec::new(), start);
        while number < LAST_SECTOR && found.len() <= self.bytes.len() {
            found.extend_from_slice(self.sector(number).ok_or_else(damaged)?);
            number = *self.table.get(number as usize).ok_or_else(damaged)?;
        }
        Ok(found)
    }

    fn small_chain(&self, start: u32) -> Result<Vec<u8>, Failure> {
        let (mut found, mut number) = (Vec::new(), start);
        while number < LAST_SECTOR && found.len() <= self.small.len() {
            let from = number as usize * SMALL_SECTOR;
            let to = (from + SMALL_SECTOR).min(self.small.len());
            found.extend_from_slice(self.small.get(from..to).ok_or_else(damaged)?);
            number = *self.small_table.get(number as usize).ok_or_else(damaged)?;
        }
        Ok(found)
    }
}
