//! A document as JSON that the DoclingDocument schema accepts: an item for each block, with its places as provenance.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Document;
use crate::{
    block::{Block, BlockPlace, Content, Item},
    table::{Table, TableCell},
};

/// The version of the schema that is written; readers of later ones accept it.
const VERSION: &str = "1.3.0";
const BODY: &str = "#/body";
/// Cells of a table whose empty cells are listed, too.
const ALL_CELLS: usize = 20_000;

pub(super) fn document(document: &Document) -> String {
    let mut writer = Writer::default();
    document.blocks.iter().for_each(|block| writer.block(block));
    let title = document.metadata.get("title").and_then(Value::as_str).filter(|title| !title.is_empty());
    let pages: Map<String, Value> = document
        .pages
        .iter()
        .map(|page| {
            let size = json!({"width": page.width, "height": page.height});
            (page.number.to_string(), json!({"page_no": page.number, "size": size}))
        })
        .collect();
    let root = |path: &str, layer: &str, children: &[Ref]| {
        json!({"self_ref": path, "children": children, "content_layer": layer, "name": "_root_",
            "label": "unspecified"})
    };
    let whole = json!({
        "schema_name": "DoclingDocument",
        "version": VERSION,
        "name": title.unwrap_or("document"),
        "furniture": root("#/furniture", "furniture", &[]),
        "body": root(BODY, "body", &writer.body),
        "groups": writer.groups,
        "texts": writer.texts,
        "pictures": writer.pictures,
        "tables": writer.tables,
        "key_value_items": [],
        "form_items": [],
        "pages": pages,
    });
    whole.to_string()
}

/// A pointer to an item.
#[derive(Debug, Clone, Serialize)]
struct Ref {
    #[serde(rename = "$ref")]
    path: String,
}

#[derive(Debug, Serialize)]
struct Node {
    self_ref: String,
    parent: Ref,
    children: Vec<Ref>,
    content_layer: &'static str,
    label: &'static str,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The item that another one belongs to.
#[derive(Debug, Clone, Copy)]
enum Owner {
    Body,
    Text(usize),
    Group(usize),
}

#[derive(Debug, Default)]
struct Writer {
    body: Vec<Ref>,
    groups: Vec<Node>,
    texts: Vec<Node>,
    pictures: Vec<Node>,
    tables: Vec<Node>,
}

impl Writer {
    fn block(&mut self, block: &Block) {
        let letters = block.text().chars().count();
        let prov: Value = block.places.iter().map(|place| provenance(place, letters)).collect();
        match &block.content {
            Content::Heading { level, text } => {
                self.text(Owner::Body, "section_header", text, &prov, json!({"level": level}));
            }
            Content::Paragraph(text) => {
                self.text(Owner::Body, "text", text, &prov, json!({}));
            }
            Content::List { ordered, items } => self.list(*ordered, items, &prov),
            Content::Table(content) => {
                let node = self.node(Owner::Body, format!("#/tables/{}", self.tables.len()), "table");
                self.tables.push(node.with(floating(&prov)).with(json!({"data": table(content)})));
            }
            Content::ImageRef(_) => {
                let node = self.node(Owner::Body, format!("#/pictures/{}", self.pictures.len()), "picture");
                self.pictures.push(node.with(floating(&prov)));
            }
        }
    }

    /// An item at `path`, which its owner points to.
    fn node(&mut self, owner: Owner, path: String, label: &'static str) -> Node {
        let (parent, siblings) = match owner {
            Owner::Body => (BODY.to_owned(), &mut self.body),
            Owner::Text(index) => (format!("#/texts/{index}"), &mut self.texts[index].children),
            Owner::Group(index) => (format!("#/groups/{index}"), &mut self.groups[index].children),
        };
        siblings.push(Ref { path: path.clone() });
        Node {
            self_ref: path,
            parent: Ref { path: parent },
            children: Vec::new(),
            content_layer: "body",
            label,
            fields: Map::new(),
        }
    }

    /// The index of a new text.
    fn text(&mut self, owner: Owner, label: &'static str, text: &str, prov: &Value, more: Value) -> usize {
        let index = self.texts.len();
        let node = self.node(owner, format!("#/texts/{index}"), label);
        self.texts.push(node.with(json!({"prov": prov, "orig": text, "text": text})).with(more));
        index
    }

    fn list(&mut self, ordered: bool, items: &[Item], prov: &Value) {
        // By level: its group, and the last item in it.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut count = 0;
        for item in items {
            let level = item.level.min(open.len());
            open.truncate(level + 1);
            if open.len() == level {
                let owner = open.last().map_or(Owner::Body, |(_, item)| Owner::Text(*item));
                let index = self.groups.len();
                let group = self.node(owner, format!("#/groups/{index}"), "list");
                self.groups.push(group.with(json!({"name": "list"})));
                open.push((index, 0));
            }
            let is_counted = ordered && item.level == 0;
            let marker = match &item.marker {
                Some(marker) => marker.clone(),
                None if is_counted => {
                    count = item.number.unwrap_or(count + 1);
                    format!("{count}.")
                }
                None => "-".to_owned(),
            };
            let more = json!({"enumerated": is_counted || item.number.is_some(), "marker": marker});
            let (group, last) = &mut open[level];
            *last = self.text(Owner::Group(*group), "list_item", &item.text, prov, more);
        }
    }
}

impl Node {
    fn with(mut self, fields: Value) -> Self {
        if let Value::Object(fields) = fields {
            self.fields.extend(fields);
        }
        self
    }
}

/// The fields of tables and pictures.
fn floating(prov: &Value) -> Value {
    json!({"prov": prov, "captions": [], "references": [], "footnotes": []})
}

fn provenance(place: &BlockPlace, letters: usize) -> Value {
    let [left, top, right, bottom] = place.bbox;
    let bbox = json!({"l": left, "t": top, "r": right, "b": bottom, "coord_origin": "TOPLEFT"});
    json!({"page_no": place.page, "bbox": bbox, "charspan": [0, letters]})
}

fn table(table: &Table) -> Value {
    let head = table.head();
    let cell = |(cell, text): (TableCell, &str)| {
        let TableCell { row, column, row_span, col_span, header } = cell;
        json!({
            "text": text,
            "row_span": row_span,
            "col_span": col_span,
            "start_row_offset_idx": row,
            "end_row_offset_idx": row + row_span,
            "start_col_offset_idx": column,
            "end_col_offset_idx": column + col_span,
            "column_header": header && row < head,
            "row_header": header && row >= head,
        })
    };
    // Readers take a place that is not listed for an empty one.
    let lists_all = table.rows.len().saturating_mul(table.width()) <= ALL_CELLS;
    let places = table.whole().into_iter();
    let cells: Vec<Value> = places.filter(|(_, text)| lists_all || !text.is_empty()).map(cell).collect();
    json!({"table_cells": cells, "num_rows": table.rows.len(), "num_cols": table.width()})
}

#[cfg(test)]
mod tests {
    use super::{super::PageNote, *};

    #[test]
    fn document_is_as_docling_core_accepts_it() {
        let place = |page, top: f64| BlockPlace { page, bbox: [50.0, top, 300.5, top + 12.0] };
        let block = |content: Content, places: Vec<BlockPlace>| Block {
            page: places.first().map(|place| place.page),
            content,
            places,
            words: Vec::new(),
        };
        let item = |level: usize, text: &str| Item { level, text: text.to_owned(), ..Item::default() };
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let page = |number| PageNote {
            number,
            width: 595.0,
            height: 842.0,
            rotation: 0,
            ocr_confidence: None,
            header: Vec::new(),
            footer: Vec::new(),
        };
        let rows = vec![row(["Part", "Count"]), row(["Hose", "2"]), row(["All of them", ""])];
        let cells = [(0, 0), (0, 1), (1, 0)].map(|(row, column)| TableCell::new(row, column).header(true));
        let total = TableCell::new(2, 0).spanning(1, 2);
        let merged = Table { rows, cells: cells.into_iter().chain([total]).collect() };
        let document = Document {
            blocks: vec![
                block(Content::Heading { level: 2, text: "Pumps".to_owned() }, vec![place(1, 60.0)]),
                block(Content::Paragraph("Two parts.".to_owned()), vec![place(1, 80.0), place(2, 60.0)]),
                block(
                    Content::List { ordered: true, items: vec![item(0, "a"), item(1, "b"), item(0, "c")] },
                    vec![place(2, 80.0)],
                ),
                block(Content::Table(merged), vec![place(2, 100.0)]),
                block(Content::ImageRef("page 2, image 1".to_owned()), vec![place(2, 200.0)]),
            ],
            metadata: [("title".to_owned(), json!("Handbook"))].into(),
            pages: vec![page(1), page(2)],
            paged: String::new(),
            chunk_words: None,
        };
        let written: Value = serde_json::from_str(&super::document(&document)).unwrap();
        // Accepted by DoclingDocument.model_validate_json of docling-core 2.104.
        let accepted: Value = serde_json::from_str(include_str!("docling.json")).unwrap();
        assert_eq!(written, accepted);
    }
}
