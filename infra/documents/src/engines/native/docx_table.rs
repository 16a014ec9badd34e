//! A table of Word: cells that reach over columns are counted once, those that reach over rows once in each.

use crate::table::{Table, TableCell};

/// Columns of one cell at most.
const SPAN: usize = 64;

/// The table that is read.
#[derive(Debug, Default)]
pub(super) struct DocxTable {
    table: Table,
    /// By column: the index of the cell that may go on in the next row.
    above: Vec<Option<usize>>,
    /// Whether the row that is read is part of the head.
    is_head: bool,
    open: Option<OpenCell>,
}

/// The cell that is read.
#[derive(Debug)]
struct OpenCell {
    column: usize,
    col_span: usize,
    merge: Option<Merge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// The first of the rows.
    Starts,
    Continues,
}

impl DocxTable {
    pub(super) fn begin_row(&mut self) {
        self.end_cell();
        self.table.rows.push(Vec::new());
        self.is_head = false;
    }

    pub(super) fn make_row_head(&mut self) {
        self.is_head = true;
    }

    pub(super) fn begin_cell(&mut self) {
        self.end_cell();
        if self.table.rows.is_empty() {
            self.table.rows.push(Vec::new());
        }
        let Some(row) = self.table.rows.last_mut() else { return };
        self.open = Some(OpenCell { column: row.len(), col_span: 1, merge: None });
        row.push(String::new());
    }

    pub(super) fn span_columns(&mut self, count: usize) {
        self.open.iter_mut().for_each(|cell| cell.col_span = count.clamp(1, SPAN));
    }

    pub(super) fn merge_rows(&mut self, merge: Merge) {
        self.open.iter_mut().for_each(|cell| cell.merge = Some(merge));
    }

    /// The text of the cell that is read.
    pub(super) fn text(&mut self) -> Option<&mut String> {
        let column = self.open.as_ref()?.column;
        self.table.rows.last_mut()?.get_mut(column)
    }

    pub(super) fn end_cell(&mut self) {
        let (Some(OpenCell { column, col_span, merge }), Some(index)) =
            (self.open.take(), self.table.rows.len().checked_sub(1))
        else {
            return;
        };
        let end = column + col_span;
        self.table.rows[index].resize(end, String::new());
        if self.above.len() < end {
            self.above.resize(end, None);
        }
        let above = self.above[column..end].iter_mut().map(Option::take).collect::<Vec<_>>()[0];
        match above.filter(|_| merge == Some(Merge::Continues)) {
            Some(above) => {
                let cell = &mut self.table.cells[above];
                cell.row_span = index + 1 - cell.row;
                self.above[column] = Some(above);
            }
            None => {
                let cell = TableCell::new(index, column).spanning(1, col_span).header(self.is_head);
                if merge.is_some() {
                    self.above[column] = Some(self.table.cells.len());
                }
                if merge.is_some() || col_span > 1 || self.is_head {
                    self.table.cells.push(cell);
                }
            }
        }
    }

    pub(super) fn finish(mut self) -> Table {
        self.end_cell();
        self.table
    }
}
