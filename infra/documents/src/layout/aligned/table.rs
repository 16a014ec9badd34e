//! A table while it is found: its columns, and what stands in them line by line.

use std::ops::Range;

use signalbox_pdf::Word;

use super::{
    super::{
        alignment::{Column, Row, median},
        hyphens::Words,
        line::Line,
    },
    SPANNING_LETTERS, is_near,
};

/// How many of the cells have something in them, and how many letters, at most.
const FILLED: f32 = 0.4;
const LETTERS: f32 = 45.0;
/// Greatest distance, in sizes of the font, at which a line belongs to the cell above, if rows are further apart.
const CLOSE: f32 = 1.4;
/// By how much rows are further apart than the lines of a cell.
const LOOSE: f32 = 1.15;
/// Rows of a head above the first one that is divided, and lines of a head.
const HEAD: usize = 2;
const HEAD_LINES: usize = 8;
/// Divided rows of a table that may lie across columns of text.
const SURE: usize = 4;
/// How many rows of a listing are its lines.
const LISTING: f32 = 0.8;
/// Letters of a line of running text, how many of them start within a sentence, and how much of their column they fill.
const PROSE_LETTERS: f32 = 25.0;
const PROSE_STARTS: f32 = 0.4;
const PROSE_FILLED: f32 = 0.75;

fn is_close(above: &Row<'_>, below: &Row<'_>) -> bool {
    below.baseline - above.baseline <= CLOSE * above.size.max(below.size) && above.bold == below.bold
}

/// A cell of one line.
#[derive(Debug, Clone, Default)]
struct Cell<'a> {
    words: Vec<&'a Word>,
    left: f32,
    right: f32,
    is_numeric: bool,
    /// Whether it lies over other columns, too.
    spans: bool,
}

impl Cell<'_> {
    fn is_filled(&self) -> bool {
        !self.words.is_empty()
    }

    /// Its letters without the dots of a leader.
    fn letters(&self) -> usize {
        let is_letter = |letter: &char| !matches!(letter, '.' | '…' | '·' | '_');
        self.words.iter().map(|word| word.text.chars().filter(is_letter).count()).sum()
    }

    fn has_digits(&self) -> bool {
        self.words.iter().any(|word| word.text.contains(char::is_numeric))
    }

    fn starts_small(&self) -> bool {
        self.words.first().is_some_and(|word| word.text.starts_with(char::is_lowercase))
    }

    fn text(&self) -> String {
        Line::new(self.words.iter().map(|word| (*word).clone()).collect()).text()
    }
}

/// A table whose lines are not yet put together to rows.
pub(super) struct Table<'a> {
    pub(super) rows: Range<usize>,
    pub(super) columns: Vec<Column>,
    /// By row and column.
    cells: Vec<Vec<Cell<'a>>>,
}

impl<'a> Table<'a> {
    /// The rows in `run` as a table, if they look like one.
    pub(super) fn of(rows: &[Row<'a>], run: Range<usize>, columns: Vec<Column>) -> Option<Self> {
        let width = columns.len();
        if width < 2 {
            return None;
        }
        let cells = rows[run.clone()].iter().map(|row| cells(row, &columns)).collect();
        let table = Self { rows: run, columns, cells };
        let full: Vec<&Vec<Cell<'_>>> = table.cells.iter().filter(|row| filled(row) > 1).collect();
        let (least, share) = if width > 2 { (2, 3) } else { (3, 2) };
        if full.len() < least || full.len() * share < table.cells.len() {
            return None;
        }
        // One row of many cells makes no columns.
        if full.iter().filter(|row| 2 * filled(row) >= width).count() < 2 {
            return None;
        }
        let count: usize = full.iter().map(|row| filled(row)).sum();
        let letters: usize = full.iter().flat_map(|row| row.iter()).map(Cell::letters).sum();
        let is_filled = count as f32 >= FILLED * (full.len() * width) as f32;
        let own = &rows[table.rows.clone()];
        let listing = own.iter().filter(|row| row.is_listing).count() as f32;
        let is_code =
            (own.iter().all(|row| row.mono) && !table.has_numbers()) || listing >= LISTING * own.len() as f32;
        let is_prose = (0..width).all(|column| table.is_prose(column));
        let is_table = is_filled && (letters as f32) < LETTERS * count as f32 && !is_code && !is_prose;
        is_table.then_some(table)
    }

    /// Whether it is one even if the page seems to have columns of text.
    pub(super) fn is_sure(&self, rows: &[Row<'_>]) -> bool {
        let divided = rows[self.rows.clone()].iter().filter(|row| row.is_divided()).count();
        let has_prose = (0..self.columns.len()).any(|column| self.is_prose(column));
        divided >= SURE && self.has_numbers() && !has_prose
    }

    fn column(&self, column: usize) -> impl Iterator<Item = &Cell<'a>> {
        self.cells.iter().map(move |row| &row[column]).filter(|cell| cell.is_filled())
    }

    /// Whether a column behind the first one has mostly numbers.
    pub(super) fn has_numbers(&self) -> bool {
        (1..self.columns.len()).any(|column| {
            let numbers = self.column(column).filter(|cell| cell.is_numeric).count();
            numbers > 1 && 2 * numbers > self.column(column).count()
        })
    }

    /// Whether `column` looks like running text.
    fn is_prose(&self, column: usize) -> bool {
        let count = self.column(column).count() as f32;
        let letters: usize = self.column(column).map(Cell::letters).sum();
        let small = self.column(column).filter(|cell| cell.starts_small()).count();
        let (left, right) = self.columns[column];
        let width = median(self.column(column).map(|cell| cell.right - cell.left));
        count >= 3.0
            && letters as f32 >= PROSE_LETTERS * count
            && small as f32 >= PROSE_STARTS * count
            && width >= PROSE_FILLED * (right - left)
    }

    /// Takes in the head above, and the last lines of cells below. Rows before `least` belong to another table.
    pub(super) fn extend(&mut self, rows: &[Row<'a>], least: usize) {
        while self.rows.start > least && self.cells.len() < rows.len() {
            let at = self.rows.start - 1;
            let (row, below) = (&rows[at], &rows[at + 1]);
            let (left, right) = row.extent();
            let edges = (self.columns[1].0 - row.size, self.columns[self.columns.len() - 1].1 + row.size);
            let is_head = self.columns.len() > 2
                && !row.is_title
                && !row.is_divided()
                && edges.0 <= left
                && right <= edges.1
                && row.letters() <= SPANNING_LETTERS
                && below.baseline - row.baseline <= CLOSE * LOOSE * row.size.max(below.size)
                && is_near(row, below);
            let spanning = self.cells.iter().take_while(|row| filled(row) == 1).count();
            if !is_head || spanning >= HEAD {
                break;
            }
            self.cells.insert(0, cells(row, &self.columns));
            self.rows.start = at;
        }
        while let Some(row) = rows.get(self.rows.end) {
            let (last, above) = (&self.cells[self.cells.len() - 1], &rows[self.rows.end - 1]);
            let next = cells(row, &self.columns);
            let continues = next.iter().zip(last).all(|(cell, above)| !cell.is_filled() || above.is_filled());
            let spans = next.iter().any(|cell| cell.spans);
            if row.is_divided() || spans || !continues || !is_close(above, row) {
                break;
            }
            self.cells.push(next);
            self.rows.end += 1;
        }
    }

    /// Lines of the head, if its cells have several and are set level with the last of them, which then has most. They stand before the
    /// first row of numbers.
    fn head(&self) -> usize {
        let is_of_numbers = |row: &Vec<Cell<'_>>| {
            let numbers = row.iter().filter(|cell| cell.is_filled() && cell.is_numeric).count();
            2 * numbers >= filled(row).max(1) && 2 * filled(row) >= row.len()
        };
        let Some(before) = self.cells.iter().take(HEAD_LINES + 1).position(is_of_numbers) else { return 0 };
        let Some(last) = self.cells[..before].iter().rposition(|row| filled(row) > 1) else { return 0 };
        let most = filled(&self.cells[last]);
        let is_plain = |row: &&Vec<Cell<'_>>| !row.iter().any(|cell| cell.spans);
        let mut plain = self.cells[..last].iter().filter(is_plain).map(|row| filled(row));
        let is_level_below =
            plain.next().is_some_and(|first| first < most && plain.all(|count| count <= most));
        if is_level_below && most + 1 >= self.columns.len() { last + 1 } else { 0 }
    }

    /// Puts lines of the same cell of the head together, in the last one. `texts` are those of its lines.
    fn join_head(&self, rows: &[Row<'_>], texts: &mut Vec<Vec<String>>, known: &Words) {
        for column in 0..self.columns.len() {
            for at in 1..texts.len() {
                let cell = &self.cells[at][column];
                let Some(above) = (0..at).rev().find(|above| self.cells[*above][column].is_filled()) else {
                    continue;
                };
                let is_text = |cell: &Cell<'_>| !(cell.spans || (cell.is_numeric && cell.has_digits()));
                let size = rows[at].size.max(rows[above].size);
                if cell.is_filled()
                    && is_text(cell)
                    && is_text(&self.cells[above][column])
                    && rows[at].baseline - rows[above].baseline <= CLOSE * size
                {
                    let mut text = std::mem::take(&mut texts[above][column]);
                    known.append(&mut text, &texts[at][column]);
                    texts[at][column] = text;
                }
            }
        }
        texts.retain(|row| row.iter().any(|text| !text.is_empty()));
    }

    /// Its rows; lines that continue a cell are put together.
    pub(super) fn fill(&self, rows: &[Row<'_>], known: &Words) -> Vec<Vec<String>> {
        let rows = &rows[self.rows.clone()];
        let distance = |at: usize| rows[at].baseline - rows[at - 1].baseline;
        let mut may_continue = vec![false; rows.len()];
        // The columns of the row so far; lines of text may continue some of its cells, but not all.
        let mut open: Vec<bool> = Vec::new();
        let head = self.head();
        for (at, row) in self.cells.iter().enumerate().skip(head) {
            let above = at.checked_sub(1).map_or(&[][..], |above| &self.cells[above][..]);
            let is_text = |cell: &Cell<'_>| !cell.is_filled() || !(cell.is_numeric || cell.spans);
            let size = rows[at].size;
            may_continue[at] = at > head
                && filled(row) < open.iter().filter(|is_open| **is_open).count()
                && row.iter().zip(&open).all(|(cell, is_open)| !cell.is_filled() || *is_open)
                && row.iter().all(is_text)
                && row.iter().zip(above).all(|(cell, above)| !cell.is_filled() || is_text(above))
                && distance(at) <= CLOSE * size;
            if !may_continue[at] {
                open = row.iter().map(Cell::is_filled).collect();
            }
        }
        let pitch = median((1..rows.len()).filter(|at| !may_continue[*at]).map(distance));
        let mut texts: Vec<Vec<String>> = Vec::new();
        for (at, row) in self.cells.iter().enumerate() {
            if at == head {
                self.join_head(rows, &mut texts, known);
            }
            let is_sentence = filled(row) == 1 && !row[0].is_filled() && row.iter().any(Cell::starts_small);
            let continues = may_continue[at] && (pitch > LOOSE * distance(at) || is_sentence);
            if !continues || texts.is_empty() {
                texts.push(vec![String::new(); self.columns.len()]);
            }
            let Some(last) = texts.last_mut() else { continue };
            for (text, cell) in last.iter_mut().zip(row).filter(|(_, cell)| cell.is_filled()) {
                known.append(text, &cell.text());
            }
        }
        texts
    }
}

fn filled(row: &[Cell<'_>]) -> usize {
    row.iter().filter(|cell| cell.is_filled()).count()
}

fn cells<'a>(row: &Row<'a>, columns: &[Column]) -> Vec<Cell<'a>> {
    let mut cells = vec![Cell::default(); columns.len()];
    for fragment in &row.fragments {
        let (column, spans) = fragment.place(columns);
        let cell = &mut cells[column];
        if !cell.is_filled() {
            (cell.left, cell.is_numeric) = (fragment.left, true);
        }
        cell.is_numeric &= fragment.is_numeric;
        cell.right = fragment.right;
        cell.spans |= spans;
        cell.words.extend(&row.words[fragment.words.clone()]);
    }
    cells
}
