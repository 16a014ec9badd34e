//! Open documents, ISO 26300: text and slides.

use std::collections::HashMap;

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

/// A cell or column that says that it is repeated is, but no more often.
const REPEATED: usize = 256;

/// Reads a text or slides.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    if archive.text("META-INF/manifest.xml")?.is_some_and(|manifest| manifest.contains("encryption-data")) {
        return Err(Failure::Encrypted);
    }
    let content = archive.main("content.xml")?;
    let styles = archive.text("styles.xml")?.unwrap_or_default();
    let mut numbered = HashMap::new();
    for xml in [styles.as_str(), content.as_str()] {
        list_styles(xml, &mut numbered)?;
    }
    let mut reader = Reader { numbered, ..Reader::default() };
    xml::walk(&content, |node| reader.take(node))?;
    let mut metadata = super::Metadata::new();
    if let Some(meta) = archive.text("meta.xml")? {
        super::named_texts(
            &meta,
            &[("title", "title"), ("creator", "author"), ("subject", "subject")],
            &mut metadata,
        )?;
    }
    if reader.pages > 0 {
        metadata.insert("page_count".to_owned(), reader.pages.into());
        metadata.insert("pages".to_owned(), reader.pages.into());
    }
    Ok(Content { blocks: reader.collector.finish(), metadata, ..Content::default() })
}

/// Whether the first level of each style of lists is numbered.
fn list_styles(xml: &str, numbered: &mut HashMap<String, bool>) -> Result<(), Failure> {
    let mut name = None;
    xml::walk(xml, |node| match node {
        Node::Open("list-style", attributes) => name = attributes.get("name").map(str::to_owned),
        Node::Open(level @ ("list-level-style-number" | "list-level-style-bullet"), attributes) => {
            if let (Some(name), Some("1")) = (&name, attributes.get("level")) {
                numbered.insert(name.clone(), level.ends_with("number"));
            }
        }
        _ => {}
    })
}

#[derive(Default)]
struct Reader {
    numbered: HashMap<String, bool>,
    collector: Collector,
    text: String,
    /// Level of the heading that is read.
    heading: Option<u8>,
    title: bool,
    /// Of the open lists: whether they are numbered.
    lists: Vec<bool>,
    rows: Option<Vec<Vec<String>>>,
    repeated: usize,
    paragraphs: usize,
    hidden: usize,
    /// Of the frame on a slide.
    class: Option<String>,
    pages: usize,
    /// Texts of notes, which follow their paragraph.
    notes: Vec<String>,
    outside: Vec<String>,
}

impl Reader {
    fn take(&mut self, node: Node<'_>) {
        match node {
            Node::Open("tracked-changes" | "annotation" | "notes" | "forms" | "note-citation", _) => {
                self.hidden += 1
            }
            Node::Close("tracked-changes" | "annotation" | "notes" | "forms" | "note-citation") => {
                self.hidden = self.hidden.saturating_sub(1);
            }
            _ if self.hidden > 0 => {}
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) if self.paragraphs > 0 => self.text.push_str(&text.replace('\n', " ")),
            Node::Text(_) => {}
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        match name {
            "p" | "h" => {
                self.paragraphs += 1;
                if name == "h" {
                    let level = attributes.get("outline-level").and_then(|level| level.parse().ok());
                    self.heading = Some(level.unwrap_or(1));
                }
                self.title = attributes.get("style-name") == Some("Title");
            }
            "note-body" => {
                self.outside.push(std::mem::take(&mut self.text));
            }
            "s" => {
                let count = attributes.get("c").and_then(|count| count.parse().ok()).unwrap_or(1_usize);
                self.text.push_str(&" ".repeat(count.min(REPEATED)));
            }
            "tab" => self.text.push('\t'),
            "line-break" => self.text.push('\n'),
            "list" => {
                let style = attributes.get("style-name").and_then(|name| self.numbered.get(name)).copied();
                let inherited = self.lists.last().copied().unwrap_or(false);
                self.lists.push(style.unwrap_or(inherited));
            }
            "table" if self.rows.is_none() => self.rows = Some(Vec::new()),
            "table-row" => self.rows.iter_mut().for_each(|rows| rows.push(Vec::new())),
            "table-cell" | "covered-table-cell" => {
                let repeated = attributes.get("number-columns-repeated").and_then(|count| count.parse().ok());
                self.repeated = repeated.unwrap_or(1_usize).min(REPEATED);
                self.cells().for_each(|row| row.push(String::new()));
            }
            "page" => {
                self.pages += 1;
                self.collector.turn_to(self.pages);
            }
            "frame" => self.class = attributes.get("class").map(str::to_owned),
            "image" if self.class.is_none() => self.collector.image(""),
            _ => {}
        }
    }

    fn cells(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        self.rows.iter_mut().filter_map(|rows| rows.last_mut())
    }

    fn close(&mut self, name: &str) {
        match name {
            "p" | "h" => {
                self.paragraphs = self.paragraphs.saturating_sub(1);
                self.end_paragraph();
            }
            "note-body" => self.text = self.outside.pop().unwrap_or_default(),
            "list" => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.collector.end_list();
                }
            }
            "table-cell" | "covered-table-cell" => {
                let more = self.repeated.saturating_sub(1);
                self.cells().for_each(|row| {
                    let cell = row.last().cloned().unwrap_or_default();
                    row.extend(std::iter::repeat_n(cell, more));
                });
            }
            "table" => {
                if let Some(rows) = self.rows.take() {
                    self.collector.table(rows);
                }
            }
            "frame" => self.class = None,
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let heading = self.heading.take();
        if !self.outside.is_empty() {
            self.notes.push(text);
            return;
        }
        if self.rows.is_some() {
            for cell in self.cells().filter_map(|row| row.last_mut()) {
                if !cell.is_empty() {
                    cell.push('\n');
                }
                cell.push_str(&text);
            }
            return;
        }
        match (heading, self.class.as_deref(), self.lists.first()) {
            (Some(level), ..) => self.collector.heading(level, &text),
            (None, Some("title"), _) => self.collector.heading(2, &text),
            _ if self.title => self.collector.heading(1, &text),
            (None, _, Some(ordered)) => self.collector.item(self.lists.len() - 1, *ordered, &text),
            _ => self.collector.paragraph(&text),
        }
        for note in std::mem::take(&mut self.notes) {
            self.collector.paragraph(&note);
        }
    }
}
