//! Tables between rules.

use signalbox_pdf::{Area, Rule, Word};

use super::{
    hyphens::Words,
    line,
    spans::{self, NEAR},
};
use crate::table::Table;

/// Rules that are looked at; a drawing has more.
const MAX_RULES: usize = 1500;
/// Cells of a table at most.
const MAX_CELLS: usize = 20_000;
/// A chart has rules, too, but hardly a word between them.
const FILLED: f32 = 0.3;

/// A table, and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) area: Area,
    pub(crate) content: Table,
}

/// Finds the tables between `rules` and takes their words out of `words`.
pub(crate) fn take(rules: &[Rule], words: &mut Vec<Word>, known: &Words) -> Vec<Found> {
    let mut found = Vec::new();
    for grid in grids(rules) {
        let (inside, outside) = std::mem::take(words).into_iter().partition(|word| grid.holds(word));
        match grid.fill(inside, known) {
            Ok(table) => {
                *words = outside;
                found.push(table);
            }
            Err(inside) => {
                *words = outside;
                words.extend(inside);
            }
        }
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
}

impl Grid {
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

    /// The table, unless hardly any cell has words; then they are given back.
    fn fill(&self, words: Vec<Word>, known: &Words) -> Result<Found, Vec<Word>> {
        let (height, width) = (self.rows.len() - 1, self.columns.len() - 1);
        let mut cells: Vec<Vec<Word>> = vec![Vec::new(); height * width];
        for word in words {
            let (x, y) = middle(&word);
            cells[slot(&self.rows, y) * width + slot(&self.columns, x)].push(word);
        }
        let filled = cells.iter().filter(|cell| !cell.is_empty()).count();
        if filled < 2 || (filled as f32) < FILLED * cells.len() as f32 {
            return Err(cells.into_iter().flatten().collect());
        }
        let merged = spans::find(&self.columns, &self.rows, &self.rules, &mut cells);
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
        let (rows, columns) = (places(&level), places(&upright));
        let cells = rows.len().saturating_sub(1) * columns.len().saturating_sub(1);
        if (2..=MAX_CELLS).contains(&cells) {
            let rules = level.into_iter().chain(upright).copied().collect();
            found.push(Grid { columns, rows, rules });
        }
    }
    found
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
