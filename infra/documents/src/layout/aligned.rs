//! Tables without rules: rows whose words stand below each other.

use std::ops::Range;

use signalbox_pdf::{Area, Word};

use super::{
    alignment::{self, Column, Row, median},
    hyphens::Words,
    line::Line,
};

/// A row that is further away does not belong to the table, in sizes of the font.
const FAR: f32 = 4.0;
/// Greatest distance, in sizes of the font, at which a line belongs to the cell above, if rows are further apart.
const CLOSE: f32 = 1.4;
/// By how much rows are further apart than the lines of a cell.
const LOOSE: f32 = 1.15;
/// How many of the cells have something in them, and how many letters, at most.
const FILLED: f32 = 0.4;
const LETTERS: f32 = 45.0;
/// Rows in succession that lie over several columns, the letters of one, and the rows of a head.
const SPANNING: usize = 2;
const SPANNING_LETTERS: usize = 60;
const HEAD: usize = 2;
/// A distance of rows that may divide two tables, and one where a run that is not a table is divided, in usual distances.
const DIVIDES: f32 = 1.8;
const DIVIDES_OTHERS: f32 = 1.3;
/// How often a run of rows is divided.
const DEPTH: usize = 5;
/// Divided rows of a table that may lie across columns of text.
const SURE: usize = 4;
/// Letters of a line of running text, how many of them start within a sentence, and how much of their column they fill.
const PROSE_LETTERS: f32 = 25.0;
const PROSE_STARTS: f32 = 0.4;
const PROSE_FILLED: f32 = 0.75;

/// A table and the rows that it is made of.
pub(crate) struct Found {
    pub(crate) rows: Range<usize>,
    pub(crate) cells: Vec<Vec<String>>,
}

/// The tables in `rows`, from top to bottom.
pub(crate) fn find(rows: &[Vec<Line>], known: &Words) -> Vec<Found> {
    let rows: Vec<Row<'_>> = rows.iter().map(|row| Row::of(row.iter())).collect();
    let fill = |table: Table<'_>| Found { cells: table.fill(&rows, known), rows: table.rows };
    tables(&rows).into_iter().map(fill).collect()
}

/// Areas of the tables that `gutter` would divide, if it were one.
pub(crate) fn across(lines: &[&Line], gutter: f32) -> Vec<Area> {
    let mut sorted = lines.to_vec();
    sorted.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let level = sorted.chunk_by(|one, other| one.is_level_with(other));
    let rows: Vec<Row<'_>> = level.map(|row| Row::of(row.iter().copied())).collect();
    let areas = tables(&rows).into_iter().filter(|table| table.is_sure(&rows)).map(|table| {
        let words = rows[table.rows].iter().flat_map(|row| &row.words);
        words.map(|word| word.area).reduce(|one, other| one.union(&other)).unwrap_or_default()
    });
    areas.filter(|area| area.left < gutter && gutter < area.right).collect()
}

fn tables<'a>(rows: &[Row<'a>]) -> Vec<Table<'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < rows.len() {
        if rows[at].is_divided() {
            let run = run(rows, at);
            at = run.end;
            search(rows, run, DEPTH, &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Rows from the divided one at `start` to another, near each other, with few between them that lie over several columns.
fn run(rows: &[Row<'_>], start: usize) -> Range<usize> {
    let (mut last, mut spanning) = (start, 0);
    for at in start + 1..rows.len() {
        let row = &rows[at];
        if !is_near(&rows[at - 1], row) {
            break;
        }
        if row.is_divided() {
            (last, spanning) = (at, 0);
        } else if rows[last].count_under(row) > 1 {
            spanning += 1;
            if spanning > SPANNING || row.letters() > SPANNING_LETTERS {
                break;
            }
        }
    }
    start..last + 1
}

/// Finds the tables in `run`, which is divided where its parts have more in common than the whole.
fn search<'a>(rows: &[Row<'a>], run: Range<usize>, depth: usize, found: &mut Vec<Table<'a>>) {
    let divided = |at: &usize| rows[*at].is_divided();
    let (Some(start), Some(last)) = (run.clone().find(divided), run.clone().rev().find(divided)) else {
        return;
    };
    let run = start..last + 1;
    if run.len() < 2 {
        return;
    }
    let columns = alignment::columns(&rows[run.clone()]);
    let (widest, at) = widest_distance(rows, &run);
    let has_more = |half: Range<usize>| {
        let rows = &rows[half];
        rows.iter().filter(|row| row.is_divided()).count() > 2
            && alignment::columns(rows).len() > columns.len()
    };
    let are_two = depth > 0 && widest >= DIVIDES && (has_more(run.start..at) || has_more(at..run.end));
    let table = if are_two { None } else { Table::of(rows, run.clone(), columns) };
    if let Some(mut table) = table {
        table.extend(rows, found.last().map_or(0, |before| before.rows.end));
        found.push(table);
    } else if depth > 0 {
        let at = if widest >= DIVIDES_OTHERS { Some(at) } else { worst_conflict(rows, &run) };
        if let Some(at) = at {
            search(rows, run.start..at, depth - 1, found);
            search(rows, at..run.end, depth - 1, found);
        }
    }
}

/// The greatest distance between two rows of `run`, in its usual distances, and the lower one of them.
fn widest_distance(rows: &[Row<'_>], run: &Range<usize>) -> (f32, usize) {
    let distance = |at: usize| rows[at].baseline - rows[at - 1].baseline;
    let lower = run.start + 1..run.end;
    let usual = median(lower.clone().map(distance)).max(1.0);
    let widest = lower.max_by(|one, other| distance(*one).total_cmp(&distance(*other)));
    widest.map_or((0.0, run.end), |at| (distance(at) / usual, at))
}

/// The row of `run` that agrees least with the one above.
fn worst_conflict(rows: &[Row<'_>], run: &Range<usize>) -> Option<usize> {
    let conflicts = |at: &usize| rows[at - 1].conflicts(&rows[*at]);
    (run.start + 1..run.end).filter(|at| conflicts(at) > 0).max_by_key(conflicts)
}

fn is_near(above: &Row<'_>, below: &Row<'_>) -> bool {
    let size = above.size.max(below.size);
    below.baseline - above.baseline < FAR * size && (above.size - below.size).abs() < 0.25 * size
}

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

    fn starts_small(&self) -> bool {
        self.words.first().is_some_and(|word| word.text.starts_with(char::is_lowercase))
    }

    fn text(&self) -> String {
        Line::new(self.words.iter().map(|word| (*word).clone()).collect()).text()
    }
}

/// A table whose lines are not yet put together to rows.
struct Table<'a> {
    rows: Range<usize>,
    columns: Vec<Column>,
    /// By row and column.
    cells: Vec<Vec<Cell<'a>>>,
}

impl<'a> Table<'a> {
    /// The rows in `run` as a table, if they look like one.
    fn of(rows: &[Row<'a>], run: Range<usize>, columns: Vec<Column>) -> Option<Self> {
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
        let count: usize = full.iter().map(|row| filled(row)).sum();
        let letters: usize = full.iter().flat_map(|row| row.iter()).map(Cell::letters).sum();
        let is_filled = count as f32 >= FILLED * (full.len() * width) as f32;
        let is_code = rows[table.rows.clone()].iter().all(|row| row.mono) && !table.has_numbers();
        let is_prose = (0..width).all(|column| table.is_prose(column));
        let is_table = is_filled && (letters as f32) < LETTERS * count as f32 && !is_code && !is_prose;
        is_table.then_some(table)
    }

    /// Whether it is one even if the page seems to have columns of text.
    fn is_sure(&self, rows: &[Row<'_>]) -> bool {
        let divided = rows[self.rows.clone()].iter().filter(|row| row.is_divided()).count();
        let has_prose = (0..self.columns.len()).any(|column| self.is_prose(column));
        divided >= SURE && self.has_numbers() && !has_prose
    }

    fn column(&self, column: usize) -> impl Iterator<Item = &Cell<'a>> {
        self.cells.iter().map(move |row| &row[column]).filter(|cell| cell.is_filled())
    }

    /// Whether a column behind the first one has mostly numbers.
    fn has_numbers(&self) -> bool {
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
    fn extend(&mut self, rows: &[Row<'a>], least: usize) {
        while self.rows.start > least && self.cells.len() < rows.len() {
            let at = self.rows.start - 1;
            let (row, below) = (&rows[at], &rows[at + 1]);
            let (left, right) = row.extent();
            let edges = (self.columns[1].0 - row.size, self.columns[self.columns.len() - 1].1 + row.size);
            let is_head = self.columns.len() > 2
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

    /// Its rows; lines that continue a cell are put together.
    fn fill(&self, rows: &[Row<'_>], known: &Words) -> Vec<Vec<String>> {
        let rows = &rows[self.rows.clone()];
        let distance = |at: usize| rows[at].baseline - rows[at - 1].baseline;
        let mut may_continue = vec![false; rows.len()];
        // The columns of the row so far; lines of text may continue some of its cells, but not all.
        let mut open: Vec<bool> = Vec::new();
        for (at, row) in self.cells.iter().enumerate() {
            let above = at.checked_sub(1).map_or(&[][..], |above| &self.cells[above][..]);
            let is_text = |cell: &Cell<'_>| !cell.is_filled() || !(cell.is_numeric || cell.spans);
            let size = rows[at].size;
            may_continue[at] = at > 0
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

#[cfg(test)]
pub(super) mod tests {
    use signalbox_pdf::Style;

    use super::{super::line, *};

    /// The pieces of lines that a sketch shows: a letter is 3 points wide, in a font of 10 points; lines are 12 apart.
    pub(in crate::layout) fn pieces(sketch: &str, mono: bool) -> Vec<Line> {
        let mut words = Vec::new();
        for (row, text) in sketch.trim_matches('\n').lines().enumerate() {
            let baseline = 100.0 + 12.0 * row as f32;
            for word in text.split_whitespace() {
                // Parts of one text: their places are those in it.
                let left = 3.0 * (word.as_ptr() as usize - text.as_ptr() as usize) as f32;
                let right = left + 3.0 * word.len() as f32;
                let area = Area { left, top: baseline - 8.0, right, bottom: baseline + 2.0 };
                let style = Style { size: 10.0, mono, ..Style::default() };
                words.push(Word { text: word.to_owned(), area, baseline, style, confidence: None });
            }
        }
        line::gather(words)
    }

    fn rows(sketch: &str, mono: bool) -> Vec<Vec<Line>> {
        line::rows(line::join_level(pieces(sketch, mono), 1.0))
    }

    /// The rows of the one table in `sketch`, with `|` between cells.
    fn table(sketch: &str) -> Vec<String> {
        let found = find(&rows(sketch, false), &Words::default());
        assert_eq!(found.len(), 1, "one table");
        found[0].cells.iter().map(|row| row.join("|")).collect()
    }

    const CENSUS: &str = "
                Population (1000)
State             1990        2000      Change
Northeast
Maine          1,227.9     1,274.9         3.8
New York      17,990.5    18,976.5         5.5
  Suburbs                  9,100.0
Vermont          562.8       608.8         8.2
";

    const PROSE: &str = "
the pump moves water from one tank      it is stopped by a valve, which the
to the other, as long as there is       operator opens by hand; none of them
any of it left, and the motor has       is near while it is under pressure,
all the current that it needs, so       as the law says, and so do they all
that no heat is lost while it runs      have seen what a burst pipe can do
";

    #[test]
    fn heads_labels_and_empty_cells_keep_their_rows() {
        assert_eq!(
            table(CENSUS),
            [
                "|Population (1000)||",
                "State|1990|2000|Change",
                "Northeast|||",
                "Maine|1,227.9|1,274.9|3.8",
                "New York|17,990.5|18,976.5|5.5",
                "Suburbs||9,100.0|",
                "Vermont|562.8|608.8|8.2",
            ]
        );
    }

    #[test]
    fn lines_of_a_cell_are_put_together() {
        let sketch = "
Item        Description                 Price

Pump        moves water from the         12.50
            lower to the upper tank

Valve       stops it                      3.20

Long hose   joins both of them, and        7.00
            may be cut to length
";
        assert_eq!(
            table(sketch),
            [
                "Item|Description|Price",
                "Pump|moves water from the lower to the upper tank|12.50",
                "Valve|stops it|3.20",
                "Long hose|joins both of them, and may be cut to length|7.00",
            ]
        );
    }

    #[test]
    fn long_cell_stays_in_its_row() {
        let sketch = "
Name            Amount
Apples              12
Pears                7
A name that is too long  9
Plums               31
";
        let expected = ["Name|Amount", "Apples|12", "Pears|7", "A name that is too long|9", "Plums|31"];
        assert_eq!(table(sketch), expected);
    }

    #[test]
    fn head_beside_its_numbers_belongs_to_their_column() {
        let sketch = "
Company       No. Of         Type
Acme                  150    Closure
Bolt                  137    Layoff
Crane                  90    Layoff
";
        let expected = ["Company|No. Of|Type", "Acme|150|Closure", "Bolt|137|Layoff", "Crane|90|Layoff"];
        assert_eq!(table(sketch), expected);
    }

    #[test]
    fn narrow_columns_of_numbers_are_parted() {
        let sketch = "
1990  1,200  3,400  5.5
1991  1,250     --  5.6
1992     90    410  5.7
1993  1,310  3,580  5.8
";
        assert_eq!(
            table(sketch),
            ["1990|1,200|3,400|5.5", "1991|1,250|--|5.6", "1992|90|410|5.7", "1993|1,310|3,580|5.8"]
        );
    }

    #[test]
    fn two_tables_keep_their_own_columns() {
        let sketch = "
Pump          1990        12
Valve         1991         7
Hose          1992        31


Water         Mr. Brown, north
Air           Mrs. Green, south
Steam         Mr. White, west
";
        let found = find(&rows(sketch, false), &Words::default());
        let widths: Vec<usize> = found.iter().map(|table| table.cells[0].len()).collect();
        assert_eq!(widths, [3, 2]);
    }

    #[test]
    fn lists_listings_and_prose_are_no_tables() {
        let list = "
-     first item of a list
-     second item of it
-     third
";
        let listing = "
let a = 1;          // the first
let bcd = 2;        // the second
let e = 3;          // the third one
";
        for (sketch, mono) in [(list, false), (listing, true), (PROSE, false)] {
            let found = find(&rows(sketch, mono), &Words::default());
            assert!(found.is_empty(), "{:?}", found[0].cells);
        }
    }

    #[test]
    fn only_tables_lie_across_a_gutter() {
        let lines = pieces(CENSUS, false);
        let areas = across(&lines.iter().collect::<Vec<_>>(), 35.0);
        assert_eq!(areas.len(), 1);
        assert_eq!((areas[0].left, areas[0].right), (0.0, 138.0));
        let lines = pieces(PROSE, false);
        assert!(across(&lines.iter().collect::<Vec<_>>(), 110.0).is_empty());
    }
}
