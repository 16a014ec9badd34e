//! Office, web, mail, books, text and pictures, by small readers that keep what the formats say of their structure.

mod archive;
mod ccitt;
mod charts;
mod collect;
mod compound;
mod csv;
mod diagram;
mod doc;
mod docx;
mod docx_styles;
mod docx_table;
#[cfg(test)]
mod docx_tests;
mod eml;
mod epub;
mod figures;
mod formula;
mod frames;
pub(super) mod html;
mod images;
mod margins;
mod markdown;
mod notes;
mod numbering;
mod odf;
mod odf_lists;
mod odf_margins;
mod odf_objects;
#[cfg(test)]
mod odf_tests;
mod ods;
mod picture_pdf;
mod pptx;
mod remarks;
mod rtf;
mod rtf_letters;
mod rtf_table;
#[cfg(test)]
mod rtf_tests;
mod script;
mod sheets;
mod text;
mod tree;
mod xlsx;
mod xml;

use super::{Body, Engine, Input, Reading};
use crate::{block::Block, detect, encoding, failure::Failure, ocr::Recognition};
use archive::Archive;
use xml::Node;

pub(crate) use images::draw as draw_picture;
pub(crate) use picture_pdf::picture_pdf;

pub(super) use crate::write::Metadata;

/// Reads what is not PDF.
pub(crate) struct NativeEngine;

/// Blocks and what is known besides.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) blocks: Vec<Block>,
    pub(super) metadata: Metadata,
    pub(super) warnings: Vec<String>,
}

const MIME_TYPES: &[&str] = &[
    detect::DOCX,
    detect::DOC,
    detect::XLSX,
    detect::PPTX,
    detect::ODT,
    detect::ODS,
    detect::ODP,
    detect::XLS,
    detect::HTML,
    detect::RTF,
    detect::EML,
    detect::EPUB,
    detect::CSV,
    detect::MARKDOWN,
    detect::TEXT,
    detect::PNG,
    detect::JPEG,
    detect::TIFF,
    detect::BMP,
    detect::GIF,
    detect::WEBP,
];

impl Engine for NativeEngine {
    fn name(&self) -> &'static str {
        "native"
    }

    fn mime_types(&self) -> &'static [&'static str] {
        MIME_TYPES
    }

    fn read(&self, input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure> {
        let bytes = &input.bytes;
        let content = match input.mime_type {
            detect::DOCX => docx::read(bytes)?,
            detect::DOC => doc::read(bytes)?,
            detect::PPTX => pptx::read(bytes)?,
            detect::ODT | detect::ODP => odf::read(bytes)?,
            detect::XLSX | detect::XLS | detect::ODS => sheets::read(bytes)?,
            detect::HTML => html::read(&encoding::decode_declared(bytes))?,
            detect::RTF => rtf::read(bytes)?,
            detect::EML => eml::read(bytes)?,
            detect::EPUB => epub::read(bytes)?,
            detect::CSV => csv::read(bytes)?,
            detect::MARKDOWN => markdown::read(&encoding::decode(bytes)),
            detect::TEXT => text::read(&encoding::decode(bytes)),
            _ => return images::read(input, recognition),
        };
        let Content { blocks, mut metadata, warnings } = content;
        metadata.insert("content_type".to_owned(), input.mime_type.into());
        Ok(Reading { body: Body::Blocks(blocks), metadata, warnings, recognised_by: None })
    }
}

/// The blocks of a markdown text.
pub(crate) fn read_markdown(text: &str) -> Vec<Block> {
    markdown::read(text).blocks
}

/// Title, author and subject of Microsoft's formats.
fn core_properties(archive: &mut Archive<'_>) -> Result<Metadata, Failure> {
    let mut metadata = Metadata::new();
    if let Some(xml) = archive.text("docProps/core.xml")? {
        named_texts(
            &xml,
            &[("title", "title"), ("creator", "author"), ("subject", "subject")],
            &mut metadata,
        )?;
    }
    Ok(metadata)
}

/// The texts of the first elements with these names, under names of ours.
fn named_texts(xml: &str, names: &[(&str, &str)], metadata: &mut Metadata) -> Result<(), Failure> {
    let mut open: Option<&str> = None;
    xml::walk(xml, |node| match node {
        Node::Open(name, _) => open = names.iter().find(|(known, _)| *known == name).map(|(_, ours)| *ours),
        Node::Close(_) => open = None,
        Node::Text(text) => {
            if let Some(name) = open.filter(|name| !metadata.contains_key(*name)) {
                metadata.insert(name.to_owned(), text.trim().into());
            }
        }
    })
}
