//! Rows of ruled tables that have no rules between them: some tables have dotted ones, or only colours.

use std::cmp::Reverse;

use signalbox_pdf::{Rule, Word};

/// Baselines this far apart are of one line, in points.
pub(super) const LEVEL: f32 = 1.5;
/// Lines of a row, at least, for them to be rows of their own; columns that have them; and how far below one of them its edge is, in
/// their distance.
const LINES: usize = 3;
const COLUMNS: usize = 3;
const EDGE: f32 = 0.3;

/// Parts the rows of which the lines are rows: several columns have them, one of them with a number in each. `cells` are the words
/// by row and column.
pub(super) fn part(columns: &[f32], rows: &mut Vec<f32>, rules: &mut Vec<Rule>, cells: &mut Vec<Vec<Word>>) {
    let width = columns.len() - 1;
    let (whole, old) = (std::mem::take(cells), std::mem::take(rows));
    rows.extend(old.first());
    for (row, bottom) in whole.chunks(width).zip(&old[1..]) {
        let edges = edges_within(row);
        let first = cells.len();
        cells.resize(first + width * (edges.len() + 1), Vec::new());
        for (column, cell) in row.iter().enumerate() {
            for word in cell {
                let at = edges.iter().take_while(|edge| **edge < word.baseline).count();
                cells[first + at * width + column].push(word.clone());
            }
        }
        let (from, to) = (columns[0], columns[width]);
        rules.extend(edges.iter().map(|at| Rule { level: true, at: *at, from, to }));
        rows.extend(edges);
        rows.push(*bottom);
    }
}

/// Where the lines of a row are to be parted.
fn edges_within(row: &[Vec<Word>]) -> Vec<f32> {
    let mut lines: Vec<(Vec<f32>, &Vec<Word>)> =
        row.iter().map(|cell| (baselines(cell.iter()), cell)).collect();
    lines.sort_by_key(|(lines, _)| Reverse(lines.len()));
    let Some((all, _)) = lines.first().filter(|(all, _)| all.len() >= LINES) else { return Vec::new() };
    let is_one = |line: &f32| all.iter().any(|other| (line - other).abs() <= LEVEL);
    let mut full = lines.iter().filter(|(lines, _)| 3 * lines.len() >= 2 * all.len());
    let are_rows = lines.iter().all(|(lines, _)| lines.iter().all(is_one))
        && full.clone().count() >= COLUMNS
        && full.any(|(lines, words)| are_numbers(words, lines.len()));
    if !are_rows {
        return Vec::new();
    }
    all.windows(2).map(|pair| pair[0] + EDGE * (pair[1] - pair[0])).collect()
}

/// Whether `words` are numbers for the most part, one in each line.
fn are_numbers(words: &[Word], lines: usize) -> bool {
    let is_number = |word: &&Word| {
        let digits = word.text.chars().filter(char::is_ascii_digit).count();
        digits > word.text.chars().filter(|letter| letter.is_alphabetic()).count()
    };
    words.len() == lines && 2 * words.iter().filter(is_number).count() > lines
}

/// Where the lines of `words` stand.
pub(super) fn baselines<'a>(words: impl Iterator<Item = &'a Word>) -> Vec<f32> {
    let mut places: Vec<f32> = words.map(|word| word.baseline).collect();
    places.sort_by(f32::total_cmp);
    places.dedup_by(|one, other| (*one - *other).abs() <= LEVEL);
    places
}

#[cfg(test)]
pub(super) mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    /// A word of letters that are 5 points wide.
    pub(in crate::layout) fn word(text: &str, left: f32, baseline: f32) -> Word {
        let right = left + 5.0 * text.len() as f32;
        let area = Area { left, top: baseline - 8.0, right, bottom: baseline + 2.0 };
        let style = Style { size: 10.0, ..Style::default() };
        Word { text: text.to_owned(), area, baseline, style, confidence: None }
    }

    fn parted(texts: [&str; 3]) -> Vec<Vec<String>> {
        let cell = |(column, texts): (usize, &str)| -> Vec<Word> {
            let left = 10.0 + 100.0 * column as f32;
            let lines = texts.split(' ').enumerate();
            lines.map(|(line, text)| word(text, left, 14.0 + 12.0 * line as f32)).collect()
        };
        let mut cells: Vec<Vec<Word>> = texts.into_iter().enumerate().map(cell).collect();
        let (mut rows, mut rules) = (vec![0.0, 50.0], Vec::new());
        part(&[0.0, 100.0, 200.0, 300.0], &mut rows, &mut rules, &mut cells);
        assert_eq!((rows.len() - 1, rules.len()), (cells.len() / 3, rows.len() - 2));
        let text =
            |cell: &Vec<Word>| cell.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        cells.chunks(3).map(|row| row.iter().map(text).collect()).collect()
    }

    #[test]
    fn lines_with_a_number_each_are_rows() {
        let rows = parted(["Atri Campli Canzano", "1 2 3", "SUP INF INF"]);
        assert_eq!(rows, [["Atri", "1", "SUP"], ["Campli", "2", "INF"], ["Canzano", "3", "INF"]]);
    }

    #[test]
    fn lines_of_text_stay_in_their_cells() {
        for texts in [["so it is", "as it was", "long ago then"], ["so it is", "1", "as it was"]] {
            assert_eq!(parted(texts), [texts]);
        }
    }
}
