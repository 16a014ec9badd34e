//! The words of pages, given to the blocks that they are part of.

use signalbox_pdf::{Area, Word};

use crate::{
    block::{Block, BlockPlace, BlockWord},
    layout::{Line, LinedPage},
};

/// A hyphen that ends a line.
const HYPHENS: [char; 3] = ['-', '\u{AD}', '\u{2010}'];
/// How far a word may stand out of its block's place, in points.
const SLACK: f64 = 1.0;

/// Gives every word of `pages` to the smallest block that holds its centre.
pub(crate) fn place(blocks: &mut [Block], pages: &[LinedPage]) {
    for page in pages {
        let around = blocks_of(blocks, page.number);
        for line in page.blocks.iter().flatten() {
            place_line(blocks, &around, page.number, line);
        }
    }
}

/// Places on a page with the indexes of their blocks, the smallest first.
fn blocks_of(blocks: &[Block], page: usize) -> Vec<(usize, [f64; 4])> {
    let places = blocks.iter().enumerate().flat_map(|(index, block)| {
        block.places.iter().filter(|place| place.page == page).map(move |place| (index, place.bbox))
    });
    let mut places: Vec<_> = places.collect();
    let size = |[left, top, right, bottom]: [f64; 4]| (right - left) * (bottom - top);
    places.sort_by(|one, other| size(one.1).total_cmp(&size(other.1)));
    places
}

fn place_line(blocks: &mut [Block], around: &[(usize, [f64; 4])], page: usize, line: &Line) {
    for word in &line.words {
        let Some(index) = holder(around, &word.area) else { continue };
        let block = &mut blocks[index];
        let placed = BlockPlace::new(page, &word.area);
        if !continues(block, placed, word) {
            block.words.push(BlockWord {
                text: word.text.clone(),
                places: vec![placed],
                confidence: word.confidence.map(rounded),
            });
        }
    }
}

/// In hundredths.
fn rounded(confidence: f32) -> f64 {
    (f64::from(confidence) * 100.0).round() / 100.0
}

fn holder(around: &[(usize, [f64; 4])], area: &Area) -> Option<usize> {
    let (x, y) = (f64::from(area.left + area.right) / 2.0, f64::from(area.top + area.bottom) / 2.0);
    let holds = |[left, top, right, bottom]: [f64; 4]| {
        (left - SLACK..=right + SLACK).contains(&x) && (top - SLACK..=bottom + SLACK).contains(&y)
    };
    around.iter().find(|(_, place)| holds(*place)).map(|(index, _)| *index)
}

/// Makes `word` a part of the last one of `block`, if that was divided at the end of a line, as the text of the block says.
fn continues(block: &mut Block, placed: BlockPlace, word: &Word) -> bool {
    let Some(last) = block.words.last() else { return false };
    let (Some(begin), [place]) = (last.text.strip_suffix(HYPHENS), last.places.as_slice()) else {
        return false;
    };
    let is_same_line =
        place.page == placed.page && place.bbox[3] > placed.bbox[1] && place.bbox[1] < placed.bbox[3];
    let joined = format!("{begin}{}", word.text);
    if begin.is_empty() || is_same_line || !block.text().contains(&joined) {
        return false;
    }
    if let Some(last) = block.words.last_mut() {
        last.text = joined;
        last.places.push(placed);
        last.confidence =
            last.confidence.zip(word.confidence.map(rounded)).map(|(one, other)| one.min(other));
    }
    true
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::Style;

    use super::*;
    use crate::{
        block::Content,
        layout::{self, PageContent},
    };

    fn word(text: &str, left: f32, baseline: f32, confidence: Option<f32>) -> Word {
        let width = text.chars().count() as f32 * 5.0;
        Word {
            text: text.to_owned(),
            area: Area { left, top: baseline - 8.0, right: left + width, bottom: baseline + 2.0 },
            baseline,
            style: Style { size: 10.0, ..Style::default() },
            confidence,
        }
    }

    fn block(text: &str, bbox: [f64; 4]) -> Block {
        let places = vec![BlockPlace { page: 1, bbox }];
        Block { page: Some(1), places, ..Block::new(Content::Paragraph(text.to_owned())) }
    }

    #[test]
    fn words_belong_to_the_smallest_block_around_them() {
        let words = vec![
            word("Title", 50.0, 50.0, None),
            word("the", 50.0, 80.0, Some(0.956)),
            word("docu-", 70.0, 80.0, Some(0.9)),
            word("ment", 50.0, 92.0, Some(0.5)),
            word("well-", 75.0, 92.0, Some(0.9)),
            word("known", 50.0, 104.0, Some(0.9)),
            word("outside", 50.0, 700.0, None),
        ];
        let page = PageContent { number: 1, width: 600.0, height: 800.0, words, ..PageContent::default() };
        let mut blocks = vec![
            block("", [0.0, 0.0, 600.0, 120.0]),
            block("Title", [50.0, 42.0, 75.0, 52.0]),
            block("the document well-known", [50.0, 72.0, 100.0, 106.0]),
        ];
        place(&mut blocks, &layout::lined(vec![page]));
        let found = |index: usize| {
            let words = blocks[index].words.iter();
            words.map(|word| (word.text.as_str(), word.places.len(), word.confidence)).collect::<Vec<_>>()
        };
        assert_eq!(found(0), []);
        assert_eq!(found(1), [("Title", 1, None)]);
        let expected = [
            ("the", 1, Some(0.96)),
            ("document", 2, Some(0.5)),
            ("well-", 1, Some(0.9)),
            ("known", 1, Some(0.9)),
        ];
        assert_eq!(found(2), expected);
    }
}
