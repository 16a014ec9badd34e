//! Words become pieces of lines: neighbours without a wide gap between them.

use signalbox_pdf::{Area, Word, scripts};

use super::{justified, marker::marker};

/// A gap from which on words belong to different pieces, in sizes of the font. Justified text may be split, too; pieces
/// of one column are joined again.
const WIDE_GAP: f32 = 1.0;
/// How far the baselines of one line may lie apart, in sizes of the font: a raised number belongs to its line.
const BASELINE: f32 = 0.45;
/// How far the baselines and sizes of pieces of a justified line differ, and how wide a space in it is, in sizes of the font.
const LEVEL: f32 = 0.1;
const MOST_SPACE: f32 = 5.0;
/// How much larger than the other one of two pieces of a line is taken to be, at most.
const LARGER: f32 = 2.0;
/// Numbers that are smaller than this share of the line's letters, and stand higher or lower by these, in its size, are
/// raised or lowered; those no further away belong to the word before.
const SCRIPT: f32 = 0.85;
const HIGHER: f32 = 0.15;
const LOWER: f32 = 0.08;
const SCRIPT_GAP: f32 = 0.2;
/// Pieces that lie over each other by so much, in sizes of the font, are of several lines, unless they are drawn twice.
const OVER: f32 = 3.0;
/// How far a marker of a list may stand before its text.
pub(crate) const MARKER_GAP: f32 = 4.5;

/// Words of one line without a wide gap between them; later, a whole line of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) words: Vec<Word>,
    pub(crate) area: Area,
    pub(crate) baseline: f32,
    /// Of most of its letters.
    pub(crate) size: f32,
    /// All of its words are.
    pub(crate) bold: bool,
    /// All of its words are.
    pub(crate) mono: bool,
    /// Whether it is a running head or footer that stays in the text.
    pub(crate) is_margin: bool,
}

impl Line {
    pub(crate) fn new(words: Vec<Word>) -> Self {
        let mut line = Self {
            area: words.first().map_or_else(Area::default, |word| word.area),
            baseline: words.first().map_or(0.0, |word| word.baseline),
            words,
            size: 0.0,
            bold: false,
            mono: false,
            is_margin: false,
        };
        line.measure();
        line
    }

    /// Finds area and looks after words have changed.
    fn measure(&mut self) {
        let mut best: Option<(&Word, usize)> = None;
        for word in &self.words {
            self.area = self.area.union(&word.area);
            let letters = word.text.len();
            if best.is_none_or(|(_, most)| letters > most) {
                best = Some((word, letters));
            }
        }
        if let Some((word, _)) = best {
            (self.size, self.baseline) = (word.style.size, word.baseline);
        }
        let says_something = |word: &&Word| word.text.chars().any(char::is_alphanumeric);
        let mut words = self.words.iter().filter(says_something).peekable();
        self.bold = words.peek().is_some() && words.clone().all(|word| word.style.bold);
        self.mono = words.peek().is_some() && words.all(|word| word.style.mono);
    }

    /// Takes in another piece of the same line.
    pub(crate) fn join(&mut self, other: Self) {
        self.is_margin |= other.is_margin;
        self.words.extend(other.words);
        self.words.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
        self.measure();
    }

    /// Its words with spaces between them; raised and lowered numbers belong to the word before.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut right = f32::MIN;
        for word in &self.words {
            let script = self.script(word);
            let is_stuck = script.is_some() && word.area.left - right < SCRIPT_GAP * self.size;
            if !text.is_empty() && !is_stuck {
                text.push(' ');
            }
            text.push_str(script.as_deref().unwrap_or(&word.text));
            right = word.area.right;
        }
        text
    }

    /// The number that `word` is if it is set higher or lower than the line, such as the mark of a note.
    fn script(&self, word: &Word) -> Option<String> {
        let higher = (self.baseline - word.baseline) / self.size.max(1.0);
        if word.style.size > SCRIPT * self.size || word.style.turned {
            None
        } else if higher >= HIGHER {
            scripts::raised(&word.text)
        } else if higher <= -LOWER {
            scripts::lowered(&word.text)
        } else {
            None
        }
    }

    /// Whether its text ends with one of `letters`.
    pub(crate) fn ends_with(&self, letters: &[char]) -> bool {
        self.words.last().is_some_and(|word| word.text.ends_with(letters))
    }

    pub(crate) fn letters(&self) -> usize {
        self.words.iter().map(|word| word.text.len()).sum()
    }

    /// Whether both stand on one line. A large sign beside text stands beside several lines, and makes no line of them.
    pub(crate) fn is_level_with(&self, other: &Self) -> bool {
        let (small, large) = (self.size.min(other.size), self.size.max(other.size));
        let size = large.min(LARGER * small).max(1.0);
        (self.baseline - other.baseline).abs() < BASELINE * size
    }
}

/// Puts `words`, in the order of the file, together to pieces of lines.
pub(crate) fn gather(words: Vec<Word>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut open: Vec<Word> = Vec::new();
    for word in words {
        if open.last().is_some_and(|last| !follows(last, &word)) {
            lines.push(Line::new(std::mem::take(&mut open)));
        }
        open.push(word);
    }
    if !open.is_empty() {
        lines.push(Line::new(open));
    }
    if lines.windows(2).any(|pair| continues(&pair[0], &pair[1])) { with_justified(lines) } else { lines }
}

/// Whether `next` is the rest of `line`, behind a gap.
fn continues(line: &Line, next: &Line) -> bool {
    let size = line.size.max(1.0);
    let gap = next.area.left - line.area.right;
    let is_level = (line.baseline - next.baseline).abs() < LEVEL * size;
    is_level && (0.0..MOST_SPACE * size).contains(&gap) && (line.size - next.size).abs() < LEVEL * size
}

/// `lines` with the pieces of justified ones put together.
fn with_justified(lines: Vec<Line>) -> Vec<Line> {
    let mut joined: Vec<Line> = Vec::with_capacity(lines.len());
    let mut run: Vec<Line> = Vec::new();
    let mut close = |run: &mut Vec<Line>| {
        let words = run.iter().flat_map(|line| &line.words);
        if run.len() > 1 && justified::is_line(words, run[0].size) {
            joined.push(Line::new(run.drain(..).flat_map(|line| line.words).collect()));
        } else {
            joined.append(run);
        }
    };
    for line in lines {
        if run.last().is_some_and(|last| !continues(last, &line)) {
            close(&mut run);
        }
        run.push(line);
    }
    close(&mut run);
    joined
}

fn follows(last: &Word, word: &Word) -> bool {
    if last.style.turned || word.style.turned {
        return last.style.turned && word.style.turned;
    }
    let size = last.style.size.max(word.style.size).max(1.0);
    let gap = word.area.left - last.area.right;
    (word.baseline - last.baseline).abs() < BASELINE * size && gap < WIDE_GAP * size && gap > -0.5 * size
}

/// Sorts pieces from top to bottom and joins those of one line that are no wider apart than `gap` sizes of their font, and
/// markers of lists with what they mark.
pub(crate) fn join_level(mut lines: Vec<Line>, gap: f32) -> Vec<Line> {
    lines.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let mut joined: Vec<Line> = Vec::new();
    for row in rows(lines) {
        let start = joined.len();
        for line in row {
            match joined[start..].last_mut() {
                Some(before) if belong_together(before, &line, gap) => before.join(line),
                _ => joined.push(line),
            }
        }
    }
    joined
}

/// Pieces, sorted from top to bottom, as rows of pieces from left to right.
pub(crate) fn rows(lines: Vec<Line>) -> Vec<Vec<Line>> {
    let mut rows: Vec<Vec<Line>> = Vec::new();
    for line in lines {
        match rows.last_mut() {
            Some(row) if row.first().is_some_and(|first| first.is_level_with(&line)) => row.push(line),
            _ => rows.push(vec![line]),
        }
    }
    for row in &mut rows {
        row.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
    }
    if rows.iter().any(|row| lies_over_itself(row)) {
        rows.into_iter().flat_map(apart).collect()
    } else {
        rows
    }
}

/// Whether a row, from left to right, has pieces of several lines: a large sign beside them is level with each.
fn lies_over_itself(row: &[Line]) -> bool {
    row.iter().enumerate().any(|(at, line)| row[at + 1..].iter().any(|other| lies_over(line, other)))
}

fn lies_over(line: &Line, other: &Line) -> bool {
    let size = line.size.min(other.size).max(1.0);
    let both = line.area.right.min(other.area.right) - line.area.left.max(other.area.left);
    both > OVER * size && (line.baseline - other.baseline).abs() > LEVEL * size
}

/// The lines of a row whose pieces lie over each other. A piece that lies over none is of the line that is nearest to it.
fn apart(row: Vec<Line>) -> Vec<Vec<Line>> {
    if !lies_over_itself(&row) {
        return vec![row];
    }
    let is_over = |line: &Line, others: &[Line]| others.iter().any(|other| lies_over(line, other));
    let (mut over, mut beside): (Vec<Line>, Vec<Line>) =
        row.iter().cloned().partition(|line| is_over(line, &row));
    over.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let mut lines: Vec<Vec<Line>> = Vec::new();
    for line in over {
        match lines.iter_mut().find(|others| !is_over(&line, others)) {
            Some(others) => others.push(line),
            None => lines.push(vec![line]),
        }
    }
    for line in beside.drain(..) {
        let distance = |others: &Vec<Line>| (others[0].baseline - line.baseline).abs();
        let nearest = lines.iter_mut().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        nearest.into_iter().for_each(|others| others.push(line.clone()));
    }
    for line in &mut lines {
        line.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
    }
    lines
}

fn belong_together(before: &Line, line: &Line, gap: f32) -> bool {
    let size = before.size.max(line.size).max(1.0);
    let distance = line.area.left - before.area.right;
    distance < gap * size || (distance < MARKER_GAP * size && is_marker(before, line))
}

/// Whether `before` stands alone as a marker of what `line` says: of an item, or the number of a heading.
fn is_marker(before: &Line, line: &Line) -> bool {
    let [word] = before.words.as_slice() else { return false };
    if marker(&word.text).is_some() {
        return true;
    }
    let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && word.text.starts_with(|first: char| first.is_ascii_digit());
    is_number && before.bold && line.bold
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::Style;

    use super::*;

    #[test]
    fn raised_numbers_belong_to_the_word_before() {
        let word = |text: &str, left: f32, right: f32, baseline: f32, size: f32| Word {
            text: text.to_owned(),
            area: Area { left, top: baseline - size, right, bottom: baseline },
            baseline,
            style: Style { size, ..Style::default() },
            confidence: None,
        };
        let line = Line::new(vec![
            word("as", 0.0, 10.0, 100.0, 10.0),
            word("noted", 14.0, 40.0, 100.0, 10.0),
            word("12", 41.0, 46.0, 96.0, 6.0),
            word("in", 50.0, 60.0, 100.0, 10.0),
            word("7", 64.0, 70.0, 100.0, 7.0),
        ]);
        assert_eq!(line.text(), "as noted¹² in 7");
    }

    /// A line of one word between these edges.
    fn placed(text: &str, (left, right): (f32, f32), baseline: f32, size: f32) -> Line {
        let area = Area { left, top: baseline - size, right, bottom: baseline };
        let style = Style { size, ..Style::default() };
        Line::new(vec![Word { text: text.to_owned(), area, baseline, style, confidence: None }])
    }

    #[test]
    fn lines_beside_a_large_sign_stay_apart() {
        let line = |text, left, baseline, size| placed(text, (left, left + 20.0), baseline, size);
        let pieces = vec![
            line("!", 10.0, 98.0, 30.0),
            line("one", 50.0, 100.0, 10.0),
            line("two", 50.0, 111.0, 10.0),
            line("12", 71.0, 107.0, 6.0),
        ];
        let texts: Vec<String> = join_level(pieces, f32::INFINITY).iter().map(Line::text).collect();
        assert_eq!(texts, ["! one", "two¹²"]);
    }

    #[test]
    fn lines_of_text_are_not_mixed_by_a_sign_that_is_level_with_both() {
        let line = |text: &str, left, baseline, size| {
            placed(text, (left, left + 5.0 * text.len() as f32), baseline, size)
        };
        let pieces = vec![
            line("!", 10.0, 103.6, 19.2),
            line("first-line-of-text", 36.0, 100.0, 10.0),
            line("second-line-of-it", 36.0, 111.6, 10.0),
            // A letter that is drawn twice, to look bold, is in one line.
            line("second-line-of-it", 36.2, 111.6, 10.0),
        ];
        let texts: Vec<Vec<String>> =
            rows(join_level(pieces, 1.0)).iter().map(|row| row.iter().map(Line::text).collect()).collect();
        let expected = [vec!["!", "first-line-of-text"], vec!["second-line-of-it second-line-of-it"]];
        assert_eq!(texts, expected);
    }
}
