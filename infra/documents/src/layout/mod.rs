//! Layout analysis: words with places become blocks.
//!
//! The steps, per page unless said otherwise: tables between rules are taken out; words become pieces of lines;
//! headers, footers and page numbers, recognised by their look and repetition, are removed except for the first;
//! pieces are put into reading order, column by column; tables of contents become lists; pieces that are aligned
//! below each other become tables; lines become groups; groups become headings (by the meaning of their look in the
//! whole document), list items, or paragraphs; blocks cut by the end of a column or page are joined.

mod aligned;
mod alignment;
mod bands;
mod build;
mod captions;
mod columns;
mod contents;
mod direction;
mod figures;
mod flow;
mod hyphens;
mod justified;
mod line;
mod list;
mod margins;
mod marker;
mod parted;
mod piece;
mod ruled;
mod spans;
mod strips;
mod upright;

use signalbox_pdf::{Area, Rule, Shape, Word};

use crate::{block::Block, table::Table};

use flow::{Group, Usual};
use hyphens::Words;
pub(crate) use line::Line;
use piece::{Gutters, Piece};

/// Smallest side of an image or figure that is worth a reference, in points.
const IMAGE: f32 = 48.0;

/// A page before its layout is understood.
#[derive(Debug, Clone, Default)]
pub struct PageContent {
    /// From 1.
    pub number: usize,
    /// In points.
    pub width: f32,
    /// In points.
    pub height: f32,
    /// In the order of the file.
    pub words: Vec<Word>,
    /// Words beside the page, which are in its footer.
    pub beside: Vec<Word>,
    /// Lines drawn.
    pub rules: Vec<Rule>,
    /// Where images are.
    pub images: Vec<Area>,
    /// Where figures are drawn.
    pub figures: Vec<Area>,
    /// Comments, which have no place in the text.
    pub notes: Vec<String>,
    /// How sure recognition was, 0 to 1; none for text that was in the file.
    pub confidence: Option<f32>,
    /// Whether it took too long to be recognised.
    pub is_left_out: bool,
    /// Quarter turns clockwise by which the page was turned to be read.
    pub turns: u32,
    /// By which lines fell to the right before they were made level; of the turned page.
    pub slope: f32,
    /// Whether left and right were exchanged, to read text from right to left.
    pub is_mirrored: bool,
    /// Places of words whose order was turned round within them, as they stand after that.
    pub runs: Vec<Area>,
}

impl PageContent {
    /// Finds the figures among `shapes`.
    pub(crate) fn find_figures(&mut self, shapes: &[Shape]) {
        self.figures = figures::find(shapes, self.width, self.height, IMAGE);
    }

    /// Turns what is on the page clockwise, by quarters.
    pub(crate) fn turn(&mut self, quarters: u32) {
        for _ in 0..quarters % 4 {
            let height = self.height;
            let turned = |area: Area| Area {
                left: height - area.bottom,
                top: area.left,
                right: height - area.top,
                bottom: area.right,
            };
            for word in &mut self.words {
                word.area = turned(word.area);
                (word.baseline, word.style.turned) = (word.area.bottom, !word.style.turned);
            }
            self.images.iter_mut().chain(&mut self.figures).for_each(|image| *image = turned(*image));
            self.rules =
                std::mem::take(&mut self.rules).into_iter().map(|rule| rule.turned(height)).collect();
            (self.width, self.height) = (self.height, self.width);
        }
    }
}

/// The result of layout analysis.
#[derive(Debug, Default)]
pub struct Layout {
    /// The content in reading order.
    pub blocks: Vec<Block>,
    /// By page: its header and footer lines, which are in no block.
    pub margins: Vec<(Vec<String>, Vec<String>)>,
}

/// A part of a page in reading order.
enum Part {
    Groups(Vec<Group>),
    Table(Table, Area),
    /// A table of contents, and the size of its letters.
    Contents(Vec<contents::Title>, f32, Area),
    Image(String, Area),
}

/// Understands the layout of a document.
pub fn analyse(mut pages: Vec<PageContent>) -> Layout {
    let mut known = Words::default();
    for page in &mut pages {
        direction::arrange(page);
        known.learn(&page.words);
    }
    let mut tables: Vec<Vec<ruled::Found>> = Vec::new();
    let mut lines: Vec<Vec<Line>> = Vec::new();
    let mut turned: Vec<Vec<Word>> = Vec::new();
    for page in &mut pages {
        let (level, others) =
            std::mem::take(&mut page.words).into_iter().partition(|word| !word.style.turned);
        page.words = level;
        turned.push(upright::arrange(others));
        tables.push(ruled::take(&page.rules, &mut page.words, &known));
        lines.push(line::gather(std::mem::take(&mut page.words)));
    }
    let usual = flow::usual(lines.iter().flatten());
    let mut edged: Vec<margins::Page<'_>> = Vec::with_capacity(pages.len());
    for (index, lines) in lines.iter_mut().enumerate() {
        let has_more =
            !(tables[index].is_empty() && turned[index].is_empty() && pages[index].notes.is_empty());
        edged.push(margins::Page { lines, height: pages[index].height, has_more });
    }
    let margins = margins::take(&mut edged, usual);
    let mut gutters = Gutters::default();
    let mut builder = build::Builder::new(usual, &known);
    for (index, page) in pages.iter().enumerate() {
        let parts = page_parts(
            page,
            std::mem::take(&mut lines[index]),
            std::mem::take(&mut tables[index]),
            &mut gutters,
            usual,
            &known,
        );
        builder.begin(page);
        builder.page(parts);
        builder.figures(&page.figures);
        for line in line::gather(std::mem::take(&mut turned[index])) {
            builder.paragraph(line.text(), Some(&line.area));
        }
        for note in &page.notes {
            builder.paragraph(note.clone(), None);
        }
    }
    let with_beside = |(mut margins, page): (margins::Margins, &PageContent)| {
        margins.footer.extend(beside(page));
        (margins.header, margins.footer)
    };
    let margins = margins.into_iter().zip(&pages).map(with_beside).collect();
    let mut blocks = builder.finish();
    captions::arrange(&mut blocks);
    Layout { blocks, margins }
}

/// The lines of the words beside `page`.
pub(crate) fn beside(page: &PageContent) -> Vec<String> {
    line::gather(page.beside.clone()).iter().map(Line::text).collect()
}

fn page_parts(
    page: &PageContent,
    lines: Vec<Line>,
    tables: Vec<ruled::Found>,
    gutters: &mut Gutters,
    usual: Usual,
    known: &Words,
) -> Vec<Part> {
    let mut found: Vec<Option<Part>> = Vec::new();
    let mut pieces: Vec<Piece> = lines.into_iter().map(Piece::Line).collect();
    let mut place = |area: Area, part: Part, pieces: &mut Vec<Piece>| {
        pieces.push(Piece::Found(area, found.len()));
        found.push(Some(part));
    };
    for table in tables {
        place(table.area, Part::Table(table.content, table.area), &mut pieces);
    }
    let page_area = page.width * page.height;
    let mut number = 0;
    for image in &page.images {
        let is_scan = page.confidence.is_some() && image.width() * image.height() > 0.5 * page_area;
        if !is_scan && image.width() >= IMAGE && image.height() >= IMAGE {
            number += 1;
            let text = format!("page {}, image {number}", page.number);
            place(*image, Part::Image(text, *image), &mut pieces);
        }
    }
    let mut parts = Vec::new();
    for region in columns::regions(pieces, gutters) {
        let mut lines = Vec::new();
        let mut placed: Vec<(Area, usize)> = Vec::new();
        for piece in region {
            match piece {
                Piece::Line(line) => lines.push(line),
                Piece::Found(area, index) => placed.push((area, index)),
            }
        }
        placed.sort_by(|one, other| one.0.top.total_cmp(&other.0.top));
        let mut rest = line::join_level(lines, 1.0);
        for (area, index) in placed {
            let middle = (area.top + area.bottom) / 2.0;
            let below = rest.iter().position(|line| line.baseline > middle).unwrap_or(rest.len());
            let below = rest.split_off(below);
            column_parts(std::mem::replace(&mut rest, below), usual, known, &mut parts);
            parts.extend(found[index].take());
        }
        column_parts(rest, usual, known, &mut parts);
    }
    parts
}

/// Tables and tables of contents that stand in the lines of a column, and the groups between them.
fn column_parts(lines: Vec<Line>, usual: Usual, known: &Words, parts: &mut Vec<Part>) {
    let mut rows = line::rows(lines);
    let mut begun = 0;
    for contents in contents::find(&rows, known) {
        let mut before = std::mem::take(&mut rows);
        rows = before.split_off(contents.rows.end - begun);
        let area = area_of(&before[contents.rows.start - begun..]);
        before.truncate(contents.rows.start - begun);
        begun = contents.rows.end;
        row_parts(before, usual, known, parts);
        parts.push(Part::Contents(contents.titles, contents.size, area));
    }
    row_parts(rows, usual, known, parts);
}

fn area_of(rows: &[Vec<Line>]) -> Area {
    let areas = rows.iter().flatten().map(|line| line.area);
    areas.reduce(|one, other| one.union(&other)).unwrap_or_default()
}

/// Tables that stand in `rows`, and the groups between them.
fn row_parts(rows: Vec<Vec<Line>>, usual: Usual, known: &Words, parts: &mut Vec<Part>) {
    let tables = aligned::find(&rows, known, usual);
    let mut rows = rows.into_iter().enumerate().peekable();
    let text = |rows: Vec<Vec<Line>>, parts: &mut Vec<Part>| {
        let whole = rows.into_iter().filter_map(|row| {
            row.into_iter().reduce(|mut line, piece| {
                line.join(piece);
                line
            })
        });
        let groups = flow::groups(whole.collect(), usual);
        if !groups.is_empty() {
            parts.push(Part::Groups(groups));
        }
    };
    for table in tables {
        let mut before = Vec::new();
        while let Some((_, row)) = rows.next_if(|(index, _)| *index < table.rows.start) {
            before.push(row);
        }
        text(before, parts);
        let mut within = Vec::new();
        while let Some((_, row)) = rows.next_if(|(index, _)| *index < table.rows.end) {
            within.push(row);
        }
        let area = area_of(&within);
        for aligned::Beside { cells, extent } in table.tables {
            let area = Area { left: area.left.max(extent.0), right: area.right.min(extent.1), ..area };
            parts.push(Part::Table(Table::new(cells), area));
        }
    }
    text(rows.map(|(_, row)| row).collect(), parts);
}

/// The lines of a page in reading order.
#[derive(Debug)]
pub(crate) struct LinedPage {
    pub(crate) number: usize,
    pub(crate) width: f32,
    pub(crate) height: f32,
    pub(crate) confidence: Option<f32>,
    /// By column.
    pub(crate) blocks: Vec<Vec<Line>>,
}

impl LinedPage {
    /// Of a page whose words are arranged.
    fn of(page: PageContent, gutters: &mut Gutters) -> Self {
        let pieces = line::gather(page.words).into_iter().map(Piece::Line).collect();
        let mut blocks = Vec::new();
        for region in columns::regions(pieces, gutters) {
            let lines = region.into_iter().filter_map(|piece| match piece {
                Piece::Line(line) => Some(line),
                Piece::Found(..) => None,
            });
            blocks.push(line::join_level(lines.collect(), f32::INFINITY));
        }
        let PageContent { number, width, height, confidence, .. } = page;
        Self { number, width, height, confidence, blocks }
    }

    /// Puts the words of `runs` back to where they stand on the page.
    fn turn_back(&mut self, runs: &[Area]) {
        if runs.is_empty() {
            return;
        }
        for word in self.blocks.iter_mut().flatten().flat_map(|line| &mut line.words) {
            if let Some(run) = runs.iter().find(|run| direction::is_in(run, &word.area)) {
                direction::turn_within(run, &mut word.area);
            }
        }
    }

    /// Exchanges left and right.
    fn mirror(&mut self) {
        let width = self.width;
        let mirrored = |area: Area| Area { left: width - area.right, right: width - area.left, ..area };
        for line in self.blocks.iter_mut().flatten() {
            line.area = mirrored(line.area);
            line.words.iter_mut().for_each(|word| word.area = mirrored(word.area));
        }
    }

    /// The whole page.
    pub(crate) fn area(&self) -> Area {
        Area { left: 0.0, top: 0.0, right: self.width, bottom: self.height }
    }
}

/// The lines of `pages` with their places as a reader sees them.
pub(crate) fn lined(pages: Vec<PageContent>) -> Vec<LinedPage> {
    let mut gutters = Gutters::default();
    let mut lined = Vec::with_capacity(pages.len());
    for mut page in pages {
        direction::arrange(&mut page);
        let (is_mirrored, runs) = (page.is_mirrored, std::mem::take(&mut page.runs));
        let mut page = LinedPage::of(page, &mut gutters);
        page.turn_back(&runs);
        if is_mirrored {
            page.mirror();
        }
        lined.push(page);
    }
    lined
}

/// The text of `pages` line by line in reading order, without any structure: one paragraph per page.
pub fn plain(pages: Vec<PageContent>) -> Vec<Block> {
    let mut gutters = Gutters::default();
    let mut blocks = Vec::new();
    for mut page in pages {
        direction::arrange(&mut page);
        let notes = std::mem::take(&mut page.notes);
        let page = LinedPage::of(page, &mut gutters);
        let mut text = page.blocks.iter().flatten().map(Line::text).collect::<Vec<_>>().join("\n");
        for note in &notes {
            text.push_str(if text.is_empty() { "" } else { "\n\n" });
            text.push_str(note);
        }
        let block = Block::new(crate::block::Content::Paragraph(text));
        blocks.push(Block { page: Some(page.number), ..block });
    }
    blocks
}

#[cfg(test)]
mod tests;
