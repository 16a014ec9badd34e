//! Tables of a page.

use scraper::ElementRef;

use super::text_of;
use crate::table::{FlowingTable, Table};

/// Rows and columns of a cell at most, as in browsers.
const ROW_SPAN: usize = 65_534;
const COLUMN_SPAN: usize = 1000;

/// Whether a table shows data, and does not only arrange a page.
pub(super) fn is_of_data(element: ElementRef<'_>) -> bool {
    let has_inner = element.descendent_elements().skip(1).any(|inner| inner.value().name() == "table");
    !has_inner && table(element).width() >= 2
}

pub(super) fn table(element: ElementRef<'_>) -> Table {
    let mut table = FlowingTable::default();
    let mut part = None;
    for row in element.descendent_elements().filter(|element| element.value().name() == "tr") {
        let within = row.parent().map(|part| part.id());
        if part != within {
            table.begin_part();
            part = within;
        }
        table.begin_row();
        for cell in row.child_elements() {
            let name = cell.value().name();
            if !matches!(name, "td" | "th") {
                continue;
            }
            let span = |name: &str| cell.attr(name).and_then(|span| span.trim().parse::<usize>().ok());
            // No rows means all that follow in this part.
            let rows = match span("rowspan") {
                Some(0) => ROW_SPAN,
                rows => rows.unwrap_or(1).min(ROW_SPAN),
            };
            let columns = span("colspan").unwrap_or(1).clamp(1, COLUMN_SPAN);
            table.cell(text_of(cell), rows, columns, name == "th");
        }
    }
    table.finish()
}
