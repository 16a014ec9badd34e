//! Collects blocks as a reader comes upon them: items of a list become one list, a table takes its cells.

use crate::block::{Block, Content, Item};

/// Cells of a table at most; what is beyond is left out.
const MAX_CELLS: usize = 1_000_000;

/// Blocks so far.
#[derive(Debug, Default)]
pub(super) struct Collector {
    blocks: Vec<Block>,
    items: Vec<Item>,
    ordered: bool,
    page: Option<usize>,
}

impl Collector {
    /// What follows is on this page.
    pub(super) fn turn_to(&mut self, page: usize) {
        self.end_list();
        self.page = Some(page);
    }

    pub(super) fn heading(&mut self, level: u8, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            self.push(Content::Heading { level: level.clamp(1, 6), text });
        }
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.push(Content::Paragraph(text.to_owned()));
        }
    }

    pub(super) fn image(&mut self, text: &str) {
        self.push(Content::ImageRef(text.trim().to_owned()));
    }

    /// An item; other lists begin at the outermost level with another kind of marker.
    pub(super) fn item(&mut self, level: usize, ordered: bool, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if level == 0 && ordered != self.ordered {
            self.end_list();
        }
        if self.items.is_empty() {
            self.ordered = ordered;
        }
        self.items.push(Item { level, number: None, text: text.to_owned() });
    }

    pub(super) fn end_list(&mut self) {
        if !self.items.is_empty() {
            let items = std::mem::take(&mut self.items);
            let content = Content::List { ordered: self.ordered, items };
            self.blocks.push(Block { page: self.page, content });
        }
    }

    /// A table without its empty rows at the end and columns at the right.
    pub(super) fn table(&mut self, mut rows: Vec<Vec<String>>) {
        let is_empty = |cell: &String| cell.trim().is_empty();
        while rows.last().is_some_and(|row| row.iter().all(is_empty)) {
            rows.pop();
        }
        let width = rows
            .iter()
            .map(|row| row.iter().rposition(|cell| !is_empty(cell)).map_or(0, |last| last + 1))
            .max();
        let width = width.unwrap_or(0);
        if width == 0 {
            return;
        }
        rows.truncate(MAX_CELLS / width);
        for row in &mut rows {
            row.resize(width, String::new());
            row.iter_mut().for_each(|cell| *cell = cell.trim().to_owned());
        }
        self.push(Content::Table(rows));
    }

    fn push(&mut self, content: Content) {
        self.end_list();
        self.blocks.push(Block { page: self.page, content });
    }

    pub(super) fn finish(mut self) -> Vec<Block> {
        self.end_list();
        self.blocks
    }
}
