//! Tables of a page.

use scraper::ElementRef;

use super::text_of;
use crate::table::{FlowingTable, Table};

/// Rows and columns of a cell at most; browsers have the first one.
const ROW_SPAN: usize = 65_534;
const COLUMN_SPAN: usize = 64;

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
            let span = |name: &str, most: usize| {
                cell.attr(name).and_then(|span| span.trim().parse().ok()).unwrap_or(1_usize).clamp(1, most)
            };
            table.cell(text_of(cell), span("rowspan", ROW_SPAN), span("colspan", COLUMN_SPAN), name == "th");
        }
    }
    table.finish()
}
