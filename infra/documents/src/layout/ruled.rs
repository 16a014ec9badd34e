//! Tables between rules.

use signalbox_pdf::{Area, Rule, Word};

use super::{
    hyphens::Words,
    line,
    parted::{self, LEVEL, baselines},
    spans::{self, NEAR},
};
use crate::table::Table;

/// Rules that are looked at; a drawing has more.
const MAX_RULES: usize = 1500;
/// Cells of a table at most.
const MAX_CELLS: usize = 20_000;
/// A chart has rules, too, but hardly a word between them.
const FILLED: f32 = 0.3;

/// Lines beside a grid that continue its rows at least; part of those beside it and of those in it that do so.
const BESIDE: usize = 3;
const BESIDE_PART: f32 = 0.8;
const INSIDE_PART: f32 = 0.6;
/// Words of a line beside a grid at most, on average: running text in another column has more.
const BESIDE_WORDS: usize = 6;
/// Dots of a leader, which leads from text to a cell.
const LEADER: usize = 3;
/// Level rules that end together, at least, where a table has no rule at its side, and how far that is from the next column.
const OPEN_RULES: usize = 3;
const OPEN: f32 = 12.0;
/// Lines that run over the side of a grid for it to be none, and how far words of one text are apart, in sizes of the font.
const TORN: usize = 2;
const SPACE: f32 = 0.5;

/// A table, and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) area: Area,
    pub(crate) content: Table,
}

/// Finds the tables between `rules` and takes their words out of `words`.
pub(crate) fn take(rules: &[Rule], words: &mut Vec<Word>, known: &Words) -> Vec<Found> {
    let mut found = Vec::new();
    let grids: Vec<Grid> =
        grids(rules).into_iter().filter_map(|grid| grid.without_torn_sides(words)).collect();
    let free: Vec<Word> =
        words.iter().filter(|word| !grids.iter().any(|grid| grid.holds(word))).cloned().collect();
    for grid in grids {
        let table = grid.take(words, &free, known).or_else(|| {
            let closed = grid.without_open_sides()?;
            let free: Vec<Word> = words.iter().filter(|word| !closed.holds(word)).cloned().collect();
            closed.take(words, &free, known)
        });
        found.extend(table);
    }
    found
}

/// Where the rules of a table lie.
struct Grid {
    /// Of the upright ones, from the left.
    columns: Vec<f32>,
    /// Of the level ones, from the top.
    rows: Vec<f32>,
    rules: Vec<Rule>,
    /// Whether there is no rule at the left and at the right.
    is_open: (bool, bool),
}

impl Grid {
    /// The table, and its words out of `words`; `free` are those of no grid.
    fn take(&self, words: &mut Vec<Word>, free: &[Word], known: &Words) -> Option<Found> {
        let (inside, outside) =
            std::mem::take(words).into_iter().partition::<Vec<Word>, _>(|word| self.holds(word));
        *words = outside;
        let filled = if self.is_part_of_rows(&inside, free) { Err(inside) } else { self.fill(inside, known) };
        match filled {
            Ok(table) => Some(table),
            Err(inside) => {
                words.extend(inside);
                None
            }
        }
    }

    /// The part that has a rule at each side; none if it is the whole, or nothing is left.
    fn without_open_sides(&self) -> Option<Self> {
        let (left, right) = self.is_open;
        let (from, to) = (usize::from(left), self.columns.len() - usize::from(right));
        let columns = self.columns.get(from..to).filter(|columns| columns.len() > 1)?.to_vec();
        let (rows, rules) = (self.rows.clone(), self.rules.clone());
        (left || right).then_some(Self { columns, rows, rules, is_open: (false, false) })
    }

    /// Without the columns at its sides that no rule ends where lines of text run in from outside: boxes to tick in a text have edges,
    /// too. None if no column is left.
    fn without_torn_sides(mut self, words: &[Word]) -> Option<Self> {
        let area = self.area();
        let mut near: Vec<&Word> = words
            .iter()
            .filter(|word| (area.top..=area.bottom).contains(&middle(word).1) && !word.style.turned)
            .collect();
        near.sort_by(|one, other| {
            one.baseline.total_cmp(&other.baseline).then(one.area.left.total_cmp(&other.area.left))
        });
        let lines: Vec<Vec<&Word>> = near
            .chunk_by(|one, other| other.baseline - one.baseline <= LEVEL)
            .map(|line| {
                let mut line = line.to_vec();
                line.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
                line
            })
            .collect();
        let is_torn = |at: f32| {
            let runs_over = |line: &&Vec<&Word>| {
                let y = line.first().map_or(0.0, |word| middle(word).1);
                let has_rule = |rule: &Rule| {
                    !rule.level && (rule.at - at).abs() <= NEAR && rule.from <= y && y <= rule.to
                };
                let after = line.partition_point(|word| word.area.left < at);
                let (Some(before), Some(after)) = (after.checked_sub(1), line.get(after)) else {
                    return false;
                };
                let gap = after.area.left - line[before].area.right;
                gap < SPACE * after.style.size && !self.rules.iter().any(has_rule)
            };
            lines.iter().filter(runs_over).count() >= TORN
        };
        let from = (0..self.columns.len()).find(|at| !is_torn(self.columns[*at]))?;
        let to = (from..self.columns.len()).rev().find(|at| !is_torn(self.columns[*at]))?;
        self.is_open = (self.is_open.0 && from == 0, self.is_open.1 && to + 1 == self.columns.len());
        self.columns = self.columns[from..=to].to_vec();
        (to > from).then_some(self)
    }

    /// Whether more lines stand beside each other in every cell of a row than there are rows: it has rows without rules between them.
    fn has_rows_within(&self, cells: &[Vec<Word>]) -> bool {
        let mut within = 0;
        for row in cells.chunks(self.columns.len() - 1) {
            let filled = row.iter().filter(|cell| !cell.is_empty());
            let lines: Vec<Vec<f32>> = filled.map(|cell| baselines(cell.iter())).collect();
            let Some((first, others)) = lines.split_first().filter(|(_, others)| !others.is_empty()) else {
                continue;
            };
            let stands_in = |line: f32, cell: &[f32]| cell.iter().any(|other| (line - other).abs() <= LEVEL);
            let is_common = |line: &&f32| others.iter().all(|cell| stands_in(**line, cell));
            within += first.iter().filter(is_common).count().saturating_sub(1);
        }
        within >= self.rows.len() - 1
    }

    fn area(&self) -> Area {
        let edge =
            |places: &[f32]| (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(0.0));
        let ((left, right), (top, bottom)) = (edge(&self.columns), edge(&self.rows));
        Area { left, top, right, bottom }
    }

    fn holds(&self, word: &Word) -> bool {
        let (x, y) = middle(word);
        let area = self.area();
        area.left <= x && x <= area.right && area.top <= y && y <= area.bottom
    }

    /// Whether the rows continue beside the grid, as around a column with a frame: the table is wider than its rules.
    fn is_part_of_rows(&self, inside: &[Word], free: &[Word]) -> bool {
        let area = self.area();
        let beside: Vec<&Word> =
            free.iter().filter(|word| (area.top..=area.bottom).contains(&middle(word).1)).collect();
        let (inner, outer) = (baselines(inside.iter()), baselines(beside.iter().copied()));
        let is_common = |line: &&f32| inner.iter().any(|other| (*line - other).abs() <= LEVEL);
        let common = outer.iter().filter(is_common).count();
        let is_leader =
            |word: &&&Word| word.text.len() >= LEADER && word.text.bytes().all(|byte| byte == b'.');
        let leaders = beside.iter().filter(is_leader).count();
        common >= BESIDE
            && common as f32 >= BESIDE_PART * outer.len() as f32
            && common as f32 >= INSIDE_PART * inner.len() as f32
            && (beside.len() <= BESIDE_WORDS * outer.len() || 2 * leaders >= common)
    }

    /// The table, unless it has one column or hardly any cell has words; then they are given back.
    fn fill(&self, words: Vec<Word>, known: &Words) -> Result<Found, Vec<Word>> {
        let (height, width) = (self.rows.len() - 1, self.columns.len() - 1);
        let mut cells: Vec<Vec<Word>> = vec![Vec::new(); height * width];
        for word in words {
            let (x, y) = middle(&word);
            // A word that is too long for its column reaches into the next one.
            let x = x.min(word.area.left + word.style.size);
            cells[slot(&self.rows, y) * width + slot(&self.columns, x)].push(word);
        }
        let has_sides = self.is_open == (false, false);
        let filled = cells.iter().filter(|cell| !cell.is_empty()).count();
        let is_used = |column: &usize| cells.iter().skip(*column).step_by(width).any(|cell| !cell.is_empty());
        let is_one_column = (0..width).filter(is_used).count() < 2;
        let is_no_grid = filled < 2 || is_one_column || (filled as f32) < FILLED * cells.len() as f32;
        if is_no_grid || (!has_sides && self.has_rows_within(&cells)) {
            return Err(cells.into_iter().flatten().collect());
        }
        let (mut rows, mut rules) = (self.rows.clone(), self.rules.clone());
        parted::part(&self.columns, &mut rows, &mut rules, &mut cells);
        let merged = spans::find(&self.columns, &rows, &rules, &mut cells);
        let texts: Vec<String> = cells.into_iter().map(|cell| text_of(cell, known)).collect();
        let rows = texts.chunks(width).map(<[String]>::to_vec).collect();
        Ok(Found { area: self.area(), content: Table::of_grid(rows, merged) })
    }
}

fn middle(word: &Word) -> (f32, f32) {
    ((word.area.left + word.area.right) / 2.0, (word.area.top + word.area.bottom) / 2.0)
}

/// Between which two of `places` `at` lies.
fn slot(places: &[f32], at: f32) -> usize {
    places[1..places.len() - 1].iter().take_while(|place| **place < at).count()
}

pub(crate) fn text_of(words: Vec<Word>, known: &Words) -> String {
    let mut text = String::new();
    for line in line::join_level(line::gather(words), f32::INFINITY) {
        known.append(&mut text, &line.text());
    }
    text
}

/// Rules that touch each other, as grids with at least two cells.
fn grids(rules: &[Rule]) -> Vec<Grid> {
    let rules = merged(rules);
    if rules.len() < 4 || rules.len() > MAX_RULES {
        return Vec::new();
    }
    let mut group: Vec<usize> = (0..rules.len()).collect();
    for one in 0..rules.len() {
        for other in 0..one {
            if touch(&rules[one], &rules[other]) {
                let (from, to) = (root(&group, one), root(&group, other));
                group[from] = to;
            }
        }
    }
    let mut found = Vec::new();
    for index in (0..rules.len()).filter(|index| root(&group, *index) == *index) {
        let members =
            (0..rules.len()).filter(|other| root(&group, *other) == index).map(|other| &rules[other]);
        let (level, upright): (Vec<&Rule>, Vec<&Rule>) = members.partition(|rule| rule.level);
        let (rows, mut columns) = (places(&level), places(&upright));
        let is_open = add_open_sides(&level, &mut columns);
        let cells = rows.len().saturating_sub(1) * columns.len().saturating_sub(1);
        if (2..=MAX_CELLS).contains(&cells) {
            let rules = level.into_iter().chain(upright).copied().collect();
            found.push(Grid { columns, rows, rules, is_open });
        }
    }
    found
}

/// Adds the sides of a table that has rules between its columns only: level ones end there. Returns whether there is one at the left
/// and at the right.
fn add_open_sides(level: &[&Rule], columns: &mut Vec<f32>) -> (bool, bool) {
    let (Some(first), Some(last)) = (columns.first().copied(), columns.last().copied()) else {
        return (false, false);
    };
    let shared = |ends: Vec<f32>| {
        let together = |end: &f32| ends.iter().filter(|other| (*end - **other).abs() <= NEAR).count();
        let enough = OPEN_RULES.max(level.len() / 2);
        ends.iter().copied().find(|end| together(end) >= enough)
    };
    let left = shared(level.iter().map(|rule| rule.from).collect());
    let right = shared(level.iter().map(|rule| rule.to).collect());
    let left = left.filter(|left| first - left >= OPEN);
    let right = right.filter(|right| right - last >= OPEN);
    columns.splice(..0, left);
    columns.extend(right);
    (left.is_some(), right.is_some())
}

fn root(group: &[usize], mut index: usize) -> usize {
    while group[index] != index {
        index = group[index];
    }
    index
}

/// Pieces of one straight line as one rule.
fn merged(rules: &[Rule]) -> Vec<Rule> {
    let mut sorted = rules.to_vec();
    let key = |rule: &Rule| (rule.level, (rule.at / 1.5).round() as i64);
    sorted.sort_by(|one, other| key(one).cmp(&key(other)).then(one.from.total_cmp(&other.from)));
    let mut merged: Vec<Rule> = Vec::new();
    for rule in sorted {
        match merged.last_mut() {
            Some(last) if key(last) == key(&rule) && rule.from <= last.to + NEAR => {
                last.to = last.to.max(rule.to)
            }
            _ => merged.push(rule),
        }
    }
    merged
}

fn touch(one: &Rule, other: &Rule) -> bool {
    if one.level == other.level {
        return false;
    }
    let within = |at: f32, rule: &Rule| rule.from - NEAR <= at && at <= rule.to + NEAR;
    within(one.at, other) && within(other.at, one)
}

fn places(rules: &[&Rule]) -> Vec<f32> {
    let mut places: Vec<f32> = rules.iter().map(|rule| rule.at).collect();
    places.sort_by(f32::total_cmp);
    places.dedup_by(|one, other| (*one - *other).abs() <= NEAR);
    places
}

#[cfg(test)]
mod tests {
    use super::{super::parted::tests::word, *};

    /// A grid of two columns from 200 on and of four rows, 20 points high.
    fn grid() -> Vec<Rule> {
        let level =
            (0..5).map(|row| Rule { level: true, at: 100.0 + 20.0 * row as f32, from: 200.0, to: 400.0 });
        let upright = (0..3).map(|column| Rule {
            level: false,
            at: 200.0 + 100.0 * column as f32,
            from: 100.0,
            to: 180.0,
        });
        level.chain(upright).collect()
    }

    fn rows(lefts: &[f32]) -> Vec<Word> {
        let row = |row: usize| lefts.iter().map(move |left| word("word", *left, 114.0 + 20.0 * row as f32));
        (0..4).flat_map(row).collect()
    }

    #[test]
    fn frame_around_some_columns_is_no_table() {
        for (lefts, is_table) in
            [(&[210.0, 310.0][..], true), (&[110.0, 210.0, 310.0][..], false), (&[210.0][..], false)]
        {
            let mut words = rows(lefts);
            let count = words.len();
            let found = take(&grid(), &mut words, &Words::default());
            assert_eq!((found.len(), words.len()), if is_table { (1, 0) } else { (0, count) }, "{lefts:?}");
        }
    }

    #[test]
    fn level_rules_end_at_the_sides_of_a_table() {
        let rules: Vec<Rule> =
            grid().into_iter().filter(|rule| rule.level || (250.0..350.0).contains(&rule.at)).collect();
        let mut words = rows(&[210.0, 310.0]);
        // As wide as its column, and more.
        words[0] = word("a-word-of-many-letters-that-overlaps-others", 210.0, 114.0);
        let found = take(&rules, &mut words, &Words::default());
        let tables: Vec<_> = found.iter().map(|found| &found.content.rows).collect();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0][0], ["a-word-of-many-letters-that-overlaps-others", "word"]);
        // A rule between columns of text touches one above and one below.
        let frame = |rule: &Rule| !rule.level || rule.at == 100.0 || rule.at == 180.0;
        let mut rules: Vec<Rule> = rules.into_iter().filter(frame).collect();
        rules.push(Rule { level: true, at: 700.0, from: 200.0, to: 400.0 });
        assert!(take(&rules, &mut rows(&[210.0, 310.0]), &Words::default()).is_empty());
    }

    #[test]
    fn lines_between_rules_at_the_head_and_the_foot_are_rows_of_their_own() {
        let level = [100.0, 120.0, 220.0, 240.0].map(|at| Rule { level: true, at, from: 200.0, to: 400.0 });
        let upright = Rule { level: false, at: 300.0, from: 100.0, to: 240.0 };
        let rules: Vec<Rule> = level.into_iter().chain([upright]).collect();
        let row = |at: f32| [word("word", 210.0, at), word("12", 310.0, at)];
        let mut words: Vec<Word> =
            [114.0, 134.0, 154.0, 174.0, 194.0, 234.0].into_iter().flat_map(row).collect();
        assert!(take(&rules, &mut words, &Words::default()).is_empty());
        assert_eq!(words.len(), 12);
    }

    #[test]
    fn text_beside_a_table_does_not_undo_it() {
        let mut words = rows(&[210.0, 310.0]);
        // Lines of a column of text, at other places than the rows.
        let text = (0..6).flat_map(|line| {
            (0..5).map(move |at| word("text", 30.0 + 25.0 * at as f32, 108.0 + 13.0 * line as f32))
        });
        words.extend(text);
        assert_eq!(take(&grid(), &mut words, &Words::default()).len(), 1);
        assert_eq!(words.len(), 30);
    }

    #[test]
    fn box_to_tick_in_a_text_is_no_side_of_a_table() {
        let mut rules = grid();
        // Only a box is left of it.
        rules.iter_mut().filter(|rule| !rule.level && rule.at == 200.0).for_each(|side| side.to = 108.0);
        let line = |row: usize| {
            let baseline = 114.0 + 20.0 * row as f32;
            [("some", 155.0), ("text", 179.0), ("runs", 203.0), ("12", 310.0)]
                .map(|(text, left)| word(text, left, baseline))
        };
        let mut words: Vec<Word> = (0..4).flat_map(line).collect();
        assert!(take(&rules, &mut words, &Words::default()).is_empty());
        assert_eq!(words.len(), 16);
    }

    #[test]
    fn frames_to_which_leaders_lead_belong_to_the_lines_before() {
        let line = |row: usize| {
            let baseline = 114.0 + 20.0 * row as f32;
            let text = (0..8).map(move |at| word("all", 20.0 * at as f32, baseline));
            text.chain([
                word("....", 170.0, baseline),
                word("14", 210.0, baseline),
                word("5", 310.0, baseline),
            ])
        };
        let mut words: Vec<Word> = (0..4).flat_map(line).collect();
        assert!(take(&grid(), &mut words, &Words::default()).is_empty());
        assert_eq!(words.len(), 44);
    }
}
