//! Labels of lists and numbered headings in open documents, ISO 26300 part 3, 16.29.

use std::collections::HashMap;

use super::{
    numbering::{Format, Label},
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

const LEVELS: usize = 10;

/// How the items of each level are numbered.
type Levels = [Level; LEVELS];

#[derive(Debug, Clone)]
struct Level {
    format: Format,
    prefix: String,
    suffix: String,
    /// With `%1%` for the number of the first level; older programs say how many levels are shown.
    pattern: Option<String>,
    shown: usize,
    start: u64,
}

impl Default for Level {
    fn default() -> Self {
        let (prefix, suffix) = (String::new(), String::new());
        Self { format: Format::None, prefix, suffix, pattern: None, shown: 1, start: 1 }
    }
}

/// Styles of lists by their names, and that of headings.
#[derive(Debug, Default)]
pub(super) struct ListStyles {
    styles: HashMap<String, Levels>,
    headings: Levels,
}

/// How far a list has counted on each level.
#[derive(Debug, Clone, Default)]
struct Counts([Option<u64>; LEVELS]);

/// The open lists, one within the other, and those before.
#[derive(Debug, Default)]
pub(super) struct Lists {
    open: Vec<Open>,
    counts: Counts,
    headings: Counts,
    by_style: HashMap<String, Counts>,
    by_id: HashMap<String, Counts>,
}

#[derive(Debug)]
struct Open {
    style: String,
    id: Option<String>,
    /// Of the open item: whether its number is written already, or it has none.
    is_begun: bool,
}

/// How a paragraph stands in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Outside,
    /// First of an item.
    Starts {
        level: usize,
        label: Label,
    },
    /// Further one of an item.
    Continues {
        level: usize,
    },
}

impl ListStyles {
    /// Adds the styles in `xml`.
    pub(super) fn read(&mut self, xml: &str) -> Result<(), Failure> {
        let mut name = None;
        xml::walk(xml, |node| match node {
            Node::Open("list-style", attributes) => name = attributes.get("name").map(str::to_owned),
            Node::Close("list-style") => name = None,
            Node::Open("outline-level-style", attributes) => set(&mut self.headings, attributes, true),
            Node::Open(
                kind @ ("list-level-style-number" | "list-level-style-bullet" | "list-level-style-image"),
                attributes,
            ) => {
                if let Some(name) = &name {
                    let levels = self.styles.entry(name.clone()).or_default();
                    set(levels, attributes, kind.ends_with("number"));
                }
            }
            _ => {}
        })
    }
}

fn set(levels: &mut Levels, attributes: Attributes<'_>, is_numbered: bool) {
    let get = |name: &str| attributes.get(name).unwrap_or_default();
    let Some(level) =
        get("level").parse::<usize>().ok().and_then(|level| levels.get_mut(level.wrapping_sub(1)))
    else {
        return;
    };
    *level = Level {
        format: if is_numbered { Format::of_example(get("num-format")) } else { Format::None },
        prefix: get("num-prefix").to_owned(),
        suffix: get("num-suffix").to_owned(),
        pattern: attributes.get("num-list-format").map(str::to_owned),
        shown: get("display-levels").parse().unwrap_or(1),
        start: get("start-value").parse().unwrap_or(1),
    };
}

impl Counts {
    /// Counts an item; returns its label.
    fn next(&mut self, levels: &Levels, level: usize) -> Label {
        let level = level.min(LEVELS - 1);
        let start = |level: usize| levels[level].start;
        self.0[level] = Some(self.0[level].map_or(start(level), |count| count.saturating_add(1)));
        self.0[level + 1..].fill(None);
        let style = &levels[level];
        if style.format == Format::None {
            return Label::Bullet;
        }
        let number = |level: usize| levels[level].format.write(self.0[level].unwrap_or(start(level)));
        if let Some(pattern) = &style.pattern {
            let mut text = pattern.clone();
            (0..=level).for_each(|level| text = text.replace(&format!("%{}%", level + 1), &number(level)));
            return Label::new(&text);
        }
        let first = (level + 1).saturating_sub(style.shown.max(1));
        let numbers: Vec<String> = (first..=level).map(number).filter(|number| !number.is_empty()).collect();
        Label::new(&format!("{}{}{}", style.prefix, numbers.join("."), style.suffix))
    }
}

impl Lists {
    /// Opens a list; a nested one without a style name inherits the style of its parent.
    pub(super) fn open(&mut self, attributes: Attributes<'_>) {
        let inherited = self.open.last().map(|last| last.style.clone()).unwrap_or_default();
        let style = attributes.get("style-name").map_or(inherited, str::to_owned);
        if self.open.is_empty() {
            let continued = attributes.get("continue-list").and_then(|id| self.by_id.get(id));
            let continues = attributes.get("continue-numbering") == Some("true");
            let before = continued.or_else(|| self.by_style.get(&style).filter(|_| continues));
            self.counts = before.cloned().unwrap_or_default();
        }
        let id = attributes.get("id").map(str::to_owned);
        self.open.push(Open { style, id, is_begun: true });
    }

    /// The innermost list ends; true if it was the outermost.
    pub(super) fn close(&mut self) -> bool {
        let Some(closed) = self.open.pop() else { return false };
        if self.open.is_empty() {
            self.by_style.insert(closed.style, self.counts.clone());
            self.by_id.extend(closed.id.map(|id| (id, self.counts.clone())));
        }
        self.open.is_empty()
    }

    /// Starts an item; a list header has no number.
    pub(super) fn begin_item(&mut self, attributes: Attributes<'_>, is_header: bool) {
        let level = self.open.len().saturating_sub(1).min(LEVELS - 1);
        if let Some(start) = attributes.get("start-value").and_then(|start| start.parse::<u64>().ok()) {
            self.counts.0[level] = start.checked_sub(1);
        }
        self.open.iter_mut().last().into_iter().for_each(|last| last.is_begun = is_header);
    }

    /// Where a paragraph with text stands.
    pub(super) fn place(&mut self, styles: &ListStyles) -> Place {
        let level = self.open.len().saturating_sub(1);
        let Some(last) = self.open.last_mut() else { return Place::Outside };
        if std::mem::replace(&mut last.is_begun, true) {
            return Place::Continues { level };
        }
        let label = styles.styles.get(&last.style).map(|levels| self.counts.next(levels, level));
        Place::Starts { level, label: label.unwrap_or_default() }
    }

    /// The label of a heading outside of lists.
    pub(super) fn heading(&mut self, styles: &ListStyles, level: u8) -> Label {
        self.headings.next(&styles.headings, usize::from(level.max(1)) - 1)
    }
}
