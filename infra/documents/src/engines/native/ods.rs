//! Merged cells of the sheets of an open document.

use std::collections::HashMap;

use calamine::Dimensions;

use super::{
    archive::Archive,
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

/// Those of each sheet, by its name. Without those that cannot be read, its texts are all there.
pub(super) fn merged(bytes: &[u8]) -> HashMap<String, Vec<Dimensions>> {
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Result<HashMap<String, Vec<Dimensions>>, Failure> {
    let content = Archive::open(bytes)?.main("content.xml")?;
    let (mut found, mut reader) = (HashMap::new(), Reader::default());
    xml::walk(&content, |node| match node {
        Node::Open("table", attributes) => {
            reader =
                Reader { sheet: attributes.get("name").unwrap_or_default().to_owned(), ..Reader::default() };
        }
        Node::Open("table-row", attributes) => reader.rows = count(attributes, "number-rows-repeated"),
        Node::Open("table-cell" | "covered-table-cell", attributes) => reader.cell(attributes),
        Node::Close("table-row") => {
            reader.row = reader.row.saturating_add(reader.rows);
            reader.column = 0;
        }
        Node::Close("table") => {
            found.insert(std::mem::take(&mut reader.sheet), std::mem::take(&mut reader.areas));
        }
        _ => {}
    })?;
    Ok(found)
}

fn count(attributes: Attributes<'_>, name: &str) -> u32 {
    attributes.get(name).and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The place in a sheet, and its merged cells so far.
#[derive(Default)]
struct Reader {
    sheet: String,
    row: u32,
    column: u32,
    /// As which the row that is read counts.
    rows: u32,
    areas: Vec<Dimensions>,
}

impl Reader {
    fn cell(&mut self, attributes: Attributes<'_>) {
        let (start, more) = ((self.row, self.column), |name| count(attributes, name).saturating_sub(1));
        let end = (
            start.0.saturating_add(more("number-rows-spanned")),
            start.1.saturating_add(more("number-columns-spanned")),
        );
        if end != start {
            self.areas.push(Dimensions { start, end });
        }
        self.column = self.column.saturating_add(count(attributes, "number-columns-repeated"));
    }
}
