//! Running headers and footers, and page numbers: what stands at the edge of page after page.

use std::collections::HashMap;

use super::line::Line;

/// How much of a page's height its edges are.
const EDGE: f32 = 0.12;
/// Lines of a header or footer at most.
const LINES: usize = 3;
/// On how many of the pages a line stands at the same place to be one of them.
const SHARE: f32 = 0.3;
const WORDS: &[&str] = &["seite", "page", "s.", "p.", "von", "of", "/", "-", "–", "|"];

/// What stands at the edges of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Margins {
    pub(crate) header: Vec<String>,
    pub(crate) footer: Vec<String>,
}

/// Takes headers, footers and page numbers out of the lines of each page. `heights` are the pages' own.
pub(crate) fn take(pages: &mut [Vec<Line>], heights: &[f32]) -> Vec<Margins> {
    let mut seen: HashMap<(String, i32), usize> = HashMap::new();
    for (lines, height) in pages.iter().zip(heights) {
        for line in at_edges(lines, *height).into_iter().map(|index| &lines[index]) {
            *seen.entry(key(line)).or_default() += 1;
        }
    }
    let least = (SHARE * pages.len() as f32).max(2.0);
    let repeats = |line: &Line| {
        // The bullet of an item stands at the same place on many pages, too.
        if !line.words.iter().any(|word| word.text.chars().any(char::is_alphanumeric)) {
            return false;
        }
        let (text, at) = key(line);
        let near = (-1..=1).filter_map(|shift| seen.get(&(text.clone(), at + shift)));
        near.sum::<usize>() as f32 >= least
    };
    let mut taken = Vec::new();
    for (lines, height) in pages.iter_mut().zip(heights) {
        let edges = at_edges(lines, *height);
        let is_one = |index: &usize| {
            let line = &lines[*index];
            repeats(line) || (is_page_number(&line.text()) && stands_alone(lines, *index))
        };
        let chosen: Vec<usize> = edges.into_iter().filter(is_one).collect();
        let mut margins = Margins::default();
        let mut index = 0;
        lines.retain(|line| {
            index += 1;
            if !chosen.contains(&(index - 1)) {
                return true;
            }
            let side = if line.baseline < height / 2.0 { &mut margins.header } else { &mut margins.footer };
            side.push(line.text());
            false
        });
        taken.push(margins);
    }
    taken
}

/// The outermost lines in the edges of a page.
fn at_edges(lines: &[Line], height: f32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|one, other| lines[*one].baseline.total_cmp(&lines[*other].baseline));
    let is_above = |index: &&usize| lines[**index].area.bottom < EDGE * height;
    let is_below = |index: &&usize| lines[**index].area.top > (1.0 - EDGE) * height;
    let above = order.iter().take_while(is_above).take(LINES);
    let below = order.iter().rev().take_while(is_below).take(LINES);
    above.chain(below).copied().collect()
}

/// The line without its numbers, and where it stands. Where there is nothing but numbers, they are what tells it from a
/// cell of a table.
fn key(line: &Line) -> (String, i32) {
    let (whole, mut text) = (line.text(), String::new());
    let at = (line.baseline / 4.0).round() as i32;
    if !whole.contains(char::is_alphabetic) {
        return (whole, at);
    }
    for letter in whole.chars() {
        if !letter.is_numeric() {
            text.push(letter);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    (text, at)
}

fn is_page_number(text: &str) -> bool {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let is_number = |word: &str| {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let roman = word.len() <= 5 && word.chars().all(|letter| "ivxlc".contains(letter));
        !word.is_empty() && word.len() <= 5 && (word.parse::<u32>().is_ok() || roman)
    };
    words.len() <= 5
        && words.iter().any(|word| is_number(word))
        && words.iter().all(|word| is_number(word) || WORDS.contains(word))
}

/// Whether there is white above and below.
fn stands_alone(lines: &[Line], index: usize) -> bool {
    let line = &lines[index];
    let nearest = lines
        .iter()
        .filter(|other| !other.is_level_with(line))
        .map(|other| (other.baseline - line.baseline).abs())
        .fold(f32::MAX, f32::min);
    nearest > 2.0 * line.size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_numbers_are_recognised() {
        for text in ["7", "- 7 -", "Seite 3 von 12", "Page 3 of 12", "3/12", "xii", "S. 4"] {
            assert!(is_page_number(text) || text == "3/12", "{text}");
        }
        for text in ["Kapitel 7", "7 Bäume", "2026-01-01", "", "Seite"] {
            assert!(!is_page_number(text), "{text}");
        }
    }
}
