//! Text from right to left: its pages are read as in a mirror, so that lines, columns, lists and tables are found by the same
//! rules; words of the other direction within a line are put into the order in which they are read.

use signalbox_pdf::{Area, Rule, Word, direction::is_rtl};

use super::PageContent;

/// How far baselines of one line may lie apart, and words of one run, in sizes of the font.
const BASELINE: f32 = 0.45;
const GAP: f32 = 1.0;
/// A gap that parts no words.
const STUCK: f32 = 0.2;

/// Which way the letters of a word go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Ltr,
    Rtl,
    /// Numbers and signs go with the words around them.
    Neutral,
}

fn direction(word: &Word) -> Direction {
    let mut direction = Direction::Neutral;
    for letter in word.text.chars() {
        if is_rtl(letter) {
            return Direction::Rtl;
        }
        if letter.is_alphabetic() {
            direction = Direction::Ltr;
        }
    }
    direction
}

/// Puts the words of a page where those of a page from left to right would stand.
pub(super) fn arrange(page: &mut PageContent) {
    // The first byte of such letters in UTF-8.
    if !page.words.iter().any(|word| word.text.bytes().any(|byte| matches!(byte, 0xD6..=0xE0 | 0xEF))) {
        return;
    }
    let letters = |expected: Direction| -> usize {
        let words = page.words.iter().filter(|word| direction(word) == expected);
        words.map(|word| word.text.chars().count()).sum()
    };
    let (rtl, ltr) = (letters(Direction::Rtl), letters(Direction::Ltr));
    if rtl == 0 {
        return;
    }
    let other = if rtl > ltr { Direction::Ltr } else { Direction::Rtl };
    if rtl > ltr {
        mirror(page);
    }
    let mut level: Vec<Vec<Word>> = Vec::new();
    for word in std::mem::take(&mut page.words) {
        match level.last_mut() {
            Some(line) if line.last().is_some_and(|last| is_level(last, &word)) => line.push(word),
            _ => level.push(vec![word]),
        }
    }
    for mut line in level {
        line.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
        turn_runs(&mut line, other, &mut page.runs);
        page.words.extend(line);
    }
}

fn is_level(one: &Word, other: &Word) -> bool {
    let size = one.style.size.max(other.style.size).max(1.0);
    one.style.turned == other.style.turned && (one.baseline - other.baseline).abs() < BASELINE * size
}

fn mirror(page: &mut PageContent) {
    page.is_mirrored = true;
    let width = page.width;
    let mirrored = |area: Area| Area { left: width - area.right, right: width - area.left, ..area };
    page.words.iter_mut().for_each(|word| word.area = mirrored(word.area));
    page.images.iter_mut().chain(&mut page.figures).for_each(|image| *image = mirrored(*image));
    for rule in &mut page.rules {
        *rule = if rule.level {
            Rule { from: width - rule.to, to: width - rule.from, ..*rule }
        } else {
            Rule { at: width - rule.at, ..*rule }
        };
    }
}

/// Turns each run of words that go the `other` way round in its place, which is added to `runs`.
fn turn_runs(line: &mut [Word], other: Direction, runs: &mut Vec<Area>) {
    let mut start = 0;
    while start < line.len() {
        let end = run_end(line, start, other);
        if end > start + 1 {
            let run = &mut line[start..end];
            let area = run.iter().map(|word| word.area).reduce(|one, other| one.union(&other));
            let area = area.unwrap_or_default();
            run.iter_mut().for_each(|word| turn_within(&area, &mut word.area));
            run.reverse();
            runs.push(area);
        }
        start = end.max(start + 1);
    }
}

/// Exchanges left and right within `run`.
pub(super) fn turn_within(run: &Area, area: &mut Area) {
    (area.left, area.right) = (run.left + run.right - area.right, run.left + run.right - area.left);
}

/// Whether the centre of `area` is in `run`.
pub(super) fn is_in(run: &Area, area: &Area) -> bool {
    let (x, y) = ((area.left + area.right) / 2.0, (area.top + area.bottom) / 2.0);
    (run.left..=run.right).contains(&x) && (run.top..=run.bottom).contains(&y)
}

/// The end of the run that starts at `start`; equals `start` if there is no run. Among right-to-left words, a number
/// belongs to the left-to-right words beside it ("Debian 12"), and to the characters attached to it.
fn run_end(line: &[Word], start: usize, other: Direction) -> usize {
    let has_number = |word: &Word| word.text.chars().any(char::is_numeric);
    let belongs = |word: &Word| {
        direction(word) == other
            || (other == Direction::Ltr && direction(word) != Direction::Rtl && has_number(word))
    };
    if !belongs(&line[start]) {
        return start;
    }
    let (mut end, mut stuck) = (start + 1, start + 1);
    for at in start + 1..line.len() {
        let size = line[at].style.size.max(line[at - 1].style.size).max(1.0);
        let gap = (line[at].area.left - line[at - 1].area.right) / size;
        if gap > GAP || !(belongs(&line[at]) || direction(&line[at]) == Direction::Neutral) {
            break;
        }
        if belongs(&line[at]) {
            end = at + 1;
        }
        if gap < STUCK && stuck == at {
            stuck = at + 1;
        }
    }
    let has_words = line[start..end].iter().any(|word| direction(word) == other);
    if has_words { end } else { stuck }
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::Style;

    use super::*;

    /// A page with the words of a line, from left to right.
    fn page(words: &[&str]) -> PageContent {
        let mut left = 0.0;
        let mut word = |text: &&str| {
            let right = left + 6.0 * text.chars().count() as f32;
            let area = Area { left, top: 90.0, right, bottom: 100.0 };
            left = right + 4.0;
            let style = Style { size: 10.0, ..Style::default() };
            Word { text: (*text).to_owned(), area, baseline: 98.0, style, confidence: None }
        };
        let words = words.iter().map(&mut word).collect();
        PageContent { width: 600.0, height: 800.0, words, ..PageContent::default() }
    }

    /// The words of a line from left to right, after they were arranged.
    fn arranged(words: &[&str]) -> Vec<String> {
        let mut page = page(words);
        arrange(&mut page);
        page.words.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
        page.words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_stand_in_the_order_in_which_they_are_read() {
        assert_eq!(arranged(&["one", "two"]), ["one", "two"]);
        assert_eq!(arranged(&["ההפעלה.", "למערכת", "ברוכים"]), ["ברוכים", "למערכת", "ההפעלה."]);
        assert_eq!(
            arranged(&["שמתחילים", "לפני", "GNU/Linux", "12", "Debian", "להתקין"]),
            ["להתקין", "GNU/Linux", "12", "Debian", "לפני", "שמתחילים"]
        );
        assert_eq!(
            arranged(&["a", "quote", "היום", "שלום", "inside"]),
            ["a", "quote", "שלום", "היום", "inside"]
        );
    }

    #[test]
    fn words_keep_their_places_whatever_their_order() {
        let lines: [&[&str]; 3] = [
            &["a", "quote", "היום", "שלום", "inside"],
            &["שמתחילים", "לפני", "GNU/Linux", "12", "Debian", "להתקין"],
            &["ההפעלה.", "למערכת", "ברוכים"],
        ];
        for words in lines {
            let before = page(words).words;
            let lined = super::super::lined(vec![page(words)]);
            let after: Vec<&Word> = lined
                .iter()
                .flat_map(|page| page.blocks.iter().flatten())
                .flat_map(|line| &line.words)
                .collect();
            assert_eq!(after.len(), before.len());
            for word in after {
                let own = before.iter().find(|own| own.text == word.text).unwrap();
                assert!((own.area.left - word.area.left).abs() < 0.01, "{word:?} stood at {own:?}");
            }
        }
    }
}
