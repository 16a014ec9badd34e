//! PowerPoint since 2007, ECMA-376: slides with titles, texts, lists and tables.

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

/// Reads all slides; each is a page.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    let number = |name: &str| -> Option<usize> {
        name.strip_prefix("ppt/slides/slide")?.strip_suffix(".xml")?.parse().ok()
    };
    let mut slides: Vec<usize> = archive.names().iter().filter_map(|name| number(name)).collect();
    slides.sort_unstable();
    let mut collector = Collector::default();
    for (index, slide) in slides.iter().enumerate() {
        collector.turn_to(index + 1);
        let text = archive.main(&format!("ppt/slides/slide{slide}.xml"))?;
        let mut reader = Reader { collector, ..Reader::default() };
        xml::walk(&text, |node| reader.take(node))?;
        collector = reader.collector;
    }
    let mut metadata = super::core_properties(&mut archive)?;
    metadata.insert("page_count".to_owned(), slides.len().into());
    metadata.insert("pages".to_owned(), slides.len().into());
    Ok(Content { blocks: collector.finish(), metadata, ..Content::default() })
}

#[derive(Default)]
struct Reader {
    collector: Collector,
    text: String,
    reads_text: bool,
    /// The kind of placeholder that the shape is.
    place: Option<String>,
    level: usize,
    /// Whether the paragraph says itself that it has a marker, and whether that is a number.
    marker: Option<Option<bool>>,
    rows: Option<Vec<Vec<String>>>,
}

impl Reader {
    fn take(&mut self, node: Node<'_>) {
        match node {
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) if self.reads_text => self.text.push_str(text),
            Node::Text(_) => {}
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        match name {
            "sp" => self.place = None,
            "ph" => self.place = Some(attributes.get("type").unwrap_or("body").to_owned()),
            "t" => self.reads_text = true,
            "br" => self.text.push('\n'),
            "pPr" => self.level = attributes.get("lvl").and_then(|level| level.parse().ok()).unwrap_or(0),
            "buNone" => self.marker = Some(None),
            "buChar" => self.marker = Some(Some(false)),
            "buAutoNum" => self.marker = Some(Some(true)),
            "tbl" => self.rows = Some(Vec::new()),
            "tr" => self.rows.iter_mut().for_each(|rows| rows.push(Vec::new())),
            "tc" => self.cells().for_each(|row| row.push(String::new())),
            "pic" => self.collector.image(""),
            _ => {}
        }
    }

    fn cells(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        self.rows.iter_mut().filter_map(|rows| rows.last_mut())
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.reads_text = false,
            "p" => self.end_paragraph(),
            "sp" => self.collector.end_list(),
            "tbl" => {
                if let Some(rows) = self.rows.take() {
                    self.collector.table(rows);
                }
            }
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let (level, marker) = (std::mem::take(&mut self.level), self.marker.take());
        if self.rows.is_some() {
            for cell in self.cells().filter_map(|row| row.last_mut()) {
                if !cell.is_empty() {
                    cell.push('\n');
                }
                cell.push_str(&text);
            }
            return;
        }
        match (self.place.as_deref(), marker) {
            (Some("title"), _) => self.collector.heading(2, &text),
            (Some("ctrTitle"), _) => self.collector.heading(1, &text),
            // Dates, footers and numbers of slides.
            (Some("dt" | "ftr" | "sldNum"), _) => {}
            (_, Some(Some(ordered))) => self.collector.item(level, ordered, &text),
            (Some("body" | "obj"), None) => self.collector.item(level, false, &text),
            _ => self.collector.paragraph(&text),
        }
    }
}
