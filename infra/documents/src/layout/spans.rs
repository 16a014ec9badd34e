//! Cells of ruled tables that reach over rows or columns: there is no rule where other rows or columns have one.

use signalbox_pdf::{Rule, Word};

use crate::table::TableCell;

/// How far rules may miss each other, in points.
pub(super) const NEAR: f32 = 3.0;
/// Distance of words on one line, in sizes of the font, from which on they stand in different cells.
const GAP: f32 = 0.8;
/// Distance of lines, in sizes of the font, up to which they are one text.
const LEADING: f32 = 1.7;

/// Finds merged cells and puts the words of each into its first place. `columns` and `rows` are where the rules lie, `cells`
/// the words by row and column.
pub(super) fn find(columns: &[f32], rows: &[f32], rules: &[Rule], cells: &mut [Vec<Word>]) -> Vec<TableCell> {
    let mut spans = Spans {
        height: rows.len() - 1,
        width: columns.len() - 1,
        right: walls(columns, rows, rules, false),
        below: walls(rows, columns, rules, true),
        taken: vec![false; cells.len()],
    };
    spans.divide_by_gaps(columns, cells);
    let mut found = Vec::new();
    for row in 0..spans.height {
        for column in 0..spans.width {
            if spans.taken[spans.at(row, column)] {
                continue;
            }
            let cell = spans.grow(row, column, cells);
            if cell.row_span > 1 || cell.col_span > 1 {
                spans.gather(&cell, cells);
                found.push(cell);
            }
        }
    }
    found
}

/// Which places of a grid are divided from the next ones.
struct Spans {
    height: usize,
    width: usize,
    /// By row and column.
    right: Vec<bool>,
    /// By column and row.
    below: Vec<bool>,
    taken: Vec<bool>,
}

/// For each interval between two of `along`, whether there is a rule at each of the inner places of `across`.
fn walls(across: &[f32], along: &[f32], rules: &[Rule], level: bool) -> Vec<bool> {
    let (count, intervals) = (across.len() - 1, along.len() - 1);
    let mut walls = vec![true; count * intervals];
    for (index, place) in across[1..count].iter().enumerate() {
        let near = |rule: &&Rule| rule.level == level && (rule.at - place).abs() <= NEAR;
        let rules: Vec<&Rule> = rules.iter().filter(near).collect();
        for (interval, ends) in along.windows(2).enumerate() {
            let middle = (ends[0] + ends[1]) / 2.0;
            walls[interval * count + index] =
                rules.iter().any(|rule| rule.from <= middle && middle <= rule.to);
        }
    }
    walls
}

impl Spans {
    fn at(&self, row: usize, column: usize) -> usize {
        row * self.width + column
    }

    fn is_open_below(&self, row: usize, column: usize) -> bool {
        !self.below[column * self.height + row]
    }

    /// A row whose words stand in columns although no rules are drawn between them has no cell over several columns, but where
    /// a text runs from one into the next.
    fn divide_by_gaps(&mut self, columns: &[f32], cells: &[Vec<Word>]) {
        for row in 0..self.height {
            let range = self.at(row, 0)..self.at(row, self.width - 1);
            let both = |at: &usize| !cells[*at].is_empty() && !cells[at + 1].is_empty();
            let runs_on = |at: &usize| {
                let edge = columns[at - range.start + 1];
                both(at) && crosses(&cells[*at], &cells[at + 1], edge)
            };
            if range.clone().any(|at| !self.right[at] && both(&at) && !runs_on(&at)) {
                let open: Vec<usize> = range.clone().filter(|at| !self.right[*at] && runs_on(at)).collect();
                self.right[range].fill(true);
                open.into_iter().for_each(|at| self.right[at] = false);
            }
        }
    }

    /// The cell that starts at a place.
    fn grow(&mut self, row: usize, column: usize, cells: &[Vec<Word>]) -> TableCell {
        let is_free = |at: usize| !self.taken[at];
        let mut end = column + 1;
        while end < self.width && !self.right[self.at(row, end - 1)] && is_free(self.at(row, end)) {
            end += 1;
        }
        let mut bottom = row + 1;
        while bottom < self.height && self.reaches(row, bottom, column..end, cells) {
            bottom += 1;
        }
        for taken in row..bottom {
            let range = self.at(taken, column)..self.at(taken, end - 1) + 1;
            self.taken[range].fill(true);
        }
        TableCell::new(row, column).spanning(bottom - row, end - column)
    }

    /// Whether the cell that starts in row `top` and ends above row `next` also covers that row.
    fn reaches(&self, top: usize, next: usize, columns: std::ops::Range<usize>, cells: &[Vec<Word>]) -> bool {
        let (first, last) = (self.at(next, columns.start), self.at(next, columns.end - 1));
        let is_bounded = (columns.start == 0 || self.right[first - 1]) && self.right[last];
        let is_whole = !self.right[first..last].contains(&true);
        let is_open = columns.clone().all(|column| self.is_open_below(next - 1, column));
        if !is_bounded || !is_whole || !is_open || self.taken[first..=last].contains(&true) {
            return false;
        }
        let above = (top..next)
            .flat_map(|row| &cells[self.at(row, columns.start)..self.at(row, columns.end - 1) + 1]);
        continues(above.flatten(), cells[first..=last].iter().flatten())
    }

    /// Moves the words of a merged cell to its first place.
    fn gather(&self, cell: &TableCell, cells: &mut [Vec<Word>]) {
        let first = self.at(cell.row, cell.column);
        let mut words = Vec::new();
        for row in cell.row..cell.row + cell.row_span {
            let start = self.at(row, cell.column);
            cells[start..start + cell.col_span].iter_mut().for_each(|part| words.append(part));
        }
        cells[first] = words;
    }
}

/// Whether a text runs over `edge`, so that what is left and right of it are one cell.
fn crosses(left: &[Word], right: &[Word], edge: f32) -> bool {
    let reaches_over = |word: &Word| word.area.left < edge - NEAR && edge + NEAR < word.area.right;
    left.iter().chain(right).any(reaches_over)
        || left.iter().any(|word| {
            let is_next = |other: &&Word| (other.baseline - word.baseline).abs() < 0.5 * word.style.size;
            right
                .iter()
                .filter(is_next)
                .any(|other| other.area.left - word.area.right < GAP * word.style.size)
        })
}

/// Whether the lines of `below` are no further from those of `above` than lines of one text.
fn continues<'a>(above: impl Iterator<Item = &'a Word>, below: impl Iterator<Item = &'a Word>) -> bool {
    let last = above.max_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let first = below.min_by(|one, other| one.baseline.total_cmp(&other.baseline));
    match (last, first) {
        (Some(last), Some(first)) => first.baseline - last.baseline <= LEADING * last.style.size,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    /// A word of letters that are 5 points wide.
    fn word(text: &str, left: f32, baseline: f32) -> Word {
        let right = left + 5.0 * text.len() as f32;
        let area = Area { left, top: baseline - 8.0, right, bottom: baseline + 2.0 };
        let style = Style { size: 10.0, ..Style::default() };
        Word { text: text.to_owned(), area, baseline, style, confidence: None }
    }

    fn rule(level: bool, at: f32, from: f32, to: f32) -> Rule {
        Rule { level, at, from, to }
    }

    /// A frame of three columns, 100 points wide, and three rows, 20 points high, with `rules` between them.
    fn spans(rules: &[Rule], words: &[(usize, Word)]) -> Vec<(usize, usize, usize, usize)> {
        let frame = [0.0, 60.0].map(|at| rule(true, at, 0.0, 300.0));
        let sides = [0.0, 300.0].map(|at| rule(false, at, 0.0, 60.0));
        let rules: Vec<Rule> = frame.iter().chain(&sides).chain(rules).copied().collect();
        let mut cells = vec![Vec::new(); 9];
        words.iter().for_each(|(place, word)| cells[*place].push(word.clone()));
        let found = find(&[0.0, 100.0, 200.0, 300.0], &[0.0, 20.0, 40.0, 60.0], &rules, &mut cells);
        found.iter().map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span)).collect()
    }

    #[test]
    fn cells_without_rules_between_them_are_one() {
        let rules = [
            rule(false, 100.0, 0.0, 60.0),
            rule(false, 200.0, 20.0, 60.0),
            rule(true, 20.0, 100.0, 300.0),
            rule(true, 40.0, 0.0, 300.0),
        ];
        let words =
            [(0, word("Part", 10.0, 24.0)), (1, word("Size", 190.0, 14.0)), (4, word("mm", 110.0, 34.0))];
        assert_eq!(spans(&rules, &words), [(0, 0, 2, 1), (0, 1, 1, 2)]);
    }

    #[test]
    fn words_in_columns_without_rules_stay_apart() {
        // Only the head has upright rules.
        let rules = [
            rule(false, 100.0, 0.0, 20.0),
            rule(false, 200.0, 0.0, 20.0),
            rule(true, 20.0, 0.0, 300.0),
            rule(true, 40.0, 0.0, 300.0),
        ];
        let row = |row: usize| {
            let baseline = 14.0 + 20.0 * row as f32;
            [0, 1].map(|column| (3 * row + column, word("word", 10.0 + 100.0 * column as f32, baseline)))
        };
        let words: Vec<(usize, Word)> = (0..3).flat_map(row).collect();
        assert!(spans(&rules, &words).is_empty());
    }

    #[test]
    fn text_that_runs_on_is_one_cell_beside_others() {
        let rules = [
            rule(false, 100.0, 0.0, 20.0),
            rule(false, 200.0, 0.0, 20.0),
            rule(true, 20.0, 0.0, 300.0),
            rule(true, 40.0, 0.0, 300.0),
        ];
        let words =
            [(3, word("word", 10.0, 34.0)), (4, word("running", 160.0, 34.0)), (5, word("on", 201.0, 34.0))];
        // The last row is empty.
        assert_eq!(spans(&rules, &words), [(1, 1, 1, 2), (2, 0, 1, 3)]);
    }
}
