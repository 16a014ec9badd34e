//! Tables: their texts by row, and which of their cells are merged or headers.

use serde::{Deserialize, Serialize};

/// Cells of a table at most; rows beyond are left out.
pub(crate) const MAX_CELLS: usize = 1_000_000;

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// By row. A merged cell has its text at its first place; the other places that it covers are empty.
    pub rows: Vec<Vec<String>>,
    /// Cells that are merged or headers, by row and column.
    pub cells: Vec<TableCell>,
}

/// Properties of a cell that a text does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCell {
    /// From 0.
    pub row: usize,
    /// From 0.
    pub column: usize,
    /// Rows that it covers.
    pub row_span: usize,
    /// Columns that it covers.
    pub col_span: usize,
    /// Whether it names its row or column.
    pub header: bool,
}

impl TableCell {
    pub(crate) fn new(row: usize, column: usize) -> Self {
        Self { row, column, row_span: 1, col_span: 1, header: false }
    }

    pub(crate) fn spanning(self, row_span: usize, col_span: usize) -> Self {
        Self { row_span: row_span.max(1), col_span: col_span.max(1), ..self }
    }

    pub(crate) fn header(self, header: bool) -> Self {
        Self { header, ..self }
    }

    fn is_merged(&self) -> bool {
        self.row_span > 1 || self.col_span > 1
    }

    /// Every place that it covers.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Self { row, column, row_span, col_span, .. } = *self;
        (row..row + row_span)
            .flat_map(move |row| (column..column + col_span).map(move |column| (row, column)))
    }
}

impl Table {
    /// A table whose first row is its head.
    pub fn new(rows: Vec<Vec<String>>) -> Self {
        let mut table = Self { rows, cells: Vec::new() };
        table.order();
        table
    }

    /// A table between rules: rows and columns without a word come from double ones.
    pub(crate) fn of_grid(rows: Vec<Vec<String>>, cells: Vec<TableCell>) -> Self {
        let width = rows.first().map_or(0, Vec::len);
        let has_text = |row: &Vec<String>| row.iter().any(|cell| !cell.is_empty());
        let keeps_row: Vec<bool> = rows.iter().map(has_text).collect();
        let keeps_column: Vec<bool> =
            (0..width).map(|column| rows.iter().any(|row| !row[column].is_empty())).collect();
        let kept = |keeps: &[bool], from: usize, span: usize| {
            let count = |range: &[bool]| range.iter().filter(|keep| **keep).count();
            (count(&keeps[..from]), count(&keeps[from..from + span]))
        };
        let cells = cells.into_iter().filter_map(|cell| {
            let (row, row_span) = kept(&keeps_row, cell.row, cell.row_span);
            let (column, col_span) = kept(&keeps_column, cell.column, cell.col_span);
            (row_span > 0 && col_span > 0).then_some(TableCell { row, column, row_span, col_span, ..cell })
        });
        let cells = cells.collect();
        let rows = rows.into_iter().filter(has_text).map(|row| {
            let texts = row.into_iter().zip(&keeps_column);
            texts.filter(|(_, keeps)| **keeps).map(|(text, _)| text).collect()
        });
        let mut table = Self { rows: rows.collect(), cells };
        table.order();
        table
    }

    /// Without empty rows at the end and empty columns at the right; none if nothing is left. Unless the source says which cells
    /// are headers, those of the first row are.
    pub(crate) fn trimmed(mut self) -> Option<Self> {
        let is_empty = |cell: &String| cell.trim().is_empty();
        while self.rows.last().is_some_and(|row| row.iter().all(is_empty)) {
            self.rows.pop();
        }
        let used =
            |row: &Vec<String>| row.iter().rposition(|cell| !is_empty(cell)).map_or(0, |last| last + 1);
        let width = self.rows.iter().map(used).max().filter(|width| *width > 0)?;
        self.rows.truncate((MAX_CELLS / width).max(1));
        for row in &mut self.rows {
            row.resize(width, String::new());
            row.iter_mut().for_each(|cell| *cell = cell.trim().to_owned());
        }
        self.order();
        Some(self)
    }

    pub(crate) fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Puts `cells` in order, within the table and without overlaps.
    fn order(&mut self) {
        let (height, width) = (self.rows.len(), self.width());
        self.cells.retain(|cell| cell.row < height && cell.column < width);
        self.cells.sort_by_key(|cell| (cell.row, cell.column));
        self.cells.dedup_by(|next, cell| {
            let is_same = (next.row, next.column) == (cell.row, cell.column);
            if is_same {
                *cell = cell
                    .spanning(cell.row_span.max(next.row_span), cell.col_span.max(next.col_span))
                    .header(cell.header || next.header);
            }
            is_same
        });
        if self.cells.iter().any(TableCell::is_merged) {
            let mut covered = Covered::new(height, width);
            self.cells.retain_mut(|cell| covered.fit(cell));
        }
        if !self.cells.iter().any(|cell| cell.header) {
            self.make_first_row_head();
        }
        self.cells.retain(|cell| cell.header || cell.is_merged());
    }

    fn make_first_row_head(&mut self) {
        let width = self.rows.first().map_or(0, Vec::len);
        let below = self.cells.split_off(self.cells.partition_point(|cell| cell.row == 0));
        let mut known = std::mem::take(&mut self.cells).into_iter().peekable();
        let mut column = 0;
        while column < width {
            let cell = known.next_if(|cell| cell.column == column).unwrap_or(TableCell::new(0, column));
            column += cell.col_span;
            self.cells.push(cell.header(true));
        }
        self.cells.extend(below);
    }

    /// Rows at the top that consist of headers.
    pub(crate) fn head(&self) -> usize {
        let mut named = vec![0; self.rows.len()];
        for cell in self.cells.iter().filter(|cell| cell.header) {
            named[cell.row..].iter_mut().take(cell.row_span).for_each(|count| *count += cell.col_span);
        }
        named.iter().zip(&self.rows).take_while(|(named, row)| **named >= row.len()).count()
    }

    /// Each cell once, by row and column, with its text.
    pub(crate) fn whole(&self) -> Vec<(TableCell, &str)> {
        let mut covered = Covered::new(self.rows.len(), self.width());
        let mut known = self.cells.iter().peekable();
        let mut whole = Vec::new();
        for (row, texts) in self.rows.iter().enumerate() {
            for (column, text) in texts.iter().enumerate() {
                let known = known.next_if(|cell| (cell.row, cell.column) == (row, column));
                let mut cell = known.copied().unwrap_or(TableCell::new(row, column));
                if covered.fit(&mut cell) {
                    whole.push((cell, text.as_str()));
                }
            }
        }
        whole
    }

    /// Appends the rows of a table that continues this one below the same head; false if it is another one.
    pub(crate) fn continue_with(&mut self, next: &mut Self) -> bool {
        let head = self.head().max(1);
        let is_same = self.width() == next.width()
            && next.rows.len() >= head
            && self.rows.get(..head) == next.rows.get(..head);
        if is_same {
            let above = self.rows.len() - head;
            let body = next.cells.drain(..).filter(|cell| cell.row >= head);
            self.cells.extend(body.map(|cell| TableCell { row: cell.row + above, ..cell }));
            self.rows.extend(next.rows.drain(head..));
        }
        is_same
    }
}

/// Which places of a table have a cell.
struct Covered {
    width: usize,
    places: Vec<bool>,
}

impl Covered {
    fn new(height: usize, width: usize) -> Self {
        Self { width, places: vec![false; height * width] }
    }

    /// Cuts `cell` to what is free from its first place on, and covers that; false if the first place is taken.
    fn fit(&mut self, cell: &mut TableCell) -> bool {
        let height = self.places.len().checked_div(self.width).unwrap_or(0);
        let start = cell.row * self.width + cell.column;
        let across = cell.col_span.min(self.width - cell.column);
        let free = self.places[start..start + across].iter().take_while(|taken| !**taken).count();
        if free == 0 {
            return false;
        }
        let is_free = |row: &usize| {
            let start = row * self.width + cell.column;
            self.places[start..start + free].iter().all(|taken| !taken)
        };
        let end = cell.row.saturating_add(cell.row_span).min(height);
        let rows = (cell.row..end).take_while(is_free).count();
        (cell.row_span, cell.col_span) = (rows, free);
        for (row, column) in cell.places() {
            self.places[row * self.width + column] = true;
        }
        true
    }
}

/// A table whose cells are given in succession, each at the next free place, as web pages have them.
#[derive(Debug, Default)]
pub(crate) struct FlowingTable {
    table: Table,
    /// By column: the first row that no cell above covers.
    free_from: Vec<usize>,
    /// The first row of the part that is read: cells do not reach into the next one.
    part: usize,
    /// Places of all rows so far.
    places: usize,
}

impl FlowingTable {
    pub(crate) fn begin_row(&mut self) {
        self.drop_empty_row();
        self.table.rows.push(Vec::new());
    }

    pub(crate) fn cell(&mut self, text: String, row_span: usize, col_span: usize, header: bool) {
        let Some(index) = self.table.rows.len().checked_sub(1) else { return };
        let row = &mut self.table.rows[index];
        let covered = self.free_from.iter().skip(row.len()).take_while(|free| **free > index).count();
        self.places += covered + col_span;
        // A few letters can claim millions of places. Beyond what a table may have, its cells cover one each.
        let is_full = self.places > MAX_CELLS;
        let (covered, row_span, col_span) = if is_full { (0, 1, 1) } else { (covered, row_span, col_span) };
        row.resize(row.len() + covered, String::new());
        let column = row.len();
        row.push(text);
        row.resize(column + col_span, String::new());
        if self.free_from.len() < row.len() {
            self.free_from.resize(row.len(), 0);
        }
        self.free_from[column..].iter_mut().take(col_span).for_each(|free| *free = index + row_span);
        let cell = TableCell::new(index, column).spanning(row_span, col_span).header(header);
        if cell.header || cell.is_merged() {
            self.table.cells.push(cell);
        }
    }

    /// Starts another part of the table, such as its body after its head.
    pub(crate) fn begin_part(&mut self) {
        let height = self.table.rows.len();
        self.free_from.iter_mut().for_each(|free| *free = height.min(*free));
        let cells = self.table.cells.iter_mut().rev();
        cells
            .take_while(|cell| cell.row >= self.part)
            .for_each(|cell| cell.row_span = cell.row_span.min(height - cell.row));
        self.part = height;
    }

    /// Removes the last row if it is empty and no cell above reaches it.
    fn drop_empty_row(&mut self) {
        let Some(index) = self.table.rows.len().checked_sub(1) else { return };
        if self.table.rows[index].is_empty() && !self.free_from.iter().any(|free| *free > index) {
            self.table.rows.pop();
        }
    }

    pub(crate) fn finish(mut self) -> Table {
        self.drop_empty_row();
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn shown(table: &Table) -> Vec<(usize, usize, usize, usize, bool)> {
        let cells = table.cells.iter();
        cells.map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span, cell.header)).collect()
    }

    #[test]
    fn cells_take_the_next_free_place() {
        let mut table = FlowingTable::default();
        table.begin_row();
        table.cell("Part".to_owned(), 2, 1, true);
        table.cell("Size".to_owned(), 1, 2, true);
        table.begin_row();
        table.cell("mm".to_owned(), 1, 1, true);
        table.cell("inch".to_owned(), 1, 1, true);
        table.begin_row();
        table.begin_row();
        table.cell("Rod".to_owned(), 9, 1, false);
        table.cell("25".to_owned(), 1, 1, false);
        let table = table.finish().trimmed().unwrap();
        assert_eq!(
            table.rows,
            [row(&["Part", "Size", ""]), row(&["", "mm", "inch"]), row(&["Rod", "25", ""])]
        );
        let expected = [(0, 0, 2, 1, true), (0, 1, 1, 2, true), (1, 1, 1, 1, true), (1, 2, 1, 1, true)];
        assert_eq!((shown(&table), table.head()), (expected.to_vec(), 2));
        let texts: Vec<&str> = table.whole().into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["Part", "Size", "mm", "inch", "Rod", "25", ""]);
    }

    #[test]
    fn spans_claim_no_more_places_than_a_table_may_have() {
        let mut table = FlowingTable::default();
        for _ in 0..200 {
            table.begin_row();
            (0..100).for_each(|_| table.cell("a".to_owned(), 65_534, 1_000, false));
        }
        table.begin_row();
        table.cell("last".to_owned(), 1, 1, false);
        assert!(table.table.rows.iter().map(Vec::len).sum::<usize>() <= MAX_CELLS + 20_001);
        assert_eq!(table.table.rows.last().unwrap(), &row(&["last"]));
    }

    #[test]
    fn overlapping_cells_are_cut() {
        let rows = vec![row(&["a", "b", "c"]), row(&["d", "e", "f"]), row(&["g", "h", "i"])];
        let cells = vec![
            TableCell::new(1, 1).spanning(1, 2),
            TableCell::new(0, 0).spanning(usize::MAX, 2),
            TableCell::new(1, 0).spanning(1, 1),
            TableCell::new(7, 0).spanning(2, 2),
        ];
        let table = Table { rows, cells }.trimmed().unwrap();
        assert_eq!(shown(&table), [(0, 0, 3, 2, true), (0, 2, 1, 1, true)]);
    }

    #[test]
    fn first_row_is_the_head_unless_the_source_names_one() {
        let rows = vec![row(&["", "2025", ""]), row(&["Rod", "3", "4"])];
        let named = Table { rows: rows.clone(), cells: vec![TableCell::new(1, 0).header(true)] };
        assert_eq!(shown(&named.trimmed().unwrap()), [(1, 0, 1, 1, true)]);
        let merged = Table { rows, cells: vec![TableCell::new(0, 1).spanning(1, 2)] };
        assert_eq!(shown(&merged.trimmed().unwrap()), [(0, 0, 1, 1, true), (0, 1, 1, 2, true)]);
    }

    #[test]
    fn table_continues_below_the_same_head() {
        let mut one = Table::new(vec![row(&["Part", "Size"]), row(&["Rod", "3"])]);
        let rows = vec![row(&["Part", "Size"]), row(&["Tap", "4"]), row(&["", "5"])];
        let mut next = Table { rows, cells: vec![TableCell::new(1, 0).spanning(2, 1)] }.trimmed().unwrap();
        assert!(one.continue_with(&mut next));
        assert_eq!(one.rows.len(), 4);
        assert_eq!(shown(&one)[2..], [(2, 0, 2, 1, false)]);
    }
}
