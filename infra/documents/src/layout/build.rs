//! Groups become blocks, and what a column or page has cut in two is joined.

use std::{collections::HashMap, ops::RangeInclusive};

use signalbox_pdf::Area;

use super::{
    PageContent, Part,
    contents::Title,
    flow::{Group, Kind, Usual},
    hyphens::Words,
    line::Line,
    marker::{self, Marker},
};
use crate::block::{Block, BlockPlace, Content, Item};

/// Levels of headings.
const LEVELS: usize = 6;
/// By how much the sizes of one level may differ.
const SAME: f32 = 0.06;
/// Items whose markers are no further apart are of one level, in points.
const LEVEL: f32 = 4.0;
/// How often a text stands as a label before it is one.
const LABELS: usize = 3;
/// How far a label stands to the right of the headings, in points: a column would stand further.
const LABEL_INDENT: RangeInclusive<f64> = 3.0..=60.0;

/// How far a definition is set in and below its term, how high one of several lines is, in sizes of the font, and how many of those
/// there are in a document that has any.
const TERM_INDENT: f64 = 1.2;
const TERM_DISTANCE: f64 = 1.2;
const TERM_LINES: f64 = 1.8;
const TERMS: usize = 3;
/// Headings with numbers in a document that has such, at least.
const NUMBERED: usize = 10;

/// A block that is not finished.
struct Draft {
    page: usize,
    content: Content,
    places: Vec<BlockPlace>,
    /// Size of the letters, and whether a heading's are bold.
    size: f32,
    bold: bool,
    /// Whether the text may go on in the next column.
    is_open: bool,
    /// Of items: where their markers stand, in order.
    markers: Vec<f32>,
    /// Of a table of contents: the last page that it stands on.
    contents_to: Option<usize>,
}

impl Draft {
    fn new(page: usize, content: Content, size: f32, place: Option<BlockPlace>) -> Self {
        Self {
            page,
            content,
            places: place.into_iter().collect(),
            size,
            bold: false,
            is_open: false,
            markers: Vec::new(),
            contents_to: None,
        }
    }

    /// Makes a paragraph of a heading.
    fn make_text(&mut self) {
        if let Content::Heading { text, .. } = &mut self.content {
            self.content = Content::Paragraph(std::mem::take(text));
        }
    }

    fn add_place(&mut self, place: BlockPlace) {
        BlockPlace::add(&mut self.places, place);
    }
}

/// Collects the parts of a document, page by page.
pub(super) struct Builder<'a> {
    usual: Usual,
    known: &'a Words,
    drafts: Vec<Draft>,
    /// Where the last column began, in `drafts`.
    column: usize,
    page: usize,
    /// Width of the page if left and right are exchanged on it.
    mirrored: Option<f32>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(usual: Usual, known: &'a Words) -> Self {
        Self { usual, known, drafts: Vec::new(), column: 0, page: 0, mirrored: None }
    }

    /// Starts with `page`.
    pub(super) fn begin(&mut self, page: &PageContent) {
        (self.page, self.mirrored) = (page.number, page.is_mirrored.then_some(page.width));
    }

    fn place(&self, area: &Area) -> BlockPlace {
        let seen = match self.mirrored {
            Some(width) => Area { left: width - area.right, right: width - area.left, ..*area },
            None => *area,
        };
        BlockPlace::new(self.page, &seen)
    }

    /// Takes the parts of the page in reading order.
    pub(super) fn page(&mut self, parts: Vec<Part>) {
        for part in parts {
            let begun = self.drafts.len();
            match part {
                Part::Groups(groups) => groups.into_iter().for_each(|group| self.group(group)),
                Part::Table(table, area) => self.push(Content::Table(table), Some(&area)),
                Part::Contents(items, size, area) => self.contents(items, size, &area),
                Part::Image(text, area) => self.push(Content::ImageRef(text), Some(&area)),
            }
            self.join(begun);
        }
    }

    /// Puts the figures of the page before what follows below them in the same column, such as their captions.
    pub(super) fn figures(&mut self, areas: &[Area]) {
        for (index, area) in areas.iter().enumerate() {
            let place = self.place(area);
            let [left, top, right, bottom] = place.bbox;
            let middle = (top + bottom) / 2.0;
            let follows = |draft: &Draft| {
                let first = draft.places.first().filter(|first| first.page == place.page);
                first.is_some_and(|first| {
                    first.bbox[1] >= middle && first.bbox[0] < right && left < first.bbox[2]
                })
            };
            let begun =
                self.drafts.iter().rposition(|draft| draft.page < self.page).map_or(0, |last| last + 1);
            let at =
                self.drafts[begun..].iter().position(follows).map_or(self.drafts.len(), |next| begun + next);
            let text = format!("page {}, figure {}", self.page, index + 1);
            self.drafts.insert(at, Draft::new(self.page, Content::ImageRef(text), 0.0, Some(place)));
            self.column += usize::from(at < self.column);
        }
    }

    /// Takes text that stands for itself.
    pub(super) fn paragraph(&mut self, text: String, area: Option<&Area>) {
        self.push(Content::Paragraph(text), area);
    }

    /// A table of contents, which may go on on the next page at the level where it stopped.
    fn contents(&mut self, titles: Vec<Title>, size: f32, area: &Area) {
        let (page, place) = (self.page, self.place(area));
        let before = self.drafts.last().and_then(|last| last.contents_to);
        if before.is_none_or(|before| before + 1 < page) {
            let content = Content::List { ordered: false, items: Vec::new() };
            self.drafts.push(Draft::new(page, content, size, None));
        }
        let Some(draft) = self.drafts.last_mut() else { return };
        draft.add_place(place);
        let Draft { content: Content::List { items, .. }, markers, contents_to, .. } = draft else { return };
        *contents_to = Some(page);
        for Title { left, text } in titles {
            if markers.is_empty() {
                markers.push(left);
            }
            items.push(Item { level: level_of(markers, left), text, ..Item::default() });
        }
    }

    fn push(&mut self, content: Content, area: Option<&Area>) {
        let place = area.map(|area| self.place(area));
        self.drafts.push(Draft::new(self.page, content, 0.0, place));
    }

    fn group(&mut self, group: Group) {
        let Some(first) = group.lines.first() else { return };
        let (size, bold) = (first.size, first.bold);
        match group.kind {
            Kind::Item { marker, left } => self.item(&group, marker, left),
            Kind::Text => {
                let text = self.running(&group.lines, &group.ended);
                let content = if self.usual.is_heading(&group.lines) {
                    Content::Heading { level: 0, text: text.replace('\n', " ") }
                } else {
                    Content::Paragraph(text)
                };
                let draft = Draft::new(self.page, content, size, Some(self.place(&area_of(&group.lines))));
                self.drafts.push(Draft { bold, is_open: group.is_full, ..draft });
            }
        }
    }

    /// The lines as running text; where a line ended before its time, the break stays.
    fn running(&self, lines: &[Line], ended: &[bool]) -> String {
        let mut text = String::new();
        for (index, line) in lines.iter().enumerate() {
            if index > 0 && ended[index - 1] {
                text.push('\n');
                text.push_str(&line.text());
            } else {
                self.known.append(&mut text, &line.text());
            }
        }
        text
    }

    fn item(&mut self, group: &Group, marker: Marker, mut left: f32) {
        let place = self.place(&area_of(&group.lines));
        let mut lines = group.lines.clone();
        let size = lines[0].size;
        let words = &mut lines[0].words;
        let marker_text = words.remove(0).text;
        // An inner list at the start of its item has its marker beside the outer one.
        while words.len() > 1 && marker::marker(&words[0].text) == Some(Marker::Bullet) {
            left = words.remove(0).area.left;
        }
        let mut text = String::new();
        lines.iter().for_each(|line| self.known.append(&mut text, &line.text()));
        let number = if let Marker::Number(number) = marker { Some(number) } else { None };
        let is_plain = number.is_some_and(|number| marker_text == format!("{number}."));
        let marker = Some(marker_text).filter(|_| number.is_some() && !is_plain);
        if let Some(Draft { content: Content::List { ordered, items }, markers, is_open, places, .. }) =
            self.drafts.last_mut()
        {
            let level = level_of(markers, left);
            // Another kind of marker at the outermost level starts another list.
            if level > 0 || *ordered == number.is_some() {
                items.push(Item { level, number, marker, text });
                *is_open = group.is_full;
                BlockPlace::add(places, place);
                return;
            }
        }
        let items = vec![Item { level: 0, number, marker, text }];
        let content = Content::List { ordered: number.is_some(), items };
        let markers = vec![left];
        let draft = Draft::new(self.page, content, size, Some(place));
        self.drafts.push(Draft { is_open: group.is_full, markers, ..draft });
    }

    /// Joins the last block of the previous column with the first one of the column starting at `begun`.
    fn join(&mut self, begun: usize) {
        let before = (self.column..begun).rev().find(|index| self.is_body(*index));
        let is_new = begun < self.drafts.len();
        if let Some(before) = before.filter(|_| is_new) {
            let (earlier, later) = self.drafts.split_at_mut(begun);
            let (one, other) = (&mut earlier[before], &mut later[0]);
            if merge(one, other, self.known) {
                let merged = self.drafts.remove(begun);
                merged.places.into_iter().for_each(|place| self.drafts[before].add_place(place));
            }
        }
        if is_new {
            self.column = begun.min(self.drafts.len());
        }
    }

    /// Whether the draft is of the running text, and not a footnote or a picture between its parts.
    fn is_body(&self, index: usize) -> bool {
        let draft = &self.drafts[index];
        let is_image = matches!(draft.content, Content::ImageRef(_));
        !is_image && (draft.size == 0.0 || draft.size >= 0.92 * self.usual.size)
    }

    /// Makes text of lines that look like headings and stand again and again in boxes, further right than headings that stand once:
    /// "Note", "Tip" and "Warning" head no part of a document.
    fn find_labels(&mut self) {
        let mut often: HashMap<&str, usize> = HashMap::new();
        for draft in &self.drafts {
            if let Content::Heading { text, .. } = &draft.content {
                *often.entry(text).or_default() += 1;
            }
        }
        let mut labels: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut headings_left = None;
        for (index, draft) in self.drafts.iter().enumerate() {
            let Content::Heading { text, .. } = &draft.content else { continue };
            let Some(left) = draft.places.first().map(|place| place.bbox[0]) else { continue };
            if often.get(text.as_str()).is_none_or(|times| *times < LABELS) {
                // Bold lines may be of boxes and tables, too.
                if self.usual.is_large(draft.size) || depth_of(text).is_some() {
                    headings_left = Some(left);
                }
            } else if headings_left.is_some_and(|headings| LABEL_INDENT.contains(&(left - headings))) {
                labels.entry(text).or_default().push(index);
            }
        }
        let labels = labels.into_values().filter(|places| places.len() >= LABELS);
        for index in labels.flatten().collect::<Vec<_>>() {
            self.drafts[index].make_text();
        }
    }

    /// Makes text of terms: bold lines of the text's size above text that is set in, as definitions are.
    fn find_terms(&mut self) {
        let mut terms = Vec::new();
        // One line may be set in as the first of a paragraph: it says something only among others.
        let mut definitions = 0;
        for (index, pair) in self.drafts.windows(2).enumerate() {
            let [draft, next] = pair else { continue };
            if !self.is_plain_heading(draft) {
                continue;
            }
            let (Some(place), Some(below)) = (draft.places.last(), next.places.first()) else { continue };
            let ([left, _, _, bottom], [begun, top, _, end]) = (place.bbox, below.bbox);
            let size = f64::from(draft.size);
            let is_near = place.page != below.page || (top - bottom).abs() < TERM_DISTANCE * size;
            let is_set_in = (TERM_INDENT * size..=*LABEL_INDENT.end()).contains(&(begun - left));
            let is_text = matches!(next.content, Content::Paragraph(_));
            if is_near && is_set_in && is_text {
                definitions += usize::from(end - top > TERM_LINES * size);
                terms.push(index);
            }
        }
        if definitions >= TERMS {
            terms.into_iter().for_each(|index| self.drafts[index].make_text());
        }
    }

    /// Whether it looks like a heading by its bold letters alone.
    fn is_plain_heading(&self, draft: &Draft) -> bool {
        matches!(&draft.content, Content::Heading { text, .. } if depth_of(text).is_none())
            && !self.usual.is_large(draft.size)
    }

    /// Makes text of bold lines of the text's size that are set in, in a document whose headings have numbers and stand at the
    /// edge: titles of examples and boxes.
    fn find_titles(&mut self) {
        let headings = self.drafts.iter().filter(|draft| matches!(draft.content, Content::Heading { .. }));
        let (plain, others): (Vec<&Draft>, Vec<&Draft>) =
            headings.partition(|draft| self.is_plain_heading(draft));
        let is_numbered = |draft: &&&Draft| matches!(&draft.content, Content::Heading { text, .. } if depth_of(text).is_some());
        let numbered = others.iter().filter(is_numbered).count();
        if numbered < NUMBERED || numbered < plain.len() {
            return;
        }
        // Left and right pages may have edges of their own.
        let mut edges = [None; 2];
        let mut titles = Vec::new();
        for (index, draft) in self.drafts.iter().enumerate() {
            let (Content::Heading { text, .. }, Some(place)) = (&draft.content, draft.places.first()) else {
                continue;
            };
            let edge = &mut edges[place.page % 2];
            if depth_of(text).is_some() {
                *edge = Some(place.bbox[0]);
            } else if self.is_plain_heading(draft)
                && edge.is_some_and(|edge| LABEL_INDENT.contains(&(place.bbox[0] - edge)))
            {
                titles.push(index);
            }
        }
        titles.into_iter().for_each(|index| self.drafts[index].make_text());
    }

    /// The blocks, with the levels of headings known.
    pub(super) fn finish(mut self) -> Vec<Block> {
        self.find_labels();
        self.find_terms();
        self.find_titles();
        let mut styles: Vec<(f32, bool)> = Vec::new();
        for draft in self.drafts.iter().filter(|draft| matches!(draft.content, Content::Heading { .. })) {
            if !styles.iter().any(|style| is_same(*style, (draft.size, draft.bold))) {
                styles.push((draft.size, draft.bold));
            }
        }
        styles.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
        let style_of = |draft: &Draft| {
            styles.iter().position(|style| is_same(*style, (draft.size, draft.bold))).unwrap_or(0)
        };
        // Headings of one style may have levels of their own by their numbers; those without one are of the highest.
        let mut highest: Vec<Option<usize>> = vec![None; styles.len()];
        for draft in &self.drafts {
            if let Content::Heading { text, .. } = &draft.content
                && let Some(depth) = depth_of(text)
                && let Some(least) = highest.get_mut(style_of(draft))
            {
                *least = Some(least.map_or(depth, |least| least.min(depth)));
            }
        }
        let mut open: Vec<(usize, usize)> = Vec::new();
        for draft in &mut self.drafts {
            let style = style_of(draft);
            if let Content::Heading { level, text } = &mut draft.content {
                let depth = depth_of(text).or_else(|| highest.get(style).copied().flatten()).unwrap_or(1);
                // Each is one level below the nearest one before of a higher rank, so that no level is missing.
                open.truncate(open.partition_point(|above| *above < (style, depth)));
                open.push((style, depth));
                *level = open.len().min(LEVELS) as u8;
            }
        }
        self.drafts
            .into_iter()
            .map(|draft| Block {
                page: Some(draft.page),
                content: draft.content,
                places: draft.places,
                words: Vec::new(),
            })
            .collect()
    }
}

fn area_of(lines: &[Line]) -> Area {
    lines.iter().map(|line| line.area).reduce(|one, other| one.union(&other)).unwrap_or_default()
}

fn is_same(one: (f32, bool), other: (f32, bool)) -> bool {
    (one.0 - other.0).abs() <= SAME * one.0.max(other.0) && one.1 == other.1
}

/// How many numbers the number of a heading has: 2 for "3.1 Scope"; none if it has no number.
fn depth_of(text: &str) -> Option<usize> {
    let (first, _) = text.split_once(' ')?;
    let parts = first.trim_end_matches(['.', ')']).split('.');
    let is_number =
        |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_letter = |part: &str| part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_uppercase());
    let fits = parts.clone().enumerate().all(|(at, part)| is_number(part) || (at == 0 && is_letter(part)));
    let depth = parts.clone().count();
    (fits && (depth > 1 || parts.clone().all(is_number))).then_some(depth)
}

/// The level of an item whose marker stands at `left`; `markers` are those of the levels so far.
fn level_of(markers: &mut Vec<f32>, left: f32) -> usize {
    while markers.len() > 1 && markers.last().is_some_and(|last| left < last - LEVEL) {
        markers.pop();
    }
    if markers.last().is_some_and(|last| left > last + LEVEL) {
        markers.push(left);
    }
    markers.len().saturating_sub(1)
}

/// Appends `other` to `one` if a column or page has cut them apart.
fn merge(one: &mut Draft, other: &mut Draft, known: &Words) -> bool {
    let is_alike = (one.size - other.size).abs() <= 0.05 * one.size.max(other.size);
    match (&mut one.content, &mut other.content) {
        (Content::Paragraph(text), Content::Paragraph(next)) => {
            let ended = text.ends_with(['.', '!', '?', ':', '…']);
            let continues = is_alike && one.is_open && !ended;
            if continues {
                known.append(text, next);
                one.is_open = other.is_open;
            }
            continues
        }
        (Content::List { items, .. }, Content::Paragraph(next)) => {
            let last = items.last_mut().filter(|_| is_alike && one.is_open);
            let open = last.filter(|last| {
                let starts_small = next.chars().next().is_some_and(char::is_lowercase);
                !last.text.ends_with(['.', '!', '?']) && starts_small
            });
            match open {
                Some(last) => {
                    known.append(&mut last.text, next);
                    true
                }
                None => false,
            }
        }
        (Content::List { ordered, items }, Content::List { ordered: also, items: next }) => {
            let follows = *ordered == *also
                && is_alike
                && match (
                    items.iter().rev().find_map(|item| item.number),
                    next.first().and_then(|item| item.number),
                ) {
                    (Some(last), Some(first)) => first == last + 1,
                    (None, None) => true,
                    _ => false,
                };
            if follows {
                items.append(next);
                one.is_open = other.is_open;
            }
            follows
        }
        (Content::Table(table), Content::Table(next)) => one.page < other.page && table.continue_with(next),
        _ => false,
    }
}
