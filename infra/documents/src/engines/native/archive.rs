//! The parts of a document that is a ZIP archive, unpacked within limits.

use std::{
    collections::HashMap,
    io::{Cursor, Read},
};

use zip::ZipArchive;

use crate::failure::Failure;

/// Files in an archive at most.
const FILES: usize = 20_000;
/// Largest part once it is unpacked, and all that are read together, in bytes.
const PART: u64 = 64 << 20;
const ALL: u64 = 256 << 20;

/// A relationship of a part: the kind and the part that it points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation {
    /// The last word of its kind: `chart`, `image`.
    pub(super) kind: String,
    pub(super) part: String,
}

/// An archive that is read part by part.
pub(super) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    left: u64,
    /// Whether a part was left out because it is damaged.
    lacks: bool,
}

impl<'a> Archive<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, Failure> {
        let damaged =
            |_| Failure::corrupt("the document is damaged or truncated: its archive cannot be read");
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
        if zip.len() > FILES {
            return Err(Failure::too_much(format!("the document has more than {FILES} parts")));
        }
        Ok(Self { zip, left: ALL, lacks: false })
    }

    /// The contents of a part without which the document can be read: none if that is damaged.
    pub(super) fn unless_damaged<T: Default>(&mut self, read: Result<T, Failure>) -> Result<T, Failure> {
        if matches!(read, Err(Failure::Corrupt { .. })) {
            self.lacks = true;
            return Ok(T::default());
        }
        read
    }

    /// Notes that a part is missing.
    pub(super) fn note_missing(&mut self) {
        self.lacks = true;
    }

    /// A warning if parts were left out.
    pub(super) fn warning(&self) -> Option<String> {
        self.lacks.then(|| "a part of the document is damaged or missing and was left out".to_owned())
    }

    /// Names of all parts.
    pub(super) fn names(&self) -> Vec<String> {
        self.zip.file_names().flatten().map(|name| name.into_owned()).collect()
    }

    /// The part called `name` as text; `None` if it does not exist.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        Ok(Some(crate::encoding::decode_declared(&bytes)))
    }

    /// The name of the main part of one of Microsoft's formats: the one that the archive relates to, else `usual`.
    pub(super) fn main_name(&mut self, usual: &str) -> Result<String, Failure> {
        let mut found = None;
        if self.zip.index_for_name(usual).is_none()
            && let Some(relations) = self.text("_rels/.rels")?
        {
            super::xml::walk(&relations, |node| {
                if let super::xml::Node::Open("Relationship", attributes) = node
                    && attributes.get("Type").is_some_and(|kind| kind.ends_with("/officeDocument"))
                {
                    found = attributes.get("Target").map(|name| name.trim_start_matches('/').to_owned());
                }
            })?;
        }
        Ok(found.unwrap_or_else(|| usual.to_owned()))
    }

    /// The parts that `part` relates to, with the kinds of relation, by their keys.
    pub(super) fn relations(&mut self, part: &str) -> Result<HashMap<String, Relation>, Failure> {
        let (folder, name) = part.rsplit_once('/').unwrap_or(("", part));
        let mut found = HashMap::new();
        let Some(xml) = self.text(&format!("{folder}/_rels/{name}.rels"))? else { return Ok(found) };
        super::xml::walk(&xml, |node| {
            let super::xml::Node::Open("Relationship", attributes) = node else { return };
            let get = |name: &str| attributes.get(name);
            if let (Some(key), Some(kind), Some(target)) = (get("Id"), get("Type"), get("Target"))
                && get("TargetMode") != Some("External")
            {
                let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
                found.insert(key.to_owned(), Relation { kind, part: resolved(folder, target) });
            }
        })?;
        Ok(found)
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
        // The declared size may be false, so bytes are counted while they are read.
        let most = PART.min(self.left);
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|_| Failure::corrupt("a part of the document is damaged"))?;
        if bytes.len() as u64 > most {
            // Nothing more is unpacked of such a file, however many parts it has.
            self.left = 0;
            return Err(Failure::too_much(
                "the document unpacks to more than is read: it may be an archive bomb",
            ));
        }
        self.left -= bytes.len() as u64;
        Ok(Some(bytes))
    }
}

/// The name of the part that `target` means, seen from `folder`.
fn resolved(folder: &str, target: &str) -> String {
    if let Some(absolute) = target.strip_prefix('/') {
        return absolute.to_owned();
    }
    let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            ".." => drop(names.pop()),
            "." | "" => {}
            _ => names.push(name),
        }
    }
    names.join("/")
}

/// An archive with these parts, for tests.
#[cfg(test)]
pub(super) fn packed(parts: &[(&str, &str)]) -> Vec<u8> {
    use std::io::Write;

    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, text) in parts {
        zip.start_file(*name, stored).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}
