//! Tables without rules: rows whose words stand below each other.

mod table;
mod text;

use std::ops::Range;

use signalbox_pdf::Area;

use self::table::Table;
use super::{
    alignment::{self, Column, Row, median},
    flow::Usual,
    hyphens::Words,
    line::Line,
};

/// A row that is further away does not belong to the table, in sizes of the font.
const FAR: f32 = 4.0;
/// Rows in succession that lie over several columns, and the letters of one.
const SPANNING: usize = 2;
const SPANNING_LETTERS: usize = 60;
/// Letters of one that stands over the columns behind the first.
const TITLE_LETTERS: usize = 120;
/// A distance of rows that may divide two tables, and one where a run that is not a table is divided, in usual distances.
const DIVIDES: f32 = 1.8;
const DIVIDES_OTHERS: f32 = 1.3;
/// How often a run of rows is divided.
const DEPTH: usize = 5;
/// Rows that are a table, or several that stand beside each other.
pub(crate) struct Found {
    pub(crate) rows: Range<usize>,
    /// From left to right.
    pub(crate) tables: Vec<Beside>,
}

/// A table, and the part of its rows that it takes.
pub(crate) struct Beside {
    pub(crate) cells: Vec<Vec<String>>,
    pub(crate) extent: Column,
}

/// The tables in `rows`, from top to bottom.
pub(crate) fn find(rows: &[Vec<Line>], known: &Words, usual: Usual) -> Vec<Found> {
    let rows: Vec<Row<'_>> = rows.iter().map(|row| text::known(Row::of(row.iter()), usual)).collect();
    let fill = |table: Table<'_>| {
        let cells = table.fill(&rows, known);
        Found { tables: apart(cells, &table.columns), rows: table.rows }
    };
    tables(&rows).into_iter().map(fill).collect()
}

/// The tables in `cells`: several, if the head is that of one table repeated.
fn apart(cells: Vec<Vec<String>>, columns: &[Column]) -> Vec<Beside> {
    let whole = (f32::MIN, f32::MAX);
    let Some(head) = cells.iter().find(|row| row.iter().filter(|cell| !cell.is_empty()).count() > 1) else {
        return vec![Beside { cells, extent: whole }];
    };
    let repeats = |width: &usize| {
        head.len().is_multiple_of(*width)
            && head.chunks(*width).all(|part| part == &head[..*width])
            && head[..*width].iter().all(|text| text.contains(char::is_alphabetic))
            && head[1..*width].iter().any(|text| *text != head[0])
    };
    // A head of one word everywhere says nothing of where tables begin.
    let Some(width) = (2..=head.len() / 2).find(repeats) else {
        return vec![Beside { cells, extent: whole }];
    };
    let middle = |at: usize| (columns[at - 1].1 + columns[at].0) / 2.0;
    let part = |from: usize| {
        let rows = cells.iter().map(|row| row[from..from + width].to_vec());
        let rows = rows.filter(|row| row.iter().any(|text| !text.is_empty())).collect();
        let left = if from == 0 { whole.0 } else { middle(from) };
        let right = if from + width == head.len() { whole.1 } else { middle(from + width) };
        Beside { cells: rows, extent: (left, right) }
    };
    (0..head.len()).step_by(width).map(part).collect()
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
        if rows[at].is_divided() && !rows[at].is_title {
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
        if !is_near(&rows[at - 1], row) || row.is_title || text::is_edge_of_listing(rows, at) {
            break;
        }
        if row.is_divided() {
            (last, spanning) = (at, 0);
        } else if rows[last].count_under(row) > 1 {
            spanning += 1;
            let is_title = rows[last].pieces.first().is_some_and(|first| first.1 <= row.extent().0);
            let most = if is_title { TITLE_LETTERS } else { SPANNING_LETTERS };
            if spanning > SPANNING || row.letters() > most {
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
    let table = table.filter(|table| table.has_numbers() || !text::is_justified(rows, &run));
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

#[cfg(test)]
pub(super) mod tests {
    use signalbox_pdf::{Style, Word};

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

    const USUAL: Usual = Usual { size: 10.0, leading: 1.2, bold: false, mono: false };

    fn rows(sketch: &str, mono: bool) -> Vec<Vec<Line>> {
        line::rows(line::join_level(pieces(sketch, mono), 1.0))
    }

    /// The rows of the one table in `sketch`, with `|` between cells.
    fn table(sketch: &str) -> Vec<String> {
        let found = find(&rows(sketch, false), &Words::default(), USUAL);
        assert_eq!(found.len(), 1, "one table");
        let [table] = found[0].tables.as_slice() else { panic!("several beside each other") };
        table.cells.iter().map(|row| row.join("|")).collect()
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
    fn lines_of_a_head_are_put_together() {
        let sketch = "
                                Weight
               No. of         relative
Dose          animals      to controls
(ppm)          tested              (%)
0                  39            100.0
250                30            102.5
500                33            103.1
1000               31            100.9
";
        let rows = table(sketch);
        assert_eq!(
            rows[..2],
            ["Dose (ppm)|No. of animals tested|Weight relative to controls (%)", "0|39|100.0"]
        );
        assert_eq!(rows.len(), 5);
    }

    #[test]
    fn head_that_narrows_the_strip_beside_it_does_not_close_it() {
        let sketch = "
Group         housing units    no.
Male             60,721     13,647
Female           51,084     12,549
Young            79,333     17,992
Old              12,739      3,079
Married          13,609      3,847
Single            4,181        720
Widowed             730        233
";
        assert_eq!(table(sketch)[..2], ["Group|housing units|no.", "Male|60,721|13,647"]);
    }

    #[test]
    fn tables_beside_each_other_are_parted_by_their_heads() {
        let sketch = "
Age        People      Age        People      Age        People
1 year      3,533      4 years     3,142      7 years     3,273
2 years     3,270      5 years     3,163      8 years     3,395
3 years     3,224      6 years     3,109
";
        let found = find(&rows(sketch, false), &Words::default(), USUAL);
        let tables: Vec<Vec<String>> = found[0]
            .tables
            .iter()
            .map(|table| table.cells.iter().map(|row| row.join("|")).collect())
            .collect();
        assert_eq!(tables.len(), 3);
        assert_eq!(tables[1], ["Age|People", "4 years|3,142", "5 years|3,163", "6 years|3,109"]);
        assert_eq!(tables[2].len(), 3, "no empty row");
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
        let found = find(&rows(sketch, false), &Words::default(), USUAL);
        let widths: Vec<usize> = found.iter().map(|found| found.tables[0].cells[0].len()).collect();
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
            let found = find(&rows(sketch, mono), &Words::default(), USUAL);
            assert!(found.is_empty(), "{:?}", found[0].tables[0].cells);
        }
    }

    #[test]
    fn listing_with_numbers_is_a_table_only_where_all_text_looks_like_it() {
        let listing = "
-rw-r--r--    1 root     root       512    bar
-rw-r--r--    2 root     root      1024    baz
-rw-r--r--    1 admin    users       77    foo
";
        let found = |usual: Usual| find(&rows(listing, true), &Words::default(), usual).len();
        assert_eq!((found(USUAL), found(Usual { mono: true, ..USUAL })), (0, 1));
    }

    #[test]
    fn justified_lines_of_a_paragraph_are_no_table() {
        let text = "
Alternatively,    one may      add the    users of it
its groups by     a line in    a file     that is here
read when they log in with a name that is known here
";
        assert!(find(&rows(text, false), &Words::default(), USUAL).is_empty());
        let lines: Vec<&str> = text.trim_matches('\n').lines().take(2).collect();
        assert_eq!(
            find(&rows(&lines.join("\n"), false), &Words::default(), USUAL).len(),
            1,
            "without the rest"
        );
    }

    #[test]
    fn justified_lines_are_no_table_however_wide_their_spaces_are() {
        let text = "
The      popularity      package      normally      send      mail      from      it
You      need      to      set      addresses      in      the      main      file,       as
";
        let lines = line::gather(pieces(text, false).into_iter().flat_map(|line| line.words).collect());
        assert_eq!(lines.len(), 2);
        assert!(find(&rows(text, false), &Words::default(), USUAL).is_empty());
        // Words of one width have spaces of one width in columns, too.
        let columns = "
Open      Shut      Wait      Free      Lost
Shut      Wait      Free      Lost      Open
Wait      Free      Lost      Open      Shut
";
        assert_eq!(find(&rows(columns, false), &Words::default(), USUAL).len(), 1);
    }

    #[test]
    fn one_row_of_many_cells_is_no_table() {
        let text = "
2.2.5       the packages that it shows
all of them are shown as in the line below here
idA     libsmb     -2220kB     3.0.25a     3.0.26b
";
        assert!(find(&rows(text, false), &Words::default(), USUAL).is_empty());
    }

    #[test]
    fn titles_are_no_rows() {
        let sketch = "
2.1      Links     of     files
Pump          1990        12
Valve         1991         7
Hose          1992        31
";
        let mut rows = rows(sketch, false);
        for line in &mut rows[0] {
            (line.size, line.bold) = (12.0, true);
            line.words.iter_mut().for_each(|word| (word.style.size, word.style.bold) = (12.0, true));
        }
        let found = find(&rows, &Words::default(), USUAL);
        assert_eq!((found.len(), found[0].rows.clone()), (1, 1..4));
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
