//! Tables of rich text, whose rows say where their cells end.

use std::rc::Rc;

use super::docx_table::{DocxTable, Merge};
use crate::table::Table;

/// How far the edges of one column may miss each other from row to row, in twentieths of a point.
const NEAR: i32 = 60;
/// A row of a table: its texts, and the places of its cells if they are described.
pub(super) struct Row {
    pub(super) texts: Vec<String>,
    pub(super) places: Rc<Vec<Place>>,
    pub(super) is_head: bool,
}

/// Where a cell is.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) right: i32,
    /// Whether it is part of the cell before.
    pub(super) is_merged: bool,
    /// Whether it is one with cells above or below.
    pub(super) rows: Option<Merge>,
}

/// The rows as a table, whose columns end where a cell ends in any of them.
pub(super) fn table(rows: Vec<Row>) -> Table {
    if rows.iter().any(|row| row.places.len() != row.texts.len()) {
        return Table::new(rows.into_iter().map(|row| row.texts).collect());
    }
    let mut edges: Vec<i32> =
        rows.iter().flat_map(|row| row.places.iter()).map(|place| place.right).collect();
    edges.sort_unstable();
    edges.dedup_by(|next, edge| next.saturating_sub(*edge) <= NEAR);
    let mut table = DocxTable::default();
    for Row { texts, places, is_head } in rows {
        table.begin_row();
        if is_head {
            table.make_row_head();
        }
        let mut begun = 0;
        for (index, (text, place)) in texts.into_iter().zip(places.iter()).enumerate() {
            if place.is_merged && index > 0 {
                continue;
            }
            let merged = places[index + 1..].iter().take_while(|next| next.is_merged).last();
            let right = merged.map_or(place.right, |last| last.right);
            let end = edges.partition_point(|edge| *edge <= right).max(begun + 1);
            table.begin_cell();
            table.span_columns(end - begun);
            place.rows.into_iter().for_each(|rows| table.merge_rows(rows));
            table.text().into_iter().for_each(|cell| cell.clone_from(&text));
            begun = end;
        }
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::super::rtf::read;
    use crate::block::Content as Kind;

    #[test]
    fn merged_cells_of_tables_are_kept() {
        let rtf = br"{\rtf1\ansi\trowd\trhdr\clvmgf\cellx1000\clmgf\cellx2000\clmrg\cellx3000\pard\intbl Part\cell Size\cell\cell\row
            \trowd\clvmrg\cellx1010\cellx2000\cellx3000\pard\intbl\cell mm\cell inch\cell\row
            \trowd\cellx2000\cellx3000\pard\intbl Rod\cell 1\cell\row\pard}";
        let blocks = read(rtf).unwrap().blocks;
        let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "", "1"]]);
        let merged = table.cells.iter().filter(|cell| cell.row_span * cell.col_span > 1);
        let merged: Vec<_> =
            merged.map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span)).collect();
        assert_eq!(merged, [(0, 0, 2, 1), (0, 1, 1, 2), (2, 0, 1, 2)]);
    }
}
