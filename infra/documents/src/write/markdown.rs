//! Markdown after CommonMark, with the pipe tables of GitHub.

use std::{borrow::Cow, fmt::Write};

use super::Metadata;
use crate::block::{Block, Content, Item};

/// The fields of front matter, in this order.
const FIELDS: [&str; 5] = ["title", "author", "subject", "content_type", "pages"];

/// Front matter with values that YAML reads as they are; empty when nothing is known.
pub(super) fn front_matter(metadata: &Metadata) -> String {
    let mut lines = String::new();
    for field in FIELDS {
        match metadata.get(field) {
            None | Some(serde_json::Value::Null) => {}
            Some(serde_json::Value::String(text)) if text.is_empty() => {}
            // JSON is YAML, and escapes what YAML would take for something else.
            Some(value) => {
                let _ = writeln!(lines, "{field}: {value}");
            }
        }
    }
    if lines.is_empty() { lines } else { format!("---\n{lines}---\n\n") }
}

/// Blocks with an empty line between them.
pub(crate) fn blocks(blocks: &[Block]) -> String {
    let mut text = String::new();
    let mut after_list = false;
    for block in blocks {
        let before = text.len();
        if before > 0 {
            text.push_str("\n\n");
        }
        let is_list = matches!(block.content, Content::List { .. });
        if after_list && is_list {
            // Two lists in a row would be read as one.
            text.push_str("<!-- -->\n\n");
        }
        let begun = text.len();
        push(&mut text, &block.content);
        if text.len() == begun {
            text.truncate(before);
        } else {
            after_list = is_list;
        }
    }
    text
}

fn push(text: &mut String, content: &Content) {
    match content {
        Content::Heading { level, text: words } => {
            let marks = usize::from((*level).clamp(1, 6));
            let _ = write!(text, "{} {}", &"######"[..marks], escape(words, false));
        }
        Content::Paragraph(words) => {
            for (index, line) in words.lines().enumerate() {
                text.push_str(if index > 0 { "  \n" } else { "" });
                text.push_str(&escape(line, true));
            }
        }
        Content::List { ordered, items } => push_items(text, *ordered, items),
        Content::Table(table) => push_table(text, &table.rows),
        Content::ImageRef(words) => {
            let _ = write!(text, "![{}]()", escape(words, false));
        }
    }
}

fn push_items(text: &mut String, ordered: bool, items: &[Item]) {
    let mut count = 0;
    // Column at which the text of each open level starts: nested items are indented to it.
    let mut columns: Vec<usize> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        columns.truncate(item.level);
        let indent = columns.last().copied().unwrap_or(0);
        let number = item.marker.as_deref().filter(|marker| is_number(marker));
        let marker = match (number, &item.marker) {
            (Some(number), _) => number.to_owned(),
            (None, None) if ordered && item.level == 0 => {
                count = item.number.unwrap_or(count + 1);
                format!("{count}.")
            }
            _ => "-".to_owned(),
        };
        let words = if number.is_some() { Cow::Borrowed(item.text.as_str()) } else { item.marked_text() };
        let words = escape(&words.replace('\n', " "), true);
        let _ = write!(text, "{:indent$}{marker} {words}", "");
        columns.resize(item.level, indent);
        columns.push(indent + marker.len() + 1);
    }
}

/// Whether markdown takes it for the number of an item.
fn is_number(marker: &str) -> bool {
    marker.strip_suffix(['.', ')']).is_some_and(|number| {
        (1..=9).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn push_table(text: &mut String, rows: &[Vec<String>]) {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push('|');
        for column in 0..width {
            let cell = row.get(column).map_or("", String::as_str);
            let _ = write!(text, " {} |", escape(cell, false).replace('|', "\\|").replace('\n', "<br>"));
        }
        if index == 0 {
            text.push_str("\n|");
            text.push_str(&" --- |".repeat(width));
        }
    }
}

/// Escapes what markdown would read as something else, and no more: a plain text stays plain.
fn escape(text: &str, is_line_start: bool) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    if is_line_start && looks_like_a_block(text) {
        let marker = text
            .find(['.', ')'])
            .filter(|at| text[..*at].bytes().all(|byte| byte.is_ascii_digit()) && *at > 0);
        let at = marker.unwrap_or(0);
        escaped.push_str(&text[..at]);
        escaped.push('\\');
        push_inline(&mut escaped, &text[at..]);
    } else {
        push_inline(&mut escaped, text);
    }
    escaped
}

fn push_inline(escaped: &mut String, text: &str) {
    let bytes = text.as_bytes();
    for (at, letter) in text.char_indices() {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + 1);
        let escapes = match letter {
            '*' | '`' | '\\' => true,
            '_' => !is_word(before) || !is_word(after.copied()),
            '[' => text[at..].contains("]("),
            '<' => after.is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, b'/' | b'!' | b'?')),
            '&' => text[at..].find(';').is_some_and(|end| (2..12).contains(&end)),
            _ => false,
        };
        if escapes {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
}

fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte >= 0x80)
}

/// Whether a line would be a heading, list, quotation or rule.
fn looks_like_a_block(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    let number = is_number(first);
    let heading = !first.is_empty() && first.len() <= 6 && first.bytes().all(|byte| byte == b'#');
    let rule = line.len() >= 3 && line.bytes().all(|byte| matches!(byte, b'-' | b'=' | b' '));
    (line.contains(' ') && (number || heading || matches!(first, "-" | "+")))
        || first.starts_with('>')
        || first.starts_with('|')
        || first.starts_with("~~~")
        || rule
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::Table;

    fn write(content: Content) -> String {
        blocks(&[Block::new(content)])
    }

    #[test]
    fn blocks_are_written_as_markdown() {
        let items = vec![
            Item { text: "one".to_owned(), ..Item::default() },
            Item { level: 1, text: "inner".to_owned(), ..Item::default() },
        ];
        let marked = |level: usize, marker: &str| Item {
            level,
            marker: Some(marker.to_owned()),
            text: "x".to_owned(),
            ..Item::default()
        };
        let numbered = |number: u64| Item { number: Some(number), text: "x".to_owned(), ..Item::default() };
        let lettered = vec![numbered(10), marked(1, "1)"), marked(1, "b)"), marked(2, "1."), marked(0, "A.")];
        let cells = |row: &[&str]| row.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let table = Table::new(vec![cells(&["a", "b|c"]), cells(&["1"])]);
        for (content, expected) in [
            (Content::Heading { level: 2, text: "A *B*".to_owned() }, "## A \\*B\\*"),
            (Content::Paragraph("one\ntwo".to_owned()), "one  \ntwo"),
            (Content::List { ordered: false, items }, "- one\n  - inner"),
            (
                Content::List { ordered: true, items: lettered },
                "10. x\n    1) x\n    - b) x\n      1. x\n- A. x",
            ),
            (Content::Table(table), "| a | b\\|c |\n| --- | --- |\n| 1 |  |"),
            (Content::ImageRef("p".to_owned()), "![p]()"),
        ] {
            assert_eq!(write(content), expected);
        }
    }

    #[test]
    fn text_is_not_taken_for_markup_and_stays_plain() {
        for (text, expected) in [
            ("1. no item", "1\\. no item"),
            ("# no heading", "\\# no heading"),
            ("- no item", "\\- no item"),
            ("snake_case stays", "snake_case stays"),
            ("_so_", "\\_so\\_"),
            ("a < b", "a < b"),
            ("<b>", "\\<b>"),
            ("R&D; x", "R\\&D; x"),
            ("2026 was", "2026 was"),
            ("Price: 5 *", "Price: 5 \\*"),
        ] {
            assert_eq!(write(Content::Paragraph(text.to_owned())), expected);
        }
    }

    #[test]
    fn front_matter_is_quoted() {
        let metadata = Metadata::from([
            ("title".to_owned(), json!("a: \"b\"\n- c")),
            ("pages".to_owned(), json!(3)),
            ("author".to_owned(), json!("")),
        ]);
        assert_eq!(front_matter(&metadata), "---\ntitle: \"a: \\\"b\\\"\\n- c\"\npages: 3\n---\n\n");
        assert_eq!(front_matter(&Metadata::new()), "");
    }
}
