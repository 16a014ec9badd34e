//! The one model of a document's content, whatever it was read from: blocks in reading order.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use signalbox_pdf::Area;

use crate::table::Table;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Number of the page on which it starts, from 1; `None` for a document without pages.
    pub page: Option<usize>,
    pub content: Content,
    /// Where it stands, in reading order; empty if that is not known.
    pub places: Vec<BlockPlace>,
    /// Its words, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<BlockWord>,
}

/// A word of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockWord {
    pub text: String,
    /// One, or two of a word that is divided at the end of a line.
    pub places: Vec<BlockPlace>,
    /// How sure recognition was, 0 to 1; none for text that was in the file.
    pub confidence: Option<f64>,
}

/// A part of a page that belongs to a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BlockPlace {
    /// From 1.
    pub page: usize,
    /// Left, top, right and bottom in points from the left upper corner of the page as a reader sees it.
    pub bbox: [f64; 4],
}

impl BlockPlace {
    /// In hundredths of a point: more digits mean nothing.
    pub(crate) fn new(page: usize, area: &Area) -> Self {
        let rounded = |points: f32| (f64::from(points) * 100.0).round() / 100.0;
        Self { page, bbox: [area.left, area.top, area.right, area.bottom].map(rounded) }
    }

    /// Whether `next` follows below, in the same column.
    fn continues(&self, next: &Self) -> bool {
        let ([left, top, right, _], [next_left, next_top, next_right, _]) = (self.bbox, next.bbox);
        self.page == next.page && top <= next_top && left < next_right && next_left < right
    }

    /// Adds `next` to `places`, as a part of the last one if it follows there.
    pub(crate) fn add(places: &mut Vec<Self>, next: Self) {
        match places.last_mut() {
            Some(last) if last.continues(&next) => {
                let ([left, top, right, bottom], also) = (last.bbox, next.bbox);
                last.bbox = [left.min(also[0]), top.min(also[1]), right.max(also[2]), bottom.max(also[3])];
            }
            _ => places.push(next),
        }
    }
}

/// The content of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// A title of what follows, 1 the highest level, 6 the lowest.
    Heading {
        /// 1 to 6.
        level: u8,
        /// In one line.
        text: String,
    },
    /// Running text; a line break in it is meant.
    Paragraph(String),
    /// A list.
    List {
        /// Numbered.
        ordered: bool,
        /// In order; nested ones follow the one that they belong to.
        items: Vec<Item>,
    },
    /// A table.
    Table(Table),
    /// A picture, and what is known of it in words.
    ImageRef(String),
}

/// An item of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// 0 for the outermost.
    pub level: usize,
    /// Its number, if the list is numbered and it does not follow from the order.
    pub number: Option<u64>,
    /// Its marker as written, if it is neither a bullet nor such a number: "a)", "2.1".
    pub marker: Option<String>,
    /// Without marker.
    pub text: String,
}

impl Item {
    /// Its text after its marker.
    pub fn marked_text(&self) -> Cow<'_, str> {
        match &self.marker {
            Some(marker) => Cow::Owned(format!("{marker} {}", self.text)),
            None => Cow::Borrowed(&self.text),
        }
    }

    fn shown(&self) -> Value {
        match &self.marker {
            Some(marker) => json!({"level": self.level, "marker": marker, "text": self.text}),
            None => json!({"level": self.level, "text": self.text}),
        }
    }
}

/// A block as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContentBlock {
    /// `heading`, `paragraph`, `table`, `list` or `image_ref`.
    pub block_type: String,
    /// Its text; items one per line, cells separated by tabs.
    pub content: String,
    /// Of a heading.
    pub level: Option<u8>,
    /// `page`; `ordered` and `items` of a list; of a table `rows`, and `cells` that are merged or headers.
    pub metadata: Map<String, Value>,
    /// The page on which it starts, from 1.
    pub page: Option<usize>,
    /// Where on it: left, top, right and bottom in points from the left upper corner.
    pub bbox: Option<[f64; 4]>,
    /// All places of a block that stands in several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<BlockPlace>,
    /// Its words, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<BlockWord>,
}

impl Block {
    /// A block without a page.
    pub fn new(content: Content) -> Self {
        Self { page: None, content, places: Vec::new(), words: Vec::new() }
    }

    /// The block as clients see it.
    pub fn public(&self) -> ContentBlock {
        let mut metadata = Map::new();
        if let Some(page) = self.page {
            metadata.insert("page".to_owned(), page.into());
        }
        let (block_type, level) = match &self.content {
            Content::Heading { level, .. } => ("heading", Some(*level)),
            Content::Paragraph(_) => ("paragraph", None),
            Content::List { ordered, items } => {
                metadata.insert("ordered".to_owned(), (*ordered).into());
                metadata.insert("items".to_owned(), items.iter().map(Item::shown).collect());
                ("list", None)
            }
            Content::Table(table) => {
                metadata.insert("rows".to_owned(), json!(table.rows));
                metadata.insert("cells".to_owned(), json!(table.cells));
                ("table", None)
            }
            Content::ImageRef(_) => ("image_ref", None),
        };
        ContentBlock {
            block_type: block_type.to_owned(),
            content: self.text(),
            level,
            metadata,
            page: self.page,
            bbox: self.places.first().map(|place| place.bbox),
            places: if self.places.len() > 1 { self.places.clone() } else { Vec::new() },
            words: self.words.clone(),
        }
    }

    /// All its text.
    pub fn text(&self) -> String {
        match &self.content {
            Content::Heading { text, .. } | Content::Paragraph(text) | Content::ImageRef(text) => {
                text.clone()
            }
            Content::List { items, .. } => items.iter().map(Item::marked_text).collect::<Vec<_>>().join("\n"),
            Content::Table(table) => {
                table.rows.iter().map(|row| row.join("\t")).collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// Changes every text in it.
    pub fn change_texts(&mut self, mut change: impl FnMut(&mut String)) {
        match &mut self.content {
            Content::Heading { text, .. } | Content::Paragraph(text) | Content::ImageRef(text) => {
                change(text)
            }
            Content::List { items, .. } => items.iter_mut().for_each(|item| change(&mut item.text)),
            Content::Table(table) => table.rows.iter_mut().flatten().for_each(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_column_are_one() {
        let place = |page, left, top| {
            BlockPlace::new(page, &Area { left, top, right: left + 200.0, bottom: top + 10.126 })
        };
        let mut places = Vec::new();
        for (page, left, top) in [(1, 50.0, 700.0), (1, 62.0, 712.0), (1, 300.0, 80.0), (2, 50.0, 80.0)] {
            BlockPlace::add(&mut places, place(page, left, top));
        }
        let block = Block { places, page: Some(1), ..Block::new(Content::Paragraph("x".to_owned())) };
        let shown = serde_json::to_value(block.public()).unwrap();
        assert_eq!((&shown["page"], &shown["bbox"]), (&json!(1), &json!([50.0, 700.0, 262.0, 722.13])));
        let boxes: Vec<&Value> =
            shown["places"].as_array().unwrap().iter().map(|place| &place["bbox"]).collect();
        assert_eq!(boxes[1..], [&json!([300.0, 80.0, 500.0, 90.13]), &json!([50.0, 80.0, 250.0, 90.13])]);
    }
}
