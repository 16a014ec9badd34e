//! Books: the documents of the spine, in its order.

use std::collections::HashMap;

use super::{
    Content, Metadata,
    archive::Archive,
    collect::Collector,
    html,
    xml::{self, Node},
};
use crate::failure::Failure;

/// Reads a book.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    if archive.text("META-INF/encryption.xml")?.is_some_and(|text| text.contains("EncryptedKey")) {
        return Err(Failure::Encrypted);
    }
    let container = archive.main("META-INF/container.xml")?;
    let mut package = None;
    xml::walk(&container, |node| {
        if let Node::Open("rootfile", attributes) = node {
            package = package.take().or_else(|| attributes.get("full-path").map(str::to_owned));
        }
    })?;
    let path = package.ok_or_else(|| Failure::corrupt("the book is damaged: it names no content"))?;
    let text = archive.main(&path)?;
    let mut files: HashMap<String, String> = HashMap::new();
    let mut order = Vec::new();
    xml::walk(&text, |node| match node {
        Node::Open("item", attributes) => {
            if let (Some(id), Some(href)) = (attributes.get("id"), attributes.get("href")) {
                files.insert(id.to_owned(), href.to_owned());
            }
        }
        Node::Open("itemref", attributes) => order.extend(attributes.get("idref").map(str::to_owned)),
        _ => {}
    })?;
    let folder = path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let mut collector = Collector::default();
    for id in order {
        let Some(href) = files.get(&id) else { continue };
        if let Some(section) = archive.text(&format!("{folder}{}", decoded(href)))? {
            collector = html::append(&section, collector)?;
        }
    }
    let mut metadata = Metadata::new();
    super::named_texts(
        &text,
        &[("title", "title"), ("creator", "author"), ("subject", "subject")],
        &mut metadata,
    )?;
    Ok(Content { blocks: collector.finish(), metadata, ..Content::default() })
}

/// A path of the package without its percent signs.
fn decoded(href: &str) -> String {
    let mut bytes = Vec::with_capacity(href.len());
    let mut rest = href.as_bytes();
    while let [first, others @ ..] = rest {
        let escaped = (*first == b'%').then(|| others.get(..2)).flatten();
        let value = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &others[2..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
