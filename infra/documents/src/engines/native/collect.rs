//! Collects blocks in reading order: list items become one list, a table takes its cells.

use super::numbering::Label;
use crate::{
    block::{Block, Content, Item},
    table::Table,
};

/// Blocks so far.
#[derive(Debug, Default)]
pub(super) struct Collector {
    blocks: Vec<Block>,
    items: Vec<Item>,
    ordered: bool,
    page: Option<usize>,
}

impl Collector {
    /// Blocks added from now on are on `page`.
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
        self.push_item(ordered, Item { level, text: text.trim().to_owned(), ..Item::default() });
    }

    /// An item with `label` as its marker.
    pub(super) fn labelled_item(&mut self, level: usize, label: &Label, text: &str) {
        let mut item = Item { level, text: text.trim().to_owned(), ..Item::default() };
        match label {
            Label::Bullet => return self.push_item(false, item),
            Label::Number(number) if level == 0 => item.number = Some(*number),
            Label::Number(number) => item.marker = Some(format!("{number}.")),
            Label::Written(label) => item.marker = Some(label.clone()),
        }
        // Items that count from one again are another list.
        if level == 0 && *label == Label::Number(1) {
            self.end_list();
        }
        self.push_item(true, item);
    }

    fn push_item(&mut self, ordered: bool, item: Item) {
        if item.text.is_empty() {
            return;
        }
        if item.level == 0 && ordered != self.ordered {
            self.end_list();
        }
        if self.items.is_empty() {
            self.ordered = ordered;
        }
        self.items.push(item);
    }

    /// A further paragraph of the last item; false if there is no item.
    pub(super) fn continue_item(&mut self, text: &str) -> bool {
        let Some(item) = self.items.last_mut() else { return false };
        if !text.trim().is_empty() {
            item.text.push('\n');
            item.text.push_str(text.trim());
        }
        true
    }

    pub(super) fn end_list(&mut self) {
        if !self.items.is_empty() {
            let items = std::mem::take(&mut self.items);
            let content = Content::List { ordered: self.ordered, items };
            self.blocks.push(Block { page: self.page, ..Block::new(content) });
        }
    }

    /// A table without its empty rows at the end and columns at the right.
    pub(super) fn table(&mut self, table: Table) {
        if let Some(table) = table.trimmed() {
            self.push(Content::Table(table));
        }
    }

    fn push(&mut self, content: Content) {
        self.end_list();
        self.blocks.push(Block { page: self.page, ..Block::new(content) });
    }

    pub(super) fn finish(mut self) -> Vec<Block> {
        self.end_list();
        self.blocks
    }
}
