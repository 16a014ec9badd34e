//! Reading order: columns of text are read one after the other, what spans them divides the page.

use signalbox_pdf::Area;

use super::{aligned, alignment::median, line::Line};

/// A gutter is at least this wide, in points and in sizes of the font.
const GUTTER: f32 = 8.0;
const GUTTER_SIZES: f32 = 0.8;
/// A column is at least this wide, in points.
const COLUMN: f32 = 80.0;
/// Lines that a column needs if no other page has it.
const LINES: usize = 4;
/// How much of a column its lines fill on average, at least, and how many letters they have: cells of tables do not.
const FILLED: f32 = 0.55;
const LETTERS: usize = 14;
/// Lines on both sides of a gutter whose baselines usually differ by more, in sizes of the font, are not cells of one table.
const UNLEVEL: f32 = 0.1;
/// How far apart lines of one paragraph are, at most, in sizes of the font.
const CLOSE: f32 = 1.5;
/// Lines beside a picture for text to run around it.
const BESIDE: usize = 2;
/// Columns within columns.
const DEPTH: usize = 4;

/// The content of a page, in pieces that are read as a whole.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Line(Line),
    /// A table or image that was found already, with its place in a list.
    Found(Area, usize),
}

impl Piece {
    pub(crate) fn area(&self) -> Area {
        match self {
            Self::Line(line) => line.area,
            Self::Found(area, _) => *area,
        }
    }

    fn is_line(&self) -> bool {
        matches!(self, Self::Line(_))
    }
}

/// The gutters of the pages so far, so that a column of two lines on the last page is seen as one.
#[derive(Debug, Default)]
pub(crate) struct Gutters(Vec<f32>);

/// Divides `pieces` into regions of one column each, in reading order.
pub(crate) fn regions(pieces: Vec<Piece>, gutters: &mut Gutters) -> Vec<Vec<Piece>> {
    let mut regions = Vec::new();
    divide(pieces, gutters, 0, &mut regions);
    regions
}

fn divide(pieces: Vec<Piece>, gutters: &mut Gutters, depth: usize, regions: &mut Vec<Vec<Piece>>) {
    let (gutter, tables) = if depth < DEPTH { text_gutter(&pieces, gutters) } else { (None, Vec::new()) };
    let Some(gutter) = gutter else {
        if !pieces.is_empty() {
            regions.push(pieces);
        }
        return;
    };
    let mut sorted = pieces;
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

fn crosses(area: &Area, gutter: f32) -> bool {
    area.left < gutter && area.right > gutter
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
        !gutter.is_some_and(|gutter| is_unlevel(&lines, gutter))
    });
    if !tables.is_empty() {
        // The strip may have been that between two columns of the table.
        let is_text = |piece: &&Piece| !tables.iter().any(|table| is_inside(&piece.area(), table));
        let others: Vec<&Piece> = all.into_iter().filter(is_text).collect();
        gutter = find_gutter(&others, gutters);
    }
    if let Some(gutter) = gutter
        && !gutters.0.iter().any(|known| (known - gutter).abs() < GUTTER)
        && gutters.0.len() < 64
    {
        gutters.0.push(gutter);
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
    let left = lines.iter().map(|line| line.area.left).fold(f32::MAX, f32::min);
    let right = lines.iter().map(|line| line.area.right).fold(f32::MIN, f32::max);
    let width = (right - left).ceil().clamp(0.0, 20_000.0) as usize;
    // For each point from left to right, how many lines lie over it.
    let mut cover = vec![0_u32; width + 1];
    for line in &lines {
        let (from, to) = ((line.area.left - left) as usize, (line.area.right - left).ceil() as usize);
        cover[from.min(width)..to.min(width)].iter_mut().for_each(|count| *count += 1);
    }
    let size = median(lines.iter().map(|line| line.size));
    let least = GUTTER.max(size * GUTTER_SIZES);
    // A strip beside which lines are not level, such as that between a table and text, before one within the table; then the widest.
    let mut best: Option<(f32, (bool, f32))> = None;
    for allowed in [0, lines.len() as u32 / 10, lines.len() as u32 / 4] {
        for (from, to) in strips(&cover, allowed, least) {
            let middle = left + (from + to) / 2.0;
            let known = gutters.0.iter().any(|gutter| (gutter - middle).abs() < size);
            if is_between_columns(pieces, &lines, middle, known) && !is_within_text(&lines, middle) {
                let merit = (is_unlevel(&lines, middle), to - from);
                if best.is_none_or(|(_, most)| merit > most) {
                    best = Some((middle, merit));
                }
            }
        }
        if best.is_some() {
            break;
        }
    }
    best.map(|(middle, _)| middle)
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

/// Strips of at least `least` points that at most `allowed` lines cross.
fn strips(cover: &[u32], allowed: u32, least: f32) -> Vec<(f32, f32)> {
    let mut found = Vec::new();
    let mut from = None;
    for (at, count) in cover.iter().enumerate() {
        match (from, *count <= allowed) {
            (None, true) => from = Some(at),
            (Some(begun), false) => {
                found.push((begun as f32, at as f32));
                from = None;
            }
            _ => {}
        }
    }
    found.retain(|(from, to)| to - from >= least && *from > COLUMN && cover.len() as f32 - to > COLUMN);
    found
}

/// Whether there is running text on both sides of `gutter`.
fn is_between_columns(pieces: &[&Piece], lines: &[&Line], gutter: f32, known: bool) -> bool {
    let is_text = |side: &dyn Fn(&Area) -> bool| {
        let rows = rows_of(lines.iter().copied().filter(|line| side(&line.area)));
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
    };
    let has_found = |side: &dyn Fn(&Area) -> bool| {
        pieces.iter().any(|piece| !piece.is_line() && side(&piece.area()) && piece.area().width() >= COLUMN)
    };
    let (left, right) = (|area: &Area| area.right <= gutter, |area: &Area| area.left >= gutter);
    let (text_left, text_right) = (is_text(&left), is_text(&right));
    (text_left && (text_right || has_found(&right))) || (text_right && has_found(&left))
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
}
