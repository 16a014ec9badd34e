//! Divides a text into the sections that it is searched by.

use signalbox_documents::{Extraction, Passage};
use signalbox_projections::extraction::{MARK_START, MARK_STOP, documents::Section};

/// Characters of a section at most. PostgreSQL indexes 1 MB of words at most, and shows a section as a whole to find the words in it.
const LETTERS: usize = 8000;

/// The sections of `extraction`: one for each page, or for several blocks of a document without pages; several for long ones.
pub(super) fn sections(extraction: &Extraction) -> Vec<Section> {
    let whole;
    let passages = if extraction.passages.is_empty() {
        // A process of the release before gives no passages.
        whole = [Passage { text: extraction.content.clone(), ..Passage::default() }];
        whole.as_slice()
    } else {
        extraction.passages.as_slice()
    };
    let mut sections: Vec<Section> = Vec::new();
    let mut letters = 0;
    for passage in passages {
        let page = passage.page.and_then(|page| i32::try_from(page).ok());
        let is_shown = |letter: &char| !matches!(*letter, '\0' | MARK_START | MARK_STOP);
        let text: String = passage.text.chars().filter(is_shown).collect();
        for piece in pieces(&text) {
            let length = piece.chars().count();
            let fits = sections.last().is_some_and(|last| last.page == page && letters + length <= LETTERS);
            if !fits {
                letters = 0;
                sections.push(Section { page, ..Section::default() });
            }
            letters += length;
            if let Some(section) = sections.last_mut() {
                section.texts.push(piece.to_owned());
                section.boxes.push(passage.bbox);
            }
        }
    }
    sections
}

/// `text` in pieces of at most [`LETTERS`] characters, divided between words where it has spaces.
fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.trim().is_empty() {
        let end = text.char_indices().nth(LETTERS).map_or(text.len(), |(at, _)| at);
        let space = (end < text.len()).then(|| text[..end].rfind(char::is_whitespace)).flatten();
        let (piece, rest) = text.split_at(space.filter(|at| *at > 0).unwrap_or(end));
        pieces.push(piece.trim());
        text = rest.trim_start();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(page: Option<usize>, text: &str) -> Passage {
        Passage { page, bbox: page.map(|_| [1.0, 2.0, 3.0, 4.0]), text: text.to_owned() }
    }

    #[test]
    fn each_page_is_a_section() {
        let passages = vec![passage(Some(1), "a\0b"), passage(Some(1), "c"), passage(Some(2), "d")];
        let found = sections(&Extraction { passages, ..Extraction::default() });
        let texts: Vec<_> = found.iter().map(|section| (section.page, section.texts.clone())).collect();
        assert_eq!(
            texts,
            [(Some(1), vec!["ab".to_owned(), "c".to_owned()]), (Some(2), vec!["d".to_owned()])]
        );
        assert_eq!(found[0].boxes, [Some([1.0, 2.0, 3.0, 4.0]); 2]);
    }

    #[test]
    fn long_texts_are_divided_between_words() {
        let long = "wörter ".repeat(3000);
        let found = sections(&Extraction { passages: vec![passage(None, &long)], ..Extraction::default() });
        assert!(found.len() == 3 && found.iter().all(|section| section.texts[0].chars().count() <= LETTERS));
        let words = found.iter().flat_map(|section| section.texts[0].split(' '));
        assert_eq!(words.filter(|word| *word == "wörter").count(), 3000);
        let unbroken = "ö".repeat(2 * LETTERS + 1);
        let found = sections(&Extraction { content: unbroken, ..Extraction::default() });
        assert_eq!(
            found.iter().map(|section| section.texts[0].chars().count()).sum::<usize>(),
            2 * LETTERS + 1
        );
        assert_eq!(sections(&Extraction::default()), []);
    }
}
