//! A document in pieces of bounded length, such as indexes and language models take, each with its headings and places.

use std::ops::Range;

use serde::Serialize;

use super::plaintext;
use crate::block::{Block, BlockPlace, Content};

/// Marks that may follow the end of a sentence.
const CLOSING: [char; 8] = ['"', '\'', ')', ']', '”', '’', '»', '」'];
const SENTENCE_ENDS: [char; 9] = ['.', '!', '?', '…', '。', '！', '？', '؟', '।'];

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Chunk {
    /// From 0.
    index: usize,
    /// Plain text; blocks are separated by an empty line.
    text: String,
    /// Words of `text`; in scripts without spaces each character counts.
    words: usize,
    /// The headings above its first block, the highest first.
    headings: Vec<String>,
    /// Pages that it stands on, in ascending order.
    pages: Vec<usize>,
    /// Places of its blocks. A block that is divided between chunks gives its places to each of them.
    places: Vec<BlockPlace>,
}

/// `blocks` in chunks of at most `limit` words. Chunks end at the boundaries of blocks and before headings; a block that is longer
/// than `limit` is divided at ends of sentences, or else between words.
pub(super) fn of(blocks: &[Block], limit: usize) -> Vec<Chunk> {
    let mut chunker = Chunker { limit: limit.max(1), ..Chunker::default() };
    for block in blocks {
        let text = plaintext::blocks(std::slice::from_ref(block));
        match &block.content {
            Content::Heading { level, .. } => chunker.heading(*level, text, block),
            _ => chunker.add(text, block),
        }
    }
    chunker.close();
    chunker.chunks
}

#[derive(Default)]
struct Chunker {
    limit: usize,
    chunks: Vec<Chunk>,
    open: Option<Chunk>,
    /// Whether the open chunk has more than headings.
    has_body: bool,
    /// Headings in force, with their levels.
    path: Vec<(u8, String)>,
}

impl Chunker {
    fn heading(&mut self, level: u8, text: String, block: &Block) {
        if self.has_body {
            self.close();
        }
        // The path of a chunk with a heading at its start is that above the heading.
        self.path.retain(|(above, _)| *above < level);
        self.add(text.clone(), block);
        self.path.push((level, text));
        self.has_body = false;
    }

    fn add(&mut self, text: String, block: &Block) {
        let words = words_of(&text);
        if words.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|open| open.words + words.len() > self.limit) {
            self.close();
        }
        if words.len() <= self.limit {
            return self.append(text.trim_end(), words.len(), block);
        }
        for range in pieces(&text, &words, self.limit) {
            let piece = &text[words[range.start].start..words[range.end - 1].end];
            if self.open.as_ref().is_some_and(|open| open.words + range.len() > self.limit) {
                self.close();
            }
            self.append(piece, range.len(), block);
        }
    }

    fn append(&mut self, text: &str, words: usize, block: &Block) {
        let index = self.chunks.len();
        let open = self.open.get_or_insert_with(|| Chunk {
            index,
            text: String::new(),
            words: 0,
            headings: self.path.iter().map(|(_, text)| text.clone()).collect(),
            pages: Vec::new(),
            places: Vec::new(),
        });
        if !open.text.is_empty() {
            open.text.push_str("\n\n");
        }
        open.text.push_str(text);
        open.words += words;
        open.places.extend(&block.places);
        open.pages.extend(block.page);
        open.pages.extend(block.places.iter().map(|place| place.page));
        self.has_body = true;
    }

    fn close(&mut self) {
        if let Some(mut chunk) = self.open.take() {
            chunk.pages.sort_unstable();
            chunk.pages.dedup();
            self.chunks.push(chunk);
        }
        self.has_body = false;
    }
}

/// Ranges of `words` with at most `limit` each, which end at sentences where there is one.
fn pieces(text: &str, words: &[Range<usize>], limit: usize) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < words.len() {
        let end = (start + limit).min(words.len());
        let cut = if end == words.len() {
            end
        } else {
            let last = (start..end).rev().find(|index| ends_sentence(text, words, *index));
            last.map_or(end, |last| last + 1)
        };
        pieces.push(start..cut);
        start = cut;
    }
    pieces
}

/// Whether a sentence, or a line, ends with the word at `index`.
fn ends_sentence(text: &str, words: &[Range<usize>], index: usize) -> bool {
    let word = &words[index];
    let gap = words.get(index + 1).map_or("", |next| &text[word.end..next.start]);
    gap.contains('\n') || text[word.clone()].trim_end_matches(CLOSING).ends_with(SENTENCE_ENDS)
}

/// The words of `text`: the pieces between spaces; in scripts without spaces each character, with the marks that follow it.
fn words_of(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    // Whether the last word can go on.
    let (mut is_open, mut is_single) = (false, false);
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        if letter.is_whitespace() {
            is_open = false;
            continue;
        }
        let stands_alone = is_without_spaces(letter);
        // A letter after a character that is a word of its own starts another one; a mark does not.
        let continues = is_open && !stands_alone && !(is_single && letter.is_alphanumeric());
        match words.last_mut().filter(|_| continues) {
            Some(last) => last.end = end,
            None => {
                words.push(at..end);
                is_single = stands_alone;
            }
        }
        is_open = true;
    }
    words
}

/// Whether `letter` is of a script that sets no spaces between words.
fn is_without_spaces(letter: char) -> bool {
    matches!(letter,
        '\u{0E01}'..='\u{0E30}' | '\u{0E32}'..='\u{0E33}' | '\u{0E40}'..='\u{0E46}' // Thai
        | '\u{0E81}'..='\u{0EB0}' | '\u{0EC0}'..='\u{0EC6}'                         // Lao
        | '\u{1000}'..='\u{102A}' | '\u{1780}'..='\u{17B3}'                         // Burmese, Khmer
        | '\u{3041}'..='\u{3096}' | '\u{30A1}'..='\u{30FC}'                         // kana
        | '\u{3005}'..='\u{3007}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(content: Content, page: usize, top: f64) -> Block {
        let places = vec![BlockPlace { page, bbox: [50.0, top, 300.0, top + 12.0] }];
        Block { page: Some(page), places, ..Block::new(content) }
    }

    fn text(words: usize) -> Content {
        Content::Paragraph((0..words).map(|word| format!("w{word}")).collect::<Vec<_>>().join(" "))
    }

    fn heading(level: u8, text: &str) -> Content {
        Content::Heading { level, text: text.to_owned() }
    }

    #[test]
    fn chunks_end_at_blocks_and_name_their_headings() {
        let blocks = [
            block(heading(1, "Handbook"), 1, 50.0),
            block(heading(2, "Pumps"), 1, 70.0),
            block(text(6), 1, 90.0),
            block(text(4), 2, 50.0),
            block(text(4), 2, 70.0),
            block(Content::ImageRef("page 2, image 1".to_owned()), 2, 90.0),
            block(heading(2, "Valves"), 2, 200.0),
            block(text(1), 3, 50.0),
        ];
        let chunks = of(&blocks, 12);
        let shown: Vec<_> =
            chunks.iter().map(|chunk| (chunk.words, chunk.headings.join("/"), chunk.pages.clone())).collect();
        let path = |path: &str| path.to_owned();
        let expected = [
            (12, path(""), vec![1, 2]),
            (4, path("Handbook/Pumps"), vec![2]),
            (2, path("Handbook"), vec![2, 3]),
        ];
        assert_eq!(shown, expected);
        assert_eq!(chunks[2].text, "Valves\n\nw0");
        assert_eq!(chunks[0].places.len(), 4);
        assert_eq!(chunks.iter().map(|chunk| chunk.index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn long_blocks_are_divided_at_sentences_then_words() {
        let cut = |text: &str, limit: usize| -> Vec<String> {
            let chunks = of(&[Block::new(Content::Paragraph(text.to_owned()))], limit);
            assert!(chunks.iter().all(|chunk| chunk.words <= limit), "{chunks:?}");
            chunks.into_iter().map(|chunk| chunk.text).collect()
        };
        assert_eq!(
            cut("One two three. Four (five.) Six seven", 4),
            ["One two three.", "Four (five.) Six seven"]
        );
        assert_eq!(cut("a b c d e f g", 3), ["a b c", "d e f", "g"]);
        assert_eq!(cut("今日は晴れです。明日も。", 8), ["今日は晴れです。", "明日も。"]);
        assert_eq!(cut("私はRustを 書く", 4), ["私はRustを", "書く"]);
    }

    #[test]
    fn no_word_is_lost_or_doubled() {
        let sentence = "Ein Satz, der \"endet.\" Und 12,5 % noch einer! ";
        let blocks: Vec<Block> =
            (1..9).map(|count| Block::new(Content::Paragraph(sentence.repeat(count * 3)))).collect();
        for limit in [1, 2, 7, 50, 4000] {
            let chunked: Vec<String> = of(&blocks, limit)
                .iter()
                .flat_map(|chunk| chunk.text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            let whole: Vec<String> = blocks
                .iter()
                .flat_map(|block| block.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            assert_eq!(chunked, whole, "{limit}");
        }
    }
}
