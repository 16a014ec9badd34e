use std::fmt::Write;

use crate::block::{Block, Content, Item};

/// Blocks with an empty line between them; items with markers, cells with tabs.
pub(super) fn blocks(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        let before = text.len();
        if before > 0 {
            text.push_str("\n\n");
        }
        let begun = text.len();
        push(&mut text, &block.content);
        if text.len() == begun {
            text.truncate(before);
        }
    }
    text
}

fn push(text: &mut String, content: &Content) {
    match content {
        Content::Heading { text: words, .. } | Content::Paragraph(words) => text.push_str(words),
        Content::List { ordered, items } => push_items(text, *ordered, items),
        Content::Table(table) => {
            for (index, row) in table.rows.iter().enumerate() {
                if index > 0 {
                    text.push('\n');
                }
                text.push_str(&row.join("\t"));
            }
        }
        // A picture has no text.
        Content::ImageRef(_) => {}
    }
}

fn push_items(text: &mut String, ordered: bool, items: &[Item]) {
    let mut count = 0;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let indent = item.level * 2;
        // Writing to a string does not fail.
        let _ = if let Some(marker) = &item.marker {
            write!(text, "{:indent$}{marker} {}", "", item.text)
        } else if ordered && item.level == 0 {
            count = item.number.unwrap_or(count + 1);
            write!(text, "{count}. {}", item.text)
        } else {
            write!(text, "{:indent$}- {}", "", item.text)
        };
    }
}
