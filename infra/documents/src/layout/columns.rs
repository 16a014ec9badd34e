//! Reading order: columns of text are read one after the other, what spans them divides the page.

use std::cmp::Reverse;

use signalbox_pdf::Area;

use super::{
    aligned,
    alignment::median,
    bands, contents,
    line::Line,
    piece::{Gutters, Piece, crosses},
    strips::{self, COLUMN, GUTTER},
};

/// A gutter is at least so wide, in sizes of the font.
const GUTTER_SIZES: f32 = 0.75;
/// Lines that a column needs if no other page has it.
const LINES: usize = 4;
/// How much of a column its lines fill on average, at least, and how many letters they have: cells of tables do not.
const FILLED: f32 = 0.55;
const LETTERS: usize = 14;
/// Letters of a line of running text, and by how much of its width such a line may miss its right edge.
const PROSE_LETTERS: usize = 28;
const FULL: f32 = 0.06;
/// Lines on both sides of a gutter whose baselines usually differ by more, in sizes of the font, are not cells of one table.
const UNLEVEL: f32 = 0.1;
/// How far apart lines of one paragraph are, at most, in sizes of the font.
const CLOSE: f32 = 1.5;
/// Lines beside a picture for text to run around it.
const BESIDE: usize = 2;
/// Columns within columns.
const DEPTH: usize = 4;

/// Divides `pieces` into regions of one column each, in reading order.
pub(crate) fn regions(pieces: Vec<Piece>, gutters: &mut Gutters) -> Vec<Vec<Piece>> {
    let mut regions = Vec::new();
    divide(pieces, gutters, 0, &mut regions);
    regions
}

fn divide(pieces: Vec<Piece>, gutters: &mut Gutters, depth: usize, regions: &mut Vec<Vec<Piece>>) {
    let (gutter, tables) = if depth < DEPTH { text_gutter(&pieces, gutters) } else { (None, Vec::new()) };
    let mut sorted = pieces;
    let Some(gutter) = gutter else {
        if depth < DEPTH && sorted.len() > 2 * LINES {
            sorted.sort_by(|one, other| one.area().top.total_cmp(&other.area().top));
            match bands::find(sorted, gutters, is_gutter) {
                Ok(parts) => {
                    parts.into_iter().for_each(|part| divide(part, gutters, depth + 1, regions));
                    return;
                }
                Err(pieces) => sorted = pieces,
            }
        }
        if !sorted.is_empty() {
            regions.push(sorted);
        }
        return;
    };
    sorted.sort_by(|one, other| one.area().top.total_cmp(&other.area().top));
    let lines: Vec<Area> = sorted.iter().filter(|piece| piece.is_line()).map(Piece::area).collect();
    let mut above: Vec<Piece> = Vec::new();
    let (mut left, mut right): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
    for piece in sorted {
        let area = piece.area();
        let is_in_table = |table: &Area| crosses(table, gutter) && piece.is_line() && is_inside(&area, table);
        if !piece.is_line() && crosses(&area, gutter) && has_text_beside(&area, &lines) {
            if area.left + area.right <= 2.0 * gutter { left.push(piece) } else { right.push(piece) }
        } else if crosses(&area, gutter) || tables.iter().any(is_in_table) {
            close(&mut left, &mut right, gutters, depth, regions);
            above.push(piece);
        } else {
            if !above.is_empty() {
                regions.push(std::mem::take(&mut above));
            }
            if area.right <= gutter { left.push(piece) } else { right.push(piece) }
        }
    }
    if !above.is_empty() {
        regions.push(above);
    }
    close(&mut left, &mut right, gutters, depth, regions);
}

fn close(
    left: &mut Vec<Piece>,
    right: &mut Vec<Piece>,
    gutters: &mut Gutters,
    depth: usize,
    regions: &mut Vec<Vec<Piece>>,
) {
    for side in [left, right] {
        divide(std::mem::take(side), gutters, depth + 1, regions);
    }
}

/// Whether text runs around a picture, which then divides no columns.
fn has_text_beside(found: &Area, lines: &[Area]) -> bool {
    let is_beside = |line: &&Area| {
        let middle = (line.top + line.bottom) / 2.0;
        let is_outside = line.right <= found.left || line.left >= found.right;
        found.top < middle && middle < found.bottom && is_outside
    };
    lines.iter().filter(is_beside).count() >= BESIDE
}

/// Whether the middle of `area` lies in `table`.
fn is_inside(area: &Area, table: &Area) -> bool {
    let (x, y) = ((area.left + area.right) / 2.0, (area.top + area.bottom) / 2.0);
    table.left <= x && x <= table.right && table.top <= y && y <= table.bottom
}

/// The gutter between columns of text, and the tables without rules that lie across: their rows are not parted.
fn text_gutter(pieces: &[Piece], gutters: &mut Gutters) -> (Option<f32>, Vec<Area>) {
    let all: Vec<&Piece> = pieces.iter().collect();
    let mut gutter = find_gutter(&all, gutters);
    let mut tables = gutter.map_or_else(Vec::new, |gutter| aligned::across(&lines_of(&all), gutter));
    tables.retain(|table| {
        let within = |line: &&Line| is_inside(&line.area, table);
        let lines: Vec<&Line> = lines_of(&all).into_iter().filter(within).collect();
        !gutter.is_some_and(|gutter| is_unlevel(&lines, gutter) || contents::are_beside(&lines, gutter))
    });
    if !tables.is_empty() {
        // The strip may have been that between two columns of the table.
        let is_text = |piece: &&Piece| !tables.iter().any(|table| is_inside(&piece.area(), table));
        let others: Vec<&Piece> = all.into_iter().filter(is_text).collect();
        gutter = find_gutter(&others, gutters);
    }
    if let Some(gutter) = gutter {
        gutters.add(gutter);
    }
    (gutter, tables)
}

fn lines_of<'a>(pieces: &[&'a Piece]) -> Vec<&'a Line> {
    let line = |piece: &&'a Piece| if let Piece::Line(line) = *piece { Some(line) } else { None };
    pieces.iter().filter_map(line).collect()
}

/// The middle of the white strip between two columns of text.
fn find_gutter(pieces: &[&Piece], gutters: &Gutters) -> Option<f32> {
    let lines = lines_of(pieces);
    if lines.len() < 4 {
        return None;
    }
    let areas: Vec<Area> = lines.iter().map(|line| line.area).collect();
    let (left, cover) = strips::cover(&areas);
    let size = median(lines.iter().map(|line| line.size));
    let least = GUTTER.max(size * GUTTER_SIZES);
    for allowed in [0, lines.len() as u32 / 10, lines.len() as u32 / 4] {
        let middles = strips::find(&cover, allowed, least).into_iter().filter_map(|(from, to)| {
            let middle = left + (from + to) / 2.0;
            let known = gutters.iter().any(|gutter| (gutter - middle).abs() < size);
            let is_one = is_between_columns(pieces, &lines, middle, known) && !is_within_text(&lines, middle);
            is_one.then_some((middle, to - from))
        });
        // A strip beside which lines are not level, such as that between a table and text, before one within the table; then the one
        // that fewest lines cross, and the widest.
        let merit = |(middle, width): &(f32, f32)| {
            let crossing = lines.iter().filter(|line| crosses(&line.area, *middle)).count();
            (is_unlevel(&lines, *middle), Reverse(crossing), *width)
        };
        let best = middles.reduce(|best, other| if merit(&other) > merit(&best) { other } else { best });
        if let Some((middle, _)) = best {
            return Some(middle);
        }
    }
    None
}

/// Whether there are columns of running text on both sides of `gutter`, and no table across.
fn is_gutter(pieces: &[&Piece], gutter: f32) -> bool {
    let lines = lines_of(pieces);
    is_between_columns(pieces, &lines, gutter, false)
        && (is_unlevel(&lines, gutter) || is_between_prose(&lines, gutter))
        && !is_within_text(&lines, gutter)
        && aligned::across(&lines, gutter).is_empty()
}

/// Whether the lines on both sides of `gutter` are long, and most of them end at the same edge.
fn is_between_prose(lines: &[&Line], gutter: f32) -> bool {
    let is_prose = |side: &dyn Fn(&Area) -> bool| {
        let rows = rows_of(lines.iter().copied().filter(|line| side(&line.area)));
        let right = rows.iter().map(|(area, _)| area.right).fold(f32::MIN, f32::max);
        let is_full = |area: &Area| right - area.right < FULL * area.width();
        let full = rows.iter().filter(|(area, letters)| *letters >= PROSE_LETTERS && is_full(area)).count();
        2 * full > rows.len()
    };
    is_prose(&|area| area.right <= gutter) && is_prose(&|area| area.left >= gutter)
}

/// Whether the lines left and right of `gutter` are set independently of each other.
fn is_unlevel(lines: &[&Line], gutter: f32) -> bool {
    let mut right: Vec<f32> =
        lines.iter().filter(|line| line.area.left >= gutter).map(|line| line.baseline).collect();
    right.sort_by(f32::total_cmp);
    let left = lines.iter().filter(|line| line.area.right <= gutter);
    let distances: Vec<f32> = left
        .filter_map(|line| {
            let at = right.partition_point(|baseline| *baseline < line.baseline);
            let beside = [at.checked_sub(1), Some(at)].into_iter().flatten().filter_map(|at| right.get(at));
            let nearest = beside.map(|baseline| (baseline - line.baseline).abs()).reduce(f32::min)?;
            let distance = nearest / line.size.max(1.0);
            (distance < 1.0).then_some(distance)
        })
        .collect();
    distances.len() >= LINES && median(distances.into_iter()) > UNLEVEL
}

/// Whether lines that have a gap at `gutter` are justified ones of paragraphs, whose other lines lie across.
fn is_within_text(lines: &[&Line], gutter: f32) -> bool {
    let mut sorted = lines.to_vec();
    sorted.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let near = |line: &Line, distance: f32| {
        let from = sorted.partition_point(|other| other.baseline < line.baseline - distance);
        let to = sorted.partition_point(|other| other.baseline <= line.baseline + distance);
        sorted[from..to.max(from)].iter().copied()
    };
    let (mut parted, mut within) = (0, 0);
    for left in lines.iter().filter(|line| line.area.right <= gutter) {
        let size = left.size.max(1.0);
        let beside = |other: &&Line| other.area.left >= gutter && other.is_level_with(left);
        let Some(right) = near(left, size).find(beside) else { continue };
        let is_same_text = |other: &Line| {
            crosses(&other.area, gutter)
                && (other.size - left.size).abs() < 0.1 * size
                && ((other.area.left - left.area.left).abs() < size
                    || (other.area.right - right.area.right).abs() < size)
        };
        parted += 1;
        within += usize::from(near(left, CLOSE * size).any(is_same_text));
    }
    2 * within > parted
}

/// Whether there is running text on both sides of `gutter`.
fn is_between_columns(pieces: &[&Piece], lines: &[&Line], gutter: f32, known: bool) -> bool {
    let is_text = |side: &dyn Fn(&Area) -> bool| {
        let lines: Vec<&Line> = lines.iter().copied().filter(|line| side(&line.area)).collect();
        is_column(&lines, known) || are_columns(&lines)
    };
    let has_found = |side: &dyn Fn(&Area) -> bool| {
        pieces.iter().any(|piece| !piece.is_line() && side(&piece.area()) && piece.area().width() >= COLUMN)
    };
    let (left, right) = (|area: &Area| area.right <= gutter, |area: &Area| area.left >= gutter);
    let (text_left, text_right) = (is_text(&left), is_text(&right));
    (text_left && (text_right || has_found(&right))) || (text_right && has_found(&left))
}

/// Whether `lines` look like a column of running text.
fn is_column(lines: &[&Line], known: bool) -> bool {
    let rows = rows_of(lines.iter().copied());
    if rows.is_empty() {
        return false;
    }
    let left = rows.iter().map(|(area, _)| area.left).fold(f32::MAX, f32::min);
    let right = rows.iter().map(|(area, _)| area.right).fold(f32::MIN, f32::max);
    let filled = median(rows.iter().map(|(area, _)| area.width())) / (right - left).max(1.0);
    let letters = rows.iter().map(|(_, letters)| letters).sum::<usize>() / rows.len();
    let enough = if known { 1 } else { LINES };
    rows.len() >= enough
        && (known || (filled >= FILLED && letters >= LETTERS))
        && right - left >= COLUMN / 2.0
}

/// Whether `lines` are two columns beside each other, of which not every line has one beside it.
fn are_columns(lines: &[&Line]) -> bool {
    let areas: Vec<Area> = lines.iter().map(|line| line.area).collect();
    strips::middles(&areas).into_iter().any(|gutter| {
        let (left, right): (Vec<&Line>, Vec<&Line>) = lines
            .iter()
            .filter(|line| !crosses(&line.area, gutter))
            .partition(|line| line.area.right <= gutter);
        is_column(&left, false) && is_column(&right, false)
    })
}

/// Areas and letters of whole lines: justified text may have been taken apart at wide spaces.
fn rows_of<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<(Area, usize)> {
    let mut sorted: Vec<&Line> = lines.collect();
    sorted.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let of_row = |row: &[&Line]| {
        let area = row.iter().skip(1).fold(row[0].area, |area, line| area.union(&line.area));
        (area, row.iter().map(|line| line.letters()).sum())
    };
    sorted.chunk_by(|one, other| one.is_level_with(other)).map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::aligned::tests::pieces, *};

    fn texts(sketch: &str) -> Vec<Vec<String>> {
        let pieces = pieces(sketch, false).into_iter().map(Piece::Line).collect();
        let text = |piece: Piece| if let Piece::Line(line) = piece { Some(line.text()) } else { None };
        let regions = regions(pieces, &mut Gutters::default()).into_iter();
        regions.map(|region| region.into_iter().filter_map(text).collect()).collect()
    }

    #[test]
    fn rows_of_a_table_are_not_parted() {
        let sketch = "
District of the northern hills      120,500    118,200    12,300
District of the river mouth          98,400     99,100     4,700
District of the eastern plains      230,000    211,900    18,100
District of the southern coast       87,600     90,200     3,600
District of the western lakes       143,700    139,500    11,800
";
        let pieces: Vec<Piece> = pieces(sketch, false).into_iter().map(Piece::Line).collect();
        let gutter = find_gutter(&pieces.iter().collect::<Vec<_>>(), &Gutters::default());
        assert!(gutter.is_some(), "its columns look like columns of text");
        assert_eq!(texts(sketch).len(), 1);
    }

    #[test]
    fn text_beside_a_table_is_no_column_of_it() {
        let table = "
Maine        1,227.9    1,274.9       3.8
New York    17,990.5   18,976.5       5.5
Vermont        562.8      608.8       8.2
Texas       16,986.5   20,851.8      22.8
Ohio        10,847.1   11,353.1       4.7
Oregon       2,842.3    3,421.4      20.4
";
        let text = "
                                               the census counts all people
                                               in the state it finds, be it
                                               where they were born or not;
                                               all others are away for some
                                               months are counted at home,
                                               and so are all the others
";
        let mut lines = pieces(table, false);
        let mut beside = pieces(text, false);
        for (number, line) in beside.iter_mut().enumerate() {
            let by = 3.5 - 0.5 * number as f32;
            line.baseline += by;
            for word in &mut line.words {
                word.baseline += by;
                (word.area.top, word.area.bottom) = (word.area.top + by, word.area.bottom + by);
            }
            (line.area.top, line.area.bottom) = (line.area.top + by, line.area.bottom + by);
        }
        lines.extend(beside);
        let regions = regions(lines.into_iter().map(Piece::Line).collect(), &mut Gutters::default());
        let text = |region: &Vec<Piece>| -> String {
            let text =
                |piece: &Piece| if let Piece::Line(line) = piece { line.text() } else { String::new() };
            region.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = regions.iter().map(text).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("20.4") && !texts[0].contains("census"), "{texts:?}");
    }

    #[test]
    fn justified_lines_are_not_parted_by_the_gutter_of_another_page() {
        let sketch = "
and so it is
you have to set the  name of it in      the file that the packages read all
as described in the text, or otherwise your mail is rejected by the next one
ready
done now
";
        let pieces = pieces(sketch, false).into_iter().map(Piece::Line).collect();
        assert_eq!(regions(pieces, &mut Gutters(vec![111.0])).len(), 1);
    }

    #[test]
    fn columns_of_text_are_read_one_after_the_other() {
        let sketch = "
the pump moves water from one tank      it is stopped by a valve, which the
to the other, as long as there is       operator opens by hand; none of them
any of it left, and the motor has       is near while it is under pressure,
all the current that it needs, so       as the law says, and so do they all
that no heat is lost while it runs      have seen what a burst pipe can do
";
        let regions = texts(sketch);
        assert_eq!(regions.len(), 2);
        assert!(regions[0][0].starts_with("the pump") && regions[1][0].starts_with("it is"));
    }

    #[test]
    fn columns_of_an_index_are_read_one_after_the_other() {
        let entry = |row: usize| format!("Entry {row}0 about it ........ {row}0");
        // The last column is short.
        let columns = [9, 9, 5].map(|rows| (1..rows).map(entry).collect::<Vec<_>>().join("\n"));
        let mut lines = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            for mut line in pieces(column, false) {
                // Less than a letter's height lies between them.
                let right = 94.5 * number as f32;
                line.words.iter_mut().for_each(|word| {
                    (word.area.left, word.area.right) = (word.area.left + right, word.area.right + right);
                    word.style.size = 9.0;
                });
                lines.push(Line::new(line.words));
            }
        }
        let regions = regions(lines.into_iter().map(Piece::Line).collect(), &mut Gutters::default());
        assert_eq!(regions.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 4]);
    }

    const LISTING: &str = "
v0 := load state of the record that holds one trace of this program, from the first of its loops on
store v0 to the stack of the interpreter, found in the second register of the processor until then
v1 := load key of the record that holds one trace of this program, from the first of its loops on
v2 := convert key to a number with a point, and leave the first one as it is, for some later use
store v1 to the stack of the interpreter, found in the second register of the processor until then
v3 := load the place of the field in memory, and leave if it is not there or is not one of these
v4 := add one to v3, the place of the next one, and leave if there is none, or it is not a number
";

    #[test]
    fn columns_below_wide_lines_are_found() {
        let sketch = format!(
            "{LISTING}
the pump moves water from one tank to the other,        it is stopped by a valve, opened by hand from the
as long as there is any left in it, and the motor       other side of the wall; they open the valve or
needs a current of its own then, so that no heat        stands near it while it is under pressure, so the
is lost while it runs, nor any of the time of them      law says, and so does everybody that has seen one
that look after it, for it does so well, and alone.     burst on a cold day, and heard the noise it made.
"
        );
        let regions = texts(&sketch);
        assert_eq!(regions.iter().map(Vec::len).collect::<Vec<_>>(), [7, 5, 5], "{regions:?}");
        assert!(regions[1][0].starts_with("the pump") && regions[2][0].starts_with("it is"));
    }

    #[test]
    fn table_below_wide_lines_stays_whole() {
        let sketch = format!(
            "{LISTING}
Screening of the report                 Attempted reunion of them
Plan to protect them                    Referral to services
First assessment of it                  Help with journeys
Plan for their safety                   Work with the police
Custody for a time                      Work with doctors
"
        );
        assert_eq!(texts(&sketch).len(), 1);
    }
}
