//! Sheets of Excel and open documents: each a heading and a table.

use std::{
    collections::{BTreeMap, HashMap},
    io::Cursor,
};

use calamine::{Cell, Data, DataRef, Dimensions, Range, Reader, Sheets, open_workbook_auto_from_rs};

use super::{Content, collect::Collector, ods, xlsx::Workbook};
use crate::{
    failure::Failure,
    table::{MAX_CELLS, Table, TableCell},
};

/// Rows and columns of a sheet that are read.
const ROWS: usize = 100_000;
const COLUMNS: usize = 512;

/// The warning about a file whose cells alone can be read.
const LEFT_OUT: &str = "merged cells, or texts beside the cells of a sheet, cannot be read and were left out";

/// Reads all sheets.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut book = open_workbook_auto_from_rs(Cursor::new(bytes)).map_err(|error| failure(&error))?;
    let mut collector = Collector::default();
    let mut warnings = Vec::new();
    let mut workbook = matches!(book, Sheets::Xlsx(_)).then(|| Workbook::open(bytes));
    let mut of_open = HashMap::new();
    if matches!(book, Sheets::Ods(_)) {
        match ods::sheets(bytes) {
            Ok(sheets) => of_open = sheets,
            Err(_) => warnings.push(LEFT_OUT.to_owned()),
        }
    }
    for name in book.sheet_names() {
        let Some((range, cut)) = cells_of(&mut book, &name) else {
            warnings.push("a sheet cannot be read and was left out".to_owned());
            continue;
        };
        let mut of_open = of_open.remove(&name);
        let beside = of_open.as_mut().map(|sheet| std::mem::take(&mut sheet.beside)).unwrap_or_default();
        let merged = match &of_open {
            Some(sheet) => sheet.merged.clone(),
            None => merged(&mut book, &name),
        };
        let range = with_texts(range, of_open.map(|sheet| sheet.texts).unwrap_or_default());
        let (height, width) = range.get_size();
        let most = cut.unwrap_or_else(|| most_rows(width));
        if cut.is_some() || height > most || width > COLUMNS {
            warnings.push(format!("of a sheet, only the first {most} rows and {COLUMNS} columns were read"));
        }
        let rows = range.rows().take(most).map(|row| row.iter().take(COLUMNS).map(cell).collect()).collect();
        let first = range.start().unwrap_or_default();
        let cells = merged.into_iter().filter_map(|area| table_cell(&area, first)).collect();
        collector.heading(2, &name);
        collector.table(Table { rows, cells });
        beside.add_to(&mut collector);
        let added = match &mut workbook {
            Some(Ok(book)) => book.add_beside(&name, &mut collector).is_ok() && !book.lacks(),
            Some(Err(_)) => false,
            None => true,
        };
        // The cells are all there.
        if !added && !warnings.iter().any(|warning| warning == LEFT_OUT) {
            warnings.push(LEFT_OUT.to_owned());
        }
    }
    Ok(Content { blocks: collector.finish(), warnings, ..Content::default() })
}

/// `range` with `texts` in cells that are empty there. Those far from the others are left out: a range has all cells in between.
fn with_texts(range: Range<Data>, texts: Vec<((u32, u32), String)>) -> Range<Data> {
    let (mut from, mut to) = (range.start(), range.end());
    let mut fitting = Vec::new();
    for (place, text) in texts {
        let start = from.map_or(place, |from| (from.0.min(place.0), from.1.min(place.1)));
        let end = to.map_or(place, |to| (to.0.max(place.0), to.1.max(place.1)));
        let (height, width) = ((end.0 - start.0) as usize, (end.1 - start.1) as usize);
        if width < COLUMNS && height < most_rows(width + 1) {
            (from, to) = (Some(start), Some(end));
            fitting.push((place, text));
        }
    }
    if fitting.is_empty() {
        return range;
    }
    let used = range.used_cells().filter_map(|(row, column, data)| {
        let (first_row, first_column) = range.start()?;
        let place = (first_row + u32::try_from(row).ok()?, first_column + u32::try_from(column).ok()?);
        Some((place, data.clone()))
    });
    let texts = fitting.into_iter().map(|(place, text)| (place, Data::String(text)));
    // The last one of a place counts.
    let cells: BTreeMap<_, _> = texts.chain(used).collect();
    Range::from_sparse(cells.into_iter().map(|(place, data)| Cell::new(place, data)).collect())
}

/// Rows that are read of a sheet with so many columns.
fn most_rows(width: usize) -> usize {
    ROWS.min(MAX_CELLS / width.clamp(1, COLUMNS))
}

/// The cells of a sheet, and how many rows are read if some are left out. Two cells in opposite corners would take gigabytes with all between them, so of
/// the formats that list their cells only those are taken that are read.
fn cells_of(book: &mut Sheets<Cursor<&[u8]>>, name: &str) -> Option<(Range<Data>, Option<usize>)> {
    match book {
        Sheets::Xlsx(book) => match book.worksheet_cells_reader(name) {
            Ok(mut cells) => listed(|| cells.next_cell().ok()),
            // A chart.
            Err(calamine::XlsxError::NotAWorksheet(_)) => Some((Range::default(), None)),
            Err(_) => None,
        },
        Sheets::Xlsb(book) => {
            let mut cells = book.worksheet_cells_reader(name).ok()?;
            listed(|| cells.next_cell().ok())
        }
        Sheets::Xls(_) | Sheets::Ods(_) => Some((book.worksheet_range(name).ok()?, None)),
    }
}

/// Those that `next` gives, as far as they are read; `None` if it cannot give them.
fn listed<'a>(
    mut next: impl FnMut() -> Option<Option<Cell<DataRef<'a>>>>,
) -> Option<(Range<Data>, Option<usize>)> {
    let mut cells = Vec::new();
    while let Some(cell) = next()? {
        if !matches!(cell.get_value(), DataRef::Empty) {
            cells.push(Cell::new(cell.get_position(), Data::from(cell.get_value().clone())));
        }
    }
    let all = cells.len();
    let position = |cell: &Cell<Data>| cell.get_position();
    let first_column = cells.iter().map(|cell| position(cell).1).min().unwrap_or(0);
    cells.retain(|cell| ((position(cell).1 - first_column) as usize) < COLUMNS);
    let width = cells.iter().map(|cell| position(cell).1 - first_column + 1).max().unwrap_or(1);
    let first_row = cells.iter().map(|cell| position(cell).0).min().unwrap_or(0);
    let most = most_rows(width as usize);
    cells.retain(|cell| ((position(cell).0 - first_row) as usize) < most);
    let cut = (cells.len() < all).then_some(most);
    Some((Range::from_sparse(cells), cut))
}

/// The merged cells of a sheet. Without those that cannot be read, its texts are all there.
fn merged(book: &mut Sheets<Cursor<&[u8]>>, sheet: &str) -> Vec<Dimensions> {
    match book {
        Sheets::Xls(book) => book.merge_cells_by_sheet_name(sheet).unwrap_or_default(),
        Sheets::Xlsx(book) => book.merge_cells_by_sheet_name(sheet).unwrap_or_default(),
        Sheets::Xlsb(_) | Sheets::Ods(_) => Vec::new(),
    }
}

/// `area` in a table that starts at the row and column of `first`; none if it starts before, where nothing is written.
fn table_cell(area: &Dimensions, first: (u32, u32)) -> Option<TableCell> {
    let row = area.start.0.checked_sub(first.0)?;
    let column = area.start.1.checked_sub(first.1)?;
    let span = |from: u32, to: u32| to.saturating_sub(from) as usize + 1;
    let cell = TableCell::new(row as usize, column as usize);
    Some(cell.spanning(span(area.start.0, area.end.0), span(area.start.1, area.end.1)))
}

fn cell(data: &Data) -> String {
    match data {
        Data::Empty => String::new(),
        Data::DateTime(_) | Data::DateTimeIso(_) => date(data),
        other => other.to_string(),
    }
}

/// As ISO 8601, without a time that says nothing.
fn date(data: &Data) -> String {
    match data {
        Data::DateTime(date) if date.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = date.to_ymd_hms_milli();
            let day = format!("{year:04}-{month:02}-{day:02}");
            if (hour, minute, second) == (0, 0, 0) {
                day
            } else {
                format!("{day} {hour:02}:{minute:02}:{second:02}")
            }
        }
        other => other.to_string(),
    }
}

fn failure(error: &calamine::Error) -> Failure {
    let text = error.to_string().to_lowercase();
    if text.contains("password") || text.contains("encrypt") {
        Failure::Encrypted
    } else {
        Failure::corrupt("the sheets cannot be read: the file is damaged or truncated")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        block::{Block, Content as Kind},
        engines::native::archive::packed,
    };

    /// The table of the first sheet.
    fn table(bytes: &[u8]) -> Table {
        let blocks = read(bytes).unwrap().blocks;
        let Kind::Table(table) = &blocks[1].content else { panic!("{blocks:?}") };
        table.clone()
    }

    /// An open document with one sheet of these rows.
    fn open_sheet(rows: &str) -> Vec<u8> {
        let content = format!(
            "<?xml version='1.0'?><office:document-content xmlns:office='urn:oasis:names:tc:opendocument:xmlns:office:1.0' \
             xmlns:table='urn:oasis:names:tc:opendocument:xmlns:table:1.0' xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'>\
             <office:body><office:spreadsheet><table:table table:name='Sizes'>{rows}\
             </table:table></office:spreadsheet></office:body></office:document-content>"
        );
        let manifest =
            "<manifest:manifest xmlns:manifest='urn:oasis:names:tc:opendocument:xmlns:manifest:1.0'/>";
        packed(&[
            ("mimetype", "application/vnd.oasis.opendocument.spreadsheet"),
            ("META-INF/manifest.xml", manifest),
            ("content.xml", &content),
        ])
    }

    #[test]
    fn cells_of_an_open_sheet_without_a_type_are_read() {
        let typed = "<table:table-cell office:value-type='string'><text:p>typed</text:p></table:table-cell>";
        let rows = format!(
            "<table:table-row table:number-rows-repeated='3'><table:table-cell/></table:table-row>\
             <table:table-row><table:table-cell/>\
             <table:table-cell><office:annotation><text:p>note</text:p></office:annotation></table:table-cell>\
             <table:table-cell><text:p>a <text:span>b</text:span><text:s text:c='2'/>c</text:p><text:p>d &amp; e</text:p></table:table-cell>{typed}\
             <table:table-cell table:number-columns-repeated='2'><text:p>twice</text:p></table:table-cell></table:table-row>\
             <table:table-row><table:table-cell table:number-columns-repeated='16000'/><table:table-cell><text:p>far</text:p></table:table-cell></table:table-row>"
        );
        assert_eq!(table(&open_sheet(&rows)).rows, [["a b  c\nd & e", "typed", "twice", "twice"]]);
        let alone = "<table:table-row><table:table-cell><text:p>Part</text:p></table:table-cell><table:table-cell><text:p>25</text:p></table:table-cell></table:table-row>";
        assert_eq!(table(&open_sheet(alone)).rows, [["Part", "25"]]);
    }

    #[test]
    fn what_stands_beside_the_cells_of_an_open_sheet_is_kept() {
        let anchored = "<table:table-cell office:value-type='float' office:value='5'><text:p>5</text:p><draw:frame><draw:text-box><text:p>Total</text:p>\
            </draw:text-box></draw:frame></table:table-cell>";
        let rows = "<table:shapes><draw:frame><draw:text-box><text:p>Draft</text:p><text:p/></draw:text-box></draw:frame></table:shapes>\
            <table:table-row><table:table-cell><office:annotation><dc:creator>Anna</dc:creator><text:p>Twice</text:p></office:annotation>\
            <text:p>25</text:p></table:table-cell>ANCHORED</table:table-row>";
        let rows = rows.replace("ANCHORED", anchored);
        let texts: Vec<String> = read(&open_sheet(&rows)).unwrap().blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["Sizes", "25\t5", "Draft", "Twice", "Total"]);
    }

    #[test]
    fn merged_cells_of_an_open_sheet_are_kept() {
        let cell = |attributes: &str, text: &str| {
            format!(
                "<table:table-cell office:value-type='string' {attributes}><text:p>{text}</text:p></table:table-cell>"
            )
        };
        let rows = format!(
            "<table:table-row table:number-rows-repeated='2'><table:table-cell table:number-columns-repeated='4'/></table:table-row>\
             <table:table-row><table:table-cell/>{}{}<table:covered-table-cell/></table:table-row>\
             <table:table-row><table:table-cell/><table:covered-table-cell/>{}{}</table:table-row>\
             <table:table-row><table:table-cell/>{}{}{}</table:table-row>",
            cell("table:number-rows-spanned='2'", "Part"),
            cell("table:number-columns-spanned='2'", "Size"),
            cell("", "mm"),
            cell("", "inch"),
            cell("", "Rod"),
            cell("", "25"),
            cell("", "1"),
        );
        let table = table(&open_sheet(&rows));
        assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "25", "1"]]);
        let merged = table.cells.iter().filter(|cell| cell.row_span > 1 || cell.col_span > 1);
        let merged = merged.map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span, cell.header));
        assert_eq!(merged.collect::<Vec<_>>(), [(0, 0, 2, 1, true), (0, 1, 1, 2, true)]);
    }

    /// A workbook with one sheet.
    fn workbook(sheet: &str) -> Vec<u8> {
        workbook_with(sheet, &[])
    }

    /// A workbook with one sheet, and other parts.
    fn workbook_with(sheet: &str, others: &[(&str, &str)]) -> Vec<u8> {
        let types = "<Types><Override PartName='/xl/workbook.xml' ContentType='application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml'/></Types>";
        let root = "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'><Relationship Id='rId1' \
            Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument' Target='xl/workbook.xml'/></Relationships>";
        let relations = "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'><Relationship Id='rId1' \
            Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet' Target='worksheets/sheet1.xml'/></Relationships>";
        let book = "<workbook xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main' xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'><sheets>\
            <sheet name='Sizes' sheetId='1' r:id='rId1'/></sheets></workbook>";
        let sheet = format!(
            "<worksheet xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main'>{sheet}</worksheet>"
        );
        let parts = [
            ("[Content_Types].xml", types),
            ("_rels/.rels", root),
            ("xl/workbook.xml", book),
            ("xl/_rels/workbook.xml.rels", relations),
            ("xl/worksheets/sheet1.xml", &sheet),
        ];
        packed(&[&parts, others].concat())
    }

    fn cell_at(place: &str, text: &str) -> String {
        format!("<c r='{place}' t='inlineStr'><is><t>{text}</t></is></c>")
    }

    #[test]
    fn cells_far_from_the_others_do_not_keep_a_sheet_from_being_read() {
        let row = |number: u32, cells: &str| format!("<row r='{number}'>{cells}</row>");
        let near = [cell_at("B2", "Part"), cell_at("C2", "Size")].concat();
        let far = cell_at("XFD1048576", "far");
        let rows = [row(2, &near), row(3, &cell_at("B3", "Rod")), row(1_048_576, &far)].concat();
        let bytes = workbook(&format!("<dimension ref='B2:XFD1048576'/><sheetData>{rows}</sheetData>"));
        assert_eq!(table(&bytes).rows, [["Part", "Size"], ["Rod", ""]]);
        let warnings = read(&bytes).unwrap().warnings;
        assert!(
            warnings[0].starts_with("of a sheet, only the first 100000 rows and 512 columns"),
            "{warnings:?}"
        );
    }

    #[test]
    fn rows_that_are_too_many_for_a_wide_table_are_named() {
        let far = cell_at("SR60000", "far");
        let rows = format!("<row r='1'>{}</row><row r='60000'>{far}</row>", cell_at("A1", "near"));
        let content = read(&workbook(&format!("<sheetData>{rows}</sheetData>"))).unwrap();
        assert_eq!(content.warnings, ["of a sheet, only the first 1953 rows and 512 columns were read"]);
    }

    #[test]
    fn what_stands_beside_the_cells_of_a_sheet_is_kept() {
        let relation = |id: u8, kind: &str, part: &str| {
            format!("<Relationship Id='r{id}' Type='http://x/relationships/{kind}' Target='../{part}'/>")
        };
        let relations = [
            relation(1, "drawing", "drawings/drawing1.xml"),
            relation(2, "comments", "comments1.xml"),
            relation(3, "threadedComment", "threadedComments/t1.xml"),
        ];
        let drawing = "<xdr:wsDr><xdr:twoCellAnchor><xdr:sp><xdr:nvSpPr><xdr:cNvPr id='2' name='TextBox 1'/></xdr:nvSpPr><xdr:txBody><a:p><a:r>\
            <a:t>Draft</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:twoCellAnchor><xdr:twoCellAnchor><xdr:graphicFrame><c:chart r:id='r7'/>\
            </xdr:graphicFrame></xdr:twoCellAnchor></xdr:wsDr>";
        let chart = "<c:chartSpace><c:chart><c:title><a:p><a:r><a:t>Runs</a:t></a:r></a:p></c:title></c:chart></c:chartSpace>";
        let comments = "<comments><commentList><comment ref='A1'><text><t>[Threaded comment] Larger?</t></text></comment>\
            <comment ref='B1'><text><r><t>Twice</t></r></text></comment></commentList></comments>";
        let threads = "<ThreadedComments><threadedComment ref='A1' id='{1}'><text>Larger?</text></threadedComment>\
            <threadedComment ref='A1' parentId='{1}'><text>No.</text></threadedComment></ThreadedComments>";
        let of_drawing = relation(7, "chart", "charts/chart1.xml");
        let bytes = workbook_with(
            &format!("<sheetData><row r='1'>{}</row></sheetData>", cell_at("A1", "25")),
            &[
                (
                    "xl/worksheets/_rels/sheet1.xml.rels",
                    &format!("<Relationships>{}</Relationships>", relations.concat()),
                ),
                ("xl/drawings/drawing1.xml", drawing),
                (
                    "xl/drawings/_rels/drawing1.xml.rels",
                    &format!("<Relationships>{of_drawing}</Relationships>"),
                ),
                ("xl/charts/chart1.xml", chart),
                ("xl/comments1.xml", comments),
                ("xl/threadedComments/t1.xml", threads),
            ],
        );
        let read = read(&bytes).unwrap();
        let texts: Vec<String> = read.blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["Sizes", "25", "Draft", "Runs", "Larger?", "No.", "Twice"]);
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    }

    #[test]
    fn merged_cells_of_a_sheet_are_kept() {
        let rows = format!(
            "<row r='2'>{}{}</row><row r='3'>{}{}{}</row>",
            cell_at("B2", "Part"),
            cell_at("C2", "Size"),
            cell_at("B3", "Rod"),
            cell_at("C3", "25"),
            cell_at("D3", "1"),
        );
        let merged = "<mergeCells count='1'><mergeCell ref='C2:D2'/></mergeCells>";
        let table =
            table(&workbook(&format!("<dimension ref='B2:D3'/><sheetData>{rows}</sheetData>{merged}")));
        assert_eq!(table.rows, [["Part", "Size", ""], ["Rod", "25", "1"]]);
        let cells = table.cells.iter().map(|cell| (cell.row, cell.column, cell.col_span, cell.header));
        assert_eq!(cells.collect::<Vec<_>>(), [(0, 0, 1, true), (0, 1, 2, true)]);
    }
}
