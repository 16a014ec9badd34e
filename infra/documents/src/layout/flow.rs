//! Groups the lines of a column into paragraphs, items of lists and possible headings.

use super::{
    alignment::median,
    line::Line,
    list,
    marker::{self, Marker},
};

/// Lines of one style that are further apart than this many usual distances belong to different groups.
const LOOSE: f32 = 1.25;
/// How far a line is set in to begin a paragraph, in sizes of the font.
const INDENT: f32 = 0.8;
/// How far a marker is set in at most, where the lines below it are not.
const SET_IN: f32 = 3.0;
/// By how much sizes may differ within a group.
const SIZES: f32 = 0.12;

/// Lines that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) lines: Vec<Line>,
    /// By line: whether it ended although the next word would have found room.
    pub(crate) ended: Vec<bool>,
    /// Whether its last line reaches the right edge, so that it may go on in the next column.
    pub(crate) is_full: bool,
}

/// The kind of a group's first line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Text,
    /// A marker at `left`.
    Item {
        marker: Marker,
        left: f32,
    },
}

/// Measures of the whole document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usual {
    /// Size of running text.
    pub(crate) size: f32,
    /// Distance of lines in sizes of the font.
    pub(crate) leading: f32,
    /// Whether most of the text is bold, so that it says nothing.
    pub(crate) bold: bool,
    /// Whether most of its letters are of one width.
    pub(crate) mono: bool,
}

/// The usual look of `pages`.
pub(crate) fn usual<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> Usual {
    let mut letters: std::collections::HashMap<i32, usize> = std::collections::HashMap::new();
    let (mut bold, mut mono, mut all) = (0, 0, 0);
    for line in lines.clone() {
        let count = line.letters();
        *letters.entry((line.size * 2.0).round() as i32).or_default() += count;
        all += count;
        bold += if line.bold { count } else { 0 };
        mono += if line.mono { count } else { 0 };
    }
    let size = letters
        .iter()
        .max_by_key(|(size, count)| (**count, -**size))
        .map_or(10.0, |(size, _)| *size as f32 / 2.0);
    let mut before: Option<&Line> = None;
    let distances = lines.filter_map(|line| {
        let above = before.replace(line)?;
        let distance = (line.baseline - above.baseline) / size;
        let same = (line.size - size).abs() < 0.6 && (above.size - size).abs() < 0.6;
        (same && distance > 0.8 && distance < 2.2).then_some(distance)
    });
    let leading = median(distances);
    let leading = if leading > 0.0 { leading } else { 1.2 };
    Usual { size, leading, bold: bold * 2 > all, mono: mono * 2 > all }
}

impl Usual {
    /// Whether `lines` look like a heading.
    pub(crate) fn is_heading(&self, lines: &[Line]) -> bool {
        let Some(first) = lines.first() else { return false };
        let letters: usize = lines.iter().map(Line::letters).sum();
        let has_letters =
            lines.iter().any(|line| line.words.iter().any(|word| word.text.chars().any(char::is_alphabetic)));
        if !has_letters || letters > 240 || lines.len() > 4 || first.is_margin {
            return false;
        }
        if self.is_large(first.size) {
            return true;
        }
        let bold = first.bold && !self.bold && first.size >= self.size * 0.95;
        bold && lines.len() <= 3
            && letters <= 160
            && !lines.last().is_some_and(|line| line.ends_with(&['.', ',', ';', ':']))
    }

    /// Whether letters of this size are larger than those of running text.
    pub(super) fn is_large(&self, size: f32) -> bool {
        size >= self.size * 1.14
    }

    /// Whether `line` is set off from running text.
    fn is_larger(&self, line: &Line) -> bool {
        self.is_large(line.size) || (line.bold && !self.bold)
    }

    /// The marker of `line`, unless its look is that of a heading with a number.
    fn item_marker(&self, line: &Line) -> Option<Marker> {
        let marker = list::marker_of(line)?;
        let is_dash = line.words.first().is_some_and(|word| marker::is_dash(&word.text));
        let is_item = match marker {
            Marker::Bullet => !is_dash || !self.is_large(line.size),
            Marker::Number(_) => !self.is_larger(line),
        };
        is_item.then_some(marker)
    }
}

/// Divides the lines of one column, from top to bottom, into groups.
pub(crate) fn groups(lines: Vec<Line>, usual: Usual) -> Vec<Group> {
    let right = lines.iter().map(|line| line.area.right).fold(0.0, f32::max);
    let mut groups: Vec<Group> = Vec::new();
    let mut lines = lines.into_iter().peekable();
    while let Some(mut line) = lines.next() {
        if let Some(Kind::Item { marker: Marker::Number(last), .. }) = groups.last().map(|group| group.kind) {
            list::part_marker(&mut line, last + 1);
        }
        let next = lines.peek();
        let is_continued = groups.last().is_some_and(|open| continues(open, &line, right, usual, next));
        match groups.last_mut() {
            Some(open) if is_continued => open.push(line),
            _ => groups.push(Group::new(line, usual)),
        }
    }
    count_items(&mut groups, usual);
    for group in &mut groups {
        group.finish(right);
    }
    groups
}

/// Makes items of bold lines that count on from each other: between headings, there is text.
fn count_items(groups: &mut [Group], usual: Usual) {
    let counted = |group: &Group| match (group.kind, list::marker_of(&group.lines[0])) {
        (Kind::Text, Some(Marker::Number(number))) if !usual.is_large(group.lines[0].size) => {
            Some((number, group.lines[0].area.left))
        }
        _ => None,
    };
    let counts: Vec<Option<(u64, f32)>> = groups.iter().map(counted).collect();
    let follow = |pair: &[Option<(u64, f32)>]| {
        let [Some((number, left)), Some((next, also))] = pair else { return false };
        *next == number + 1 && (left - also).abs() < 4.0
    };
    for (at, pair) in counts.windows(2).enumerate().filter(|(_, pair)| follow(pair)) {
        for (group, count) in groups[at..].iter_mut().zip(pair) {
            if let Some((number, left)) = *count {
                group.kind = Kind::Item { marker: Marker::Number(number), left };
            }
        }
    }
}

impl Group {
    fn new(line: Line, usual: Usual) -> Self {
        let kind = match usual.item_marker(&line) {
            Some(marker) => Kind::Item { marker, left: line.area.left },
            None => Kind::Text,
        };
        Self { kind, lines: vec![line], ended: Vec::new(), is_full: false }
    }

    fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    fn finish(&mut self, right: f32) {
        self.ended =
            self.lines.windows(2).map(|pair| found_room(&pair[0], &pair[1], right)).chain([false]).collect();
        self.is_full = self.lines.last().is_some_and(|last| last.area.right > right - 2.0 * last.size);
    }

    fn last(&self) -> &Line {
        &self.lines[self.lines.len() - 1]
    }

    /// Left edge of an item's text, after its marker.
    fn text_left(&self) -> f32 {
        let first = &self.lines[0];
        match self.kind {
            Kind::Text => first.area.left,
            Kind::Item { .. } => first.words.get(1).map_or(first.area.left, |word| word.area.left),
        }
    }
}

/// Whether the first word of `next` would have found room at the end of `line`, whose column ends at `right`.
fn found_room(line: &Line, next: &Line, right: f32) -> bool {
    let word = next.words.first().map_or(0.0, |word| word.area.width());
    line.area.right + word + 0.6 * line.size < right
}

fn continues(open: &Group, line: &Line, right: f32, usual: Usual, next: Option<&Line>) -> bool {
    let last = open.last();
    let size = last.size.max(line.size).max(1.0);
    let distance = line.baseline - last.baseline;
    let is_heading = usual.is_larger(last) || usual.is_larger(line);
    // A heading may name commands.
    let has_one_font = last.mono == line.mono || (is_heading && last.bold && line.bold);
    let is_alike = (last.size - line.size).abs() <= SIZES * size && has_one_font;
    // An item may start with bold words.
    let is_new_look = last.bold != line.bold && (matches!(open.kind, Kind::Text) || line.bold);
    if !is_alike
        || last.is_margin != line.is_margin
        || (is_heading && is_new_look)
        || distance > LOOSE * usual.leading * size
        || distance < 0.0
    {
        return false;
    }
    let left = open.text_left();
    let room = found_room(last, line, right);
    if let Kind::Item { left: marker, .. } = open.kind {
        // A continuation of an item is indented like its text, or starts below its marker or before it, where the text around the
        // list does, if the item's line was full and its sentence has not ended.
        let is_below = line.area.left > left - 0.6 * size;
        let is_unfinished = !room && !last.ends_with(&['.', '!', '?', ':', ';']);
        let is_flush = is_unfinished && line.area.left > marker - SET_IN * size;
        return list::marker_of(line).is_none() && (is_below || is_flush);
    }
    if usual.item_marker(line).is_some() {
        let hangs = next.is_some_and(|next| next.area.left > line.area.left + 0.5 * size);
        let is_flush = (line.area.left - last.area.left).abs() < 0.5 * size;
        return is_flush && !room && !hangs;
    }
    if is_heading {
        return list::marker_of(line).is_none() || list::marker_of(&open.lines[0]).is_none();
    }
    let is_set_in = line.area.left > left + INDENT * size && line.area.left > last.area.left + INDENT * size;
    let is_list_like = line.words.iter().any(|word| word.text.contains("...."));
    let ended = room && last.ends_with(&['.', '!', '?', ':']);
    !is_set_in && !ended && !is_list_like
}
