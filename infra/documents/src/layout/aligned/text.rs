//! Rows that are text: titles, lines of listings, justified lines of a paragraph.

use std::ops::Range;

use super::super::{alignment::Row, flow::Usual};

/// How many letters of a line of a listing are of one width: it may have signs of other fonts.
const LISTING: f32 = 0.8;
/// Rows that may be justified lines of text, how near the next line is, by how much its size may differ, and how much of their
/// width one above takes.
const JUSTIFIED: usize = 3;
const CLOSE: f32 = 1.4;
const SAME: f32 = 0.05;
const FLUSH: f32 = 0.9;

/// `row` in a document whose `usual` look is known.
pub(super) fn known(mut row: Row<'_>, usual: Usual) -> Row<'_> {
    let of_one_width = row.words.iter().filter(|word| word.style.mono);
    let mono: usize = of_one_width.map(|word| word.text.chars().count()).sum();
    row.is_listing = !usual.mono && mono as f32 >= LISTING * row.letters() as f32;
    row.is_title = row.bold && !usual.bold && usual.is_large(row.size);
    row
}

/// Whether a listing of several lines starts or ends at `at`.
pub(super) fn is_edge_of_listing(rows: &[Row<'_>], at: usize) -> bool {
    let is_listing = |at: usize| rows.get(at).is_some_and(|row| row.is_listing);
    match (is_listing(at - 1), is_listing(at)) {
        (true, false) => at > 1 && is_listing(at - 2),
        (false, true) => is_listing(at + 1),
        _ => false,
    }
}

/// Whether `run` has few rows and a line of text without gaps above or below: they are justified lines of one paragraph.
pub(super) fn is_justified(rows: &[Row<'_>], run: &Range<usize>) -> bool {
    let above = run.start.checked_sub(1).and_then(|at| rows.get(at));
    let (first, last) = (&rows[run.start], &rows[run.end - 1]);
    let is_full = |line: &&Row<'_>| length(line) >= FLUSH * length(first);
    run.len() <= JUSTIFIED
        && (above.filter(is_full).is_some_and(|line| is_one_text(first, line))
            || rows.get(run.end).is_some_and(|line| is_one_text(last, line) && last.count_under(line) > 1))
}

fn length(row: &Row<'_>) -> f32 {
    let (left, right) = row.extent();
    right - left
}

/// Whether `line`, which has no gaps, is a line of the paragraph whose justified line is `row`.
fn is_one_text(row: &Row<'_>, line: &Row<'_>) -> bool {
    let size = row.size.max(1.0);
    !line.is_divided()
        && (line.baseline - row.baseline).abs() <= CLOSE * size
        && (line.size - row.size).abs() < SAME * size
        && line.bold == row.bold
        && (line.extent().0 - row.extent().0).abs() < size
}
