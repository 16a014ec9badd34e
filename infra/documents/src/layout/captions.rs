//! Captions that stand below their tables: a table is read behind the text that says what it is.

use crate::block::{Block, BlockPlace, Content};

/// The word before the number of a table, in small letters.
const TABLE: &[&str] = &["table", "tabelle", "tab.", "tableau", "tabla", "tabella", "tabela", "tabel", "表"];
/// Letters of a caption at most, and how far below its table it stands, in points.
const LETTERS: usize = 200;
const BELOW: f64 = 36.0;

/// Puts captions below tables before them.
pub(super) fn arrange(blocks: &mut [Block]) {
    for at in 1..blocks.len() {
        if !is_caption(&blocks[at]) || (at > 1 && is_caption(&blocks[at - 2])) {
            continue;
        }
        let (Some(above), below) = (distance(&blocks[at - 1], &blocks[at]), blocks.get(at + 1)) else {
            continue;
        };
        let is_table = |block: &Block| matches!(block.content, Content::Table(_));
        let next = below.filter(|next| is_table(next)).and_then(|next| distance(&blocks[at], next));
        if is_table(&blocks[at - 1]) && above <= BELOW && next.is_none_or(|next| above < next) {
            blocks.swap(at - 1, at);
        }
    }
}

fn is_caption(block: &Block) -> bool {
    let (Content::Paragraph(text) | Content::Heading { text, .. }) = &block.content else { return false };
    let mut words = text.split_whitespace();
    let (Some(word), Some(number)) = (words.next(), words.next()) else { return false };
    let word = word.to_lowercase();
    let is_numbered =
        number.ends_with([':', '.']) && number.starts_with(|first: char| first.is_ascii_digit());
    TABLE.contains(&word.as_str()) && is_numbered && text.chars().count() <= LETTERS
}

/// How far the upper edge of `below` is from the lower one of `above`, if both stand on one page, one below the other.
fn distance(above: &Block, below: &Block) -> Option<f64> {
    let ([above], [below]) = (above.places.as_slice(), below.places.as_slice()) else { return None };
    let BlockPlace { page, bbox: [left, _, right, bottom] } = above;
    let [other_left, top, other_right, _] = below.bbox;
    let is_below = *page == below.page && *left < other_right && other_left < *right;
    (is_below && top >= bottom - 1.0).then_some(top - bottom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    fn block(text: &str, top: f64) -> Block {
        let content = if text.len() == 1 {
            Content::Table(Table::new(vec![vec![text.to_owned()]]))
        } else {
            Content::Paragraph(text.to_owned())
        };
        let places = vec![BlockPlace { page: 1, bbox: [50.0, top, 250.0, top + 10.0] }];
        Block { page: Some(1), places, ..Block::new(content) }
    }

    fn arranged(texts: &[(&str, f64)]) -> Vec<String> {
        let mut blocks: Vec<Block> = texts.iter().map(|(text, top)| block(text, *top)).collect();
        arrange(&mut blocks);
        blocks.iter().map(Block::text).collect()
    }

    #[test]
    fn captions_below_their_tables_are_read_first() {
        let below = [
            ("A", 10.0),
            ("Table 1.1: Pumps", 30.0),
            ("B", 60.0),
            ("Tabelle 1.2: Ventile", 80.0),
            ("So it is.", 100.0),
        ];
        assert_eq!(arranged(&below), ["Table 1.1: Pumps", "A", "Tabelle 1.2: Ventile", "B", "So it is."]);
        let above = [("Table 1. Pumps", 10.0), ("A", 30.0), ("Table 2. Valves", 60.0), ("B", 80.0)];
        assert_eq!(arranged(&above), ["Table 1. Pumps", "A", "Table 2. Valves", "B"]);
        let text = [("A", 10.0), ("Table 2 shows the valves.", 30.0), ("Table 3: far from it", 90.0)];
        assert_eq!(arranged(&text), ["A", "Table 2 shows the valves.", "Table 3: far from it"]);
    }
}
