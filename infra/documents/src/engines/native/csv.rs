use super::Content;
use crate::{
    block::{Block, Content as Kind},
    detect, encoding,
    failure::Failure,
    table::Table,
};

/// One table.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let text = encoding::decode(bytes);
    let head: String = text.chars().take(4096).collect();
    let delimiter = detect::delimiter(&head).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|_| Failure::corrupt("the table cannot be read as CSV"))?;
        rows.push(record.iter().map(|cell| cell.trim().to_owned()).collect());
    }
    Ok(Content { blocks: vec![Block::new(Kind::Table(Table::new(rows)))], ..Content::default() })
}
