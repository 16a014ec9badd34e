//! Tables without rules: pieces of lines that stand below each other.

use std::ops::Range;

use super::{columns::median, hyphens::Words, line::Line};

/// Two columns are at least this far apart, in sizes of the font.
const APART: f32 = 0.5;
/// A row that is further away does not belong to the table, in sizes of the font.
const FAR: f32 = 4.0;
/// Greatest distance, in font sizes, at which a line belongs to the cell above, if rows are further apart.
const CLOSE: f32 = 1.4;
/// How many of the cells have something in them, and how many letters, at most.
const FILLED: f32 = 0.5;
const LETTERS: f32 = 45.0;

/// A table and the rows that it is made of.
pub(crate) struct Found {
    pub(crate) rows: Range<usize>,
    pub(crate) cells: Vec<Vec<String>>,
}

/// The tables in `rows`, from top to bottom.
pub(crate) fn find(rows: &[Vec<Line>], known: &Words) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < rows.len() {
        match table_at(rows, at, known) {
            Some(table) => {
                at = table.rows.end;
                found.push(table);
            }
            None => at += 1,
        }
    }
    found
}

fn table_at(rows: &[Vec<Line>], start: usize, known: &Words) -> Option<Found> {
    if rows[start].len() < 2 {
        return None;
    }
    let mut columns: Vec<(f32, f32)> = Vec::new();
    let mut end = start;
    while end < rows.len() && (end == start || is_near(&rows[end - 1], &rows[end])) {
        match with_row(&columns, &rows[end]) {
            Some(wider) => columns = wider,
            None => break,
        }
        end += 1;
    }
    // A lone piece at the end is a heading or the beginning of a paragraph, unless it is close.
    while end > start && rows[end - 1].len() < 2 && !is_close(&rows[end.max(2) - 2], &rows[end - 1]) {
        end -= 1;
    }
    let rows_in = &rows[start..end];
    let full = rows_in.iter().filter(|row| row.len() >= 2).count();
    if columns.len() < 2 || full < if columns.len() > 2 { 2 } else { 3 } || full * 2 < rows_in.len() {
        return None;
    }
    let cells = fill(rows_in, &columns, known);
    let count = cells.len() * columns.len();
    let filled = cells.iter().flatten().filter(|cell| !cell.is_empty()).count();
    let letters: usize = cells.iter().flatten().map(|cell| cell.chars().count()).sum();
    let is_table = filled as f32 >= FILLED * count as f32 && (letters as f32) < LETTERS * filled as f32;
    is_table.then_some(Found { rows: start..end, cells })
}

fn is_near(above: &[Line], below: &[Line]) -> bool {
    let (Some(above), Some(below)) = (above.first(), below.first()) else { return false };
    let size = above.size.max(below.size);
    below.baseline - above.baseline < FAR * size && (above.size - below.size).abs() < 0.25 * size
}

fn is_close(above: &[Line], below: &[Line]) -> bool {
    let (Some(above), Some(below)) = (above.first(), below.first()) else { return false };
    below.baseline - above.baseline <= CLOSE * above.size.max(below.size) && above.bold == below.bold
}

/// `columns` widened by the pieces of `row`; none if one of them lies over two columns.
fn with_row(columns: &[(f32, f32)], row: &[Line]) -> Option<Vec<(f32, f32)>> {
    let mut wider = columns.to_vec();
    for piece in row {
        let (left, right) = (piece.area.left, piece.area.right);
        let apart = APART * piece.size;
        let overlaps = |column: &(f32, f32)| column.0 - apart < right && left < column.1 + apart;
        let mut over = (0..wider.len()).filter(|index| overlaps(&wider[*index]));
        match (over.next(), over.next()) {
            (Some(index), None) => wider[index] = (wider[index].0.min(left), wider[index].1.max(right)),
            (None, _) if row.len() >= 2 => wider.push((left, right)),
            _ => return None,
        }
    }
    wider.sort_by(|one, other| one.0.total_cmp(&other.0));
    let is_apart = wider.windows(2).all(|pair| pair[0].1 < pair[1].0);
    is_apart.then_some(wider)
}

fn fill(rows: &[Vec<Line>], columns: &[(f32, f32)], known: &Words) -> Vec<Vec<String>> {
    let size = median(rows.iter().flatten().map(|piece| piece.size));
    let pitch = |pair: &[Vec<Line>]| match (pair[0].first(), pair[1].first()) {
        (Some(above), Some(below)) => below.baseline - above.baseline,
        _ => 0.0,
    };
    let full = rows.windows(2).filter(|pair| pair[1].len() == columns.len()).map(pitch);
    let is_loose = median(full) > CLOSE * size;
    let mut cells: Vec<Vec<String>> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let continues = is_loose && index > 0 && row.len() < columns.len() && {
            let distance = pitch(&rows[index - 1..=index]);
            distance <= CLOSE * size
        };
        if !continues || cells.is_empty() {
            cells.push(vec![String::new(); columns.len()]);
        }
        let Some(last) = cells.last_mut() else { continue };
        for piece in row {
            let middle = (piece.area.left + piece.area.right) / 2.0;
            let column =
                columns.iter().position(|column| column.0 - 1.0 <= middle && middle <= column.1 + 1.0);
            known.append(&mut last[column.unwrap_or(0)], &piece.text());
        }
    }
    cells
}
