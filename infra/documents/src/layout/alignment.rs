//! Columns of a table without rules: the white strips that its rows share.

use std::ops::Range;

use signalbox_pdf::Word;

use super::{
    justified,
    line::{Line, MARKER_GAP},
    marker,
};

/// Words of one cell are closer to each other than this, in sizes of the font.
const SPLIT: f32 = 0.4;
/// The usual gap between two columns of text is at least this wide, in sizes of the font: in a few rows, spaces between words
/// may stand below each other, too. Numbers may be closer.
const APART: f32 = 1.0;
/// Width that a few rows leave, at least, of the strip between two columns.
const NARROWED: f32 = 0.1;
/// How many of the rows may have cells that lie over two columns.
const IRREGULAR: f32 = 0.12;
/// How many of them have to be regular for columns to mean something.
const REGULAR: f32 = 0.7;

/// One in so many rows is hardly any.
const FEW: usize = 8;

/// From left to right.
pub(super) type Column = (f32, f32);

/// Words of a row without a wide gap between them.
#[derive(Debug, Clone)]
pub(super) struct Fragment {
    /// In the words of its row.
    pub(super) words: Range<usize>,
    pub(super) left: f32,
    pub(super) right: f32,
    pub(super) is_numeric: bool,
}

impl Fragment {
    /// The columns that it lies over; none if it lies between two of them.
    fn over(&self, columns: &[Column]) -> Range<usize> {
        let from = columns.partition_point(|column| column.1 <= self.left);
        let to = columns.partition_point(|column| column.0 < self.right);
        from..to.max(from)
    }

    /// The column that it is put into, and whether it lies over others as well.
    pub(super) fn place(&self, columns: &[Column]) -> (usize, bool) {
        let over = self.over(columns);
        if over.is_empty() {
            let distance = |column: &Column| (column.0 - self.right).max(self.left - column.1);
            let nearest = (0..columns.len())
                .min_by(|one, other| distance(&columns[*one]).total_cmp(&distance(&columns[*other])));
            return (nearest.unwrap_or(0), false);
        }
        let share = |index: &usize| {
            let (left, right) = columns[*index];
            let both = right.min(self.right) - left.max(self.left);
            both / (right - left).min(self.right - self.left).max(0.1)
        };
        let first = over.clone().find(|index| share(index) >= 0.3).unwrap_or(over.start);
        (first, over.len() > 1)
    }
}

/// All words that stand on one line, from left to right.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) words: Vec<&'a Word>,
    pub(super) fragments: Vec<Fragment>,
    /// The parts between gaps that are too wide for a space.
    pub(super) pieces: Vec<Column>,
    /// Of the part with most letters.
    pub(super) baseline: f32,
    pub(super) size: f32,
    pub(super) bold: bool,
    pub(super) mono: bool,
    /// Whether it is a line of a listing, which has letters of one width in a document that has others.
    pub(super) is_listing: bool,
    /// Whether it is a title between the parts of a document.
    pub(super) is_title: bool,
}

impl<'a> Row<'a> {
    pub(super) fn of(lines: impl Iterator<Item = &'a Line> + Clone) -> Self {
        let widest = lines.clone().max_by_key(|line| line.letters());
        let (size, baseline) = widest.map_or((1.0, 0.0), |line| (line.size.max(1.0), line.baseline));
        let (bold, mono) = (lines.clone().all(|line| line.bold), lines.clone().all(|line| line.mono));
        let mut words: Vec<&Word> = lines.flat_map(|line| &line.words).collect();
        words.sort_by(|one, other| one.area.left.total_cmp(&other.area.left));
        let fragments = if justified::is_line(words.iter().copied(), size) {
            let (left, right) = (words[0].area.left, words[words.len() - 1].area.right);
            vec![Fragment { words: 0..words.len(), left, right, is_numeric: false }]
        } else {
            fragments(&words, size)
        };
        let pieces = pieces(&fragments, size);
        Self { words, fragments, pieces, baseline, size, bold, mono, is_listing: false, is_title: false }
    }

    /// Whether wide gaps divide it, as they divide the row of a table.
    pub(super) fn is_divided(&self) -> bool {
        self.pieces.len() > 1
    }

    /// From the first word to the last.
    pub(super) fn extent(&self) -> Column {
        let left = self.pieces.first().map_or(0.0, |piece| piece.0);
        (left, self.pieces.last().map_or(left, |piece| piece.1))
    }

    pub(super) fn letters(&self) -> usize {
        self.words.iter().map(|word| word.text.chars().count()).sum()
    }

    /// How many pieces of this row lie over two or more of `other`, and the other way round.
    pub(super) fn conflicts(&self, other: &Self) -> usize {
        let over_many = |one: &Self, other: &Self| {
            one.pieces.iter().filter(|piece| count_under(piece, &other.pieces) > 1).count()
        };
        over_many(self, other) + over_many(other, self)
    }

    /// Over how many pieces of this row all of `other` lies.
    pub(super) fn count_under(&self, other: &Self) -> usize {
        count_under(&other.extent(), &self.pieces)
    }

    fn is_irregular(&self, columns: &[Column]) -> bool {
        self.fragments.iter().any(|fragment| fragment.over(columns).len() > 1)
    }
}

fn count_under(piece: &Column, others: &[Column]) -> usize {
    others.iter().filter(|other| other.0 < piece.1 && piece.0 < other.1).count()
}

fn fragments(words: &[&Word], size: f32) -> Vec<Fragment> {
    let mut fragments: Vec<Fragment> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let (left, right) = (word.area.left, word.area.right);
        match fragments.last_mut() {
            Some(last) if left - last.right < SPLIT * size || marks(words, last, left, size) => {
                last.words.end = index + 1;
                last.right = last.right.max(right);
            }
            _ => fragments.push(Fragment { words: index..index + 1, left, right, is_numeric: false }),
        }
    }
    for fragment in &mut fragments {
        fragment.is_numeric = is_numeric(&words[fragment.words.clone()]);
    }
    fragments
}

/// Whether `fragment` is the marker of an item whose text starts at `left`. A dash within a row is an empty cell.
fn marks(words: &[&Word], fragment: &Fragment, left: f32, size: f32) -> bool {
    let word = &words[fragment.words.start].text;
    let is_marker = match marker::marker(word) {
        Some(marker::Marker::Bullet) => !marker::is_dash(word) || fragment.words.start == 0,
        Some(marker::Marker::Number(_)) => fragment.words.start == 0,
        None => false,
    };
    is_marker && fragment.words.len() == 1 && left - fragment.right < MARKER_GAP * size
}

fn pieces(fragments: &[Fragment], size: f32) -> Vec<Column> {
    let mut pieces: Vec<Column> = Vec::new();
    let mut before: Option<&Fragment> = None;
    for fragment in fragments {
        let is_wide = before.is_none_or(|before| {
            fragment.left - before.right >= APART * size || (before.is_numeric && fragment.is_numeric)
        });
        match pieces.last_mut() {
            Some(last) if !is_wide => last.1 = last.1.max(fragment.right),
            _ => pieces.push((fragment.left, fragment.right)),
        }
        before = Some(fragment);
    }
    pieces
}

/// Whether `words` are a number, perhaps with a unit or a mark, or a sign that there is none.
fn is_numeric(words: &[&Word]) -> bool {
    let (mut digits, mut letters) = (0, 0);
    for letter in words.iter().flat_map(|word| word.text.chars()) {
        if letter.is_numeric() {
            digits += 1;
        } else if letter.is_alphabetic() {
            letters += 1;
        }
    }
    digits > letters || (digits + letters == 0 && words.len() == 1)
}

/// The columns of `rows`, from left to right, divided by strips that only a few rows cross.
pub(super) fn columns(rows: &[Row<'_>]) -> Vec<Column> {
    let divided: Vec<&Row<'_>> = rows.iter().filter(|row| row.is_divided()).collect();
    let size = median(divided.iter().map(|row| row.size)).max(1.0);
    let count = divided.len();
    let allowed = if count < 4 { 0 } else { ((IRREGULAR * count as f32) as usize).max(1) };
    let rough = covered(&divided, allowed, SPLIT * size);
    // Cells over two columns are left out, so that a column with few cells is seen as well.
    let regular: Vec<&Row<'_>> = divided.into_iter().filter(|row| !row.is_irregular(&rough)).collect();
    if (regular.len() as f32) < REGULAR * count as f32 {
        return Vec::new();
    }
    let mut columns = covered(&regular, 0, NARROWED * size);
    for index in (1..columns.len()).rev() {
        let (from, to) = (columns[index - 1].1, columns[index].0);
        // A strip of all rows but a few, such as a head that is wider than its numbers, is one, however narrow they make it.
        let is_known = rough.windows(2).any(|pair| pair[0].1 <= from && to <= pair[1].0);
        if to - from < SPLIT * size && !is_known {
            let (_, right) = columns.remove(index);
            columns[index - 1].1 = right;
        }
    }
    for index in (1..columns.len()).rev() {
        let edge = (columns[index - 1].1 + columns[index].0) / 2.0;
        if !is_between(&regular, edge, size) {
            let (_, right) = columns.remove(index);
            columns[index - 1].1 = right;
        }
    }
    for index in (1..columns.len()).rev() {
        if columns.len() > 2 && are_one(&regular, &columns[index - 1], &columns[index]) {
            let (_, right) = columns.remove(index);
            columns[index - 1].1 = right;
        }
    }
    columns
}

/// Whether two columns have the cells of one: no row has both, and one of them has hardly any, such as a head that does not
/// stand above its numbers.
fn are_one(rows: &[&Row<'_>], one: &Column, other: &Column) -> bool {
    let has = |row: &Row<'_>, column: &Column| {
        row.fragments.iter().any(|fragment| fragment.left < column.1 && column.0 < fragment.right)
    };
    let (mut left, mut right) = (0, 0);
    for row in rows {
        match (has(row, one), has(row, other)) {
            (true, true) => return false,
            (true, false) => left += 1,
            (false, true) => right += 1,
            (false, false) => {}
        }
    }
    left.min(right) <= (rows.len() / FEW).max(1)
}

/// Where more than `allowed` rows have words. Strips without, narrower than `least`, do not count.
fn covered(rows: &[&Row<'_>], allowed: usize, least: f32) -> Vec<Column> {
    let fragments = rows.iter().flat_map(|row| &row.fragments);
    let mut edges: Vec<(f32, bool)> =
        fragments.flat_map(|fragment| [(fragment.left, true), (fragment.right, false)]).collect();
    edges.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    let mut columns: Vec<Column> = Vec::new();
    let mut count = 0_usize;
    for (at, starts) in edges {
        if starts {
            count += 1;
            let is_near = columns.last().is_some_and(|last| at - last.1 < least);
            if count == allowed + 1 && !is_near {
                columns.push((at, at));
            }
        } else {
            if let Some(last) = columns.last_mut().filter(|_| count > allowed) {
                last.1 = last.1.max(at);
            }
            count = count.saturating_sub(1);
        }
    }
    columns
}

/// Whether `edge` lies between two columns, and not between the words of one.
fn is_between(rows: &[&Row<'_>], edge: f32, size: f32) -> bool {
    let mut gaps = Vec::with_capacity(rows.len());
    let mut numbers = 0;
    for row in rows {
        let after = row.fragments.partition_point(|fragment| fragment.left < edge);
        let (Some(before), Some(after)) = (after.checked_sub(1), row.fragments.get(after)) else { continue };
        let before = &row.fragments[before];
        gaps.push(after.left - before.right);
        numbers += usize::from(before.is_numeric && after.is_numeric);
    }
    if gaps.is_empty() || 2 * numbers > gaps.len() {
        return !gaps.is_empty();
    }
    // A few rows of justified text have wide gaps at the same place by chance.
    let least = gaps.iter().copied().fold(f32::MAX, f32::min);
    let usual = if gaps.len() < 4 { least } else { median(gaps.into_iter()) };
    usual >= APART * size
}

pub(crate) fn median(values: impl Iterator<Item = f32>) -> f32 {
    let mut values: Vec<f32> = values.collect();
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}
