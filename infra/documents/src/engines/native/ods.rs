//! Merged cells of the sheets of an open document, texts of cells without a type, and texts beside the cells: the reader
//! of sheets leaves them out.

use std::collections::HashMap;

use calamine::Dimensions;

use super::{
    archive::Archive,
    charts::Chart,
    collect::Collector,
    odf_objects::{Object, object_name, objects},
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

/// Texts of cells without a type at most, and how often one is repeated in its row.
const TEXTS: usize = 100_000;
const REPEATED: u32 = 512;
/// Spaces that one element stands for at most.
const SPACES: usize = 1000;

/// The further contents of a sheet.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) merged: Vec<Dimensions>,
    /// By row and column.
    pub(super) texts: Vec<((u32, u32), String)>,
    pub(super) beside: Beside,
}

/// Texts and charts beside the cells.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    /// Paragraphs of text boxes and comments.
    texts: Vec<String>,
    charts: Vec<Chart>,
}

impl Beside {
    pub(super) fn add_to(self, collector: &mut Collector) {
        self.texts.iter().for_each(|text| collector.paragraph(text));
        self.charts.into_iter().for_each(|chart| chart.add_to(collector));
    }
}

/// Those of each sheet, by its name.
pub(super) fn sheets(bytes: &[u8]) -> Result<HashMap<String, Sheet>, Failure> {
    let mut archive = Archive::open(bytes)?;
    let content = archive.main("content.xml")?;
    let mut objects = objects(&mut archive)?;
    let (mut found, mut reader) = (HashMap::new(), Reader::default());
    xml::walk(&content, |node| match node {
        Node::Open("table", attributes) => {
            let name = attributes.get("name").unwrap_or_default().to_owned();
            reader = Reader { name, kept: reader.kept, ..Reader::default() };
        }
        Node::Open("table-row", attributes) => reader.rows = count(attributes, "number-rows-repeated"),
        Node::Open("table-cell" | "covered-table-cell", attributes) => reader.cell(attributes),
        Node::Open(name, _) if reader.is_beside(name) => reader.beside += 1,
        Node::Close(name) if reader.is_beside(name) => reader.beside = reader.beside.saturating_sub(1),
        Node::Open("object", attributes) => {
            if let Some(Object::Chart(chart)) = objects.remove(object_name(attributes)) {
                reader.sheet.beside.charts.push(chart.titles_only());
            }
        }
        Node::Open("p", _) => reader.begin_paragraph(),
        Node::Open("s", attributes) => {
            reader.push(&" ".repeat((count(attributes, "c") as usize).min(SPACES)));
        }
        Node::Open("tab", _) => reader.push("\t"),
        Node::Open("line-break", _) => reader.push("\n"),
        Node::Text(text) => reader.push(text),
        Node::Close("p") => reader.end_paragraph(),
        Node::Close("table-cell" | "covered-table-cell") => reader.end_cell(),
        Node::Close("table-row") => {
            reader.row = reader.row.saturating_add(reader.rows);
            reader.column = 0;
        }
        Node::Close("table") => {
            found.insert(std::mem::take(&mut reader.name), std::mem::take(&mut reader.sheet));
        }
        _ => {}
    })?;
    Ok(found)
}

fn count(attributes: Attributes<'_>, name: &str) -> u32 {
    attributes.get(name).and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The place in a sheet, and its contents so far.
#[derive(Default)]
struct Reader {
    name: String,
    row: u32,
    column: u32,
    /// As which the row that is read counts.
    rows: u32,
    /// As which the cell that is read counts.
    columns: u32,
    /// Of the cell that is read, if it has no type.
    text: Option<String>,
    is_in_paragraph: bool,
    /// Whether the reader of sheets takes all text in the cell for its own.
    is_text_cell: bool,
    /// Elements beside the cells that are open, and the paragraph in them.
    beside: usize,
    aside: String,
    /// How many texts were kept of all sheets.
    kept: usize,
    sheet: Sheet,
}

impl Reader {
    fn cell(&mut self, attributes: Attributes<'_>) {
        let (start, more) = ((self.row, self.column), |name| count(attributes, name).saturating_sub(1));
        let end = (
            start.0.saturating_add(more("number-rows-spanned")),
            start.1.saturating_add(more("number-columns-spanned")),
        );
        if end != start {
            self.sheet.merged.push(Dimensions { start, end });
        }
        self.columns = count(attributes, "number-columns-repeated");
        self.text = attributes.get("value-type").is_none().then(String::new);
        self.is_text_cell = attributes.get("value-type") == Some("string");
    }

    /// Whether the texts of an element are not those of the cell that it is in.
    fn is_beside(&self, name: &str) -> bool {
        match name {
            "annotation" | "shapes" => true,
            "frame" | "custom-shape" | "rect" | "ellipse" | "circle" | "line" | "connector" | "caption"
            | "polygon" | "polyline" | "path" => !self.is_text_cell,
            _ => false,
        }
    }

    fn begin_paragraph(&mut self) {
        self.is_in_paragraph = true;
        if self.beside == 0 && self.text.as_ref().is_some_and(|text| !text.is_empty()) {
            self.push("\n");
        }
    }

    fn end_paragraph(&mut self) {
        self.is_in_paragraph = false;
        let text = std::mem::take(&mut self.aside);
        if !text.trim().is_empty() && self.kept < TEXTS {
            self.sheet.beside.texts.push(text);
            self.kept += 1;
        }
    }

    fn push(&mut self, more: &str) {
        let text = if self.beside > 0 { Some(&mut self.aside) } else { self.text.as_mut() };
        text.into_iter().filter(|_| self.is_in_paragraph).for_each(|text| text.push_str(more));
    }

    fn end_cell(&mut self) {
        self.is_text_cell = false;
        if let Some(text) = self.text.take().filter(|text| !text.trim().is_empty()) {
            for place in 0..self.columns.min(REPEATED) {
                if self.kept < TEXTS {
                    self.sheet.texts.push(((self.row, self.column.saturating_add(place)), text.clone()));
                    self.kept += 1;
                }
            }
        }
        self.column = self.column.saturating_add(self.columns);
    }
}
