use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Content;
use crate::{
    block::{Block, Content as Kind, Item},
    table::Table,
};

/// The blocks of a markdown text; emphasis is taken off, code stays as it is.
pub(super) fn read(text: &str) -> Content {
    let text = without_front_matter(text);
    let mut reader = Reader::default();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        reader.take(event);
    }
    Content { blocks: reader.blocks, ..Content::default() }
}

fn without_front_matter(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---\n") else { return text };
    rest.split_once("\n---\n").map_or(text, |(_, body)| body)
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    text: String,
    /// Of the open lists: whether they are numbered, from which number.
    lists: Vec<Option<u64>>,
    items: Vec<Item>,
    rows: Vec<Vec<String>>,
    image: bool,
}

impl Reader {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) | Event::Code(text) => self.text.push_str(&text),
            Event::SoftBreak => self.text.push(' '),
            Event::HardBreak => self.text.push('\n'),
            Event::Start(Tag::List(start)) => {
                self.close_item();
                self.lists.push(start);
            }
            Event::End(TagEnd::List(_)) => self.end_list(),
            Event::End(TagEnd::Item) => self.close_item(),
            Event::End(TagEnd::Heading(level)) => {
                let text = self.taken();
                self.blocks.push(Block::new(Kind::Heading { level: level as u8, text }));
            }
            Event::End(TagEnd::Paragraph | TagEnd::CodeBlock) if self.lists.is_empty() => {
                self.end_paragraph()
            }
            Event::End(TagEnd::TableCell) => {
                let cell = self.taken();
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            Event::Start(Tag::TableHead | Tag::TableRow) => self.rows.push(Vec::new()),
            Event::End(TagEnd::Table) => {
                let rows = std::mem::take(&mut self.rows);
                self.blocks.push(Block::new(Kind::Table(Table::new(rows))));
            }
            Event::Start(Tag::Image { .. }) => self.image = true,
            Event::End(TagEnd::Image) => {
                self.image = false;
                let text = self.taken();
                self.blocks.push(Block::new(Kind::ImageRef(text)));
            }
            _ => {}
        }
    }

    fn taken(&mut self) -> String {
        std::mem::take(&mut self.text).trim().to_owned()
    }

    fn end_paragraph(&mut self) {
        let text = self.taken();
        if !text.is_empty() {
            self.blocks.push(Block::new(Kind::Paragraph(text)));
        }
    }

    fn close_item(&mut self) {
        let text = self.taken();
        if let (false, Some(list)) = (text.is_empty(), self.lists.last_mut()) {
            let number = *list;
            *list = number.map(|number| number + 1);
            self.items.push(Item { level: self.lists.len() - 1, number, text, ..Item::default() });
        }
    }

    fn end_list(&mut self) {
        let numbered = self.lists.pop().flatten().is_some();
        if self.lists.is_empty() && !self.items.is_empty() {
            let items = std::mem::take(&mut self.items);
            self.blocks.push(Block::new(Kind::List { ordered: numbered, items }));
        }
    }
}
