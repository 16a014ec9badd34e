//! The styles and lists of Word: levels of headings, and the numbers of paragraphs as they are written.

use std::collections::{HashMap, HashSet};

use super::{
    numbering::{Format, Label},
    xml::{self, Node},
};
use crate::failure::Failure;

/// Levels of a list.
const LEVELS: usize = 9;
/// Styles at most in a chain of inheritance.
const ANCESTORS: usize = 10;

/// Styles of paragraphs by their ids.
#[derive(Debug, Default)]
pub(super) struct Styles(HashMap<String, Style>);

#[derive(Debug, Default)]
struct Style {
    based_on: Option<String>,
    /// As a heading; 0 for text.
    level: Option<u8>,
    list: Option<String>,
    depth: Option<usize>,
}

/// Lists by their numbers.
#[derive(Debug, Default)]
pub(super) struct Lists {
    kinds: HashMap<String, [Level; LEVELS]>,
    lists: HashMap<String, List>,
}

#[derive(Debug, Default)]
struct List {
    kind: String,
    /// Where levels begin, if not as their kind says.
    starts: [Option<u64>; LEVELS],
}

#[derive(Debug, Clone)]
struct Level {
    format: Format,
    /// With `%1` for the number of the first level.
    text: String,
    start: u64,
    /// The style whose paragraphs are on this level.
    style: String,
    is_decimal: bool,
}

impl Default for Level {
    fn default() -> Self {
        Self { format: Format::None, text: String::new(), start: 1, style: String::new(), is_decimal: false }
    }
}

/// How far all lists have counted.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counts: HashMap<String, [Option<u64>; LEVELS]>,
    begun: HashSet<String>,
}

impl Styles {
    pub(super) fn read(xml: &str) -> Result<Self, Failure> {
        let mut styles = Self::default();
        let (mut id, mut style) = (String::new(), Style::default());
        xml::walk(xml, |node| match node {
            Node::Open("style", attributes) => {
                id = attributes.get("styleId").unwrap_or_default().to_owned();
                style = Style::default();
            }
            Node::Open(name, attributes) if !id.is_empty() => style.take(name, attributes.get("val")),
            Node::Close("style") => {
                styles.0.insert(std::mem::take(&mut id), std::mem::take(&mut style));
            }
            _ => {}
        })?;
        Ok(styles)
    }

    /// The first answer of the style called `id` or of one that it is based on.
    fn find<T>(&self, id: &str, of: impl Fn(&str, &Style) -> Option<T>) -> Option<T> {
        let mut id = id;
        for _ in 0..ANCESTORS {
            let style = self.0.get(id)?;
            if let Some(found) = of(id, style) {
                return Some(found);
            }
            id = style.based_on.as_deref()?;
        }
        None
    }

    /// The level of headings of this style.
    pub(super) fn level(&self, id: &str) -> Option<u8> {
        self.find(id, |_, style| style.level).filter(|level| *level > 0)
    }

    /// The list of paragraphs of this style, and their level.
    pub(super) fn list(&self, id: &str, lists: &Lists) -> Option<(String, usize)> {
        self.find(id, |id, style| {
            let list = style.list.clone()?;
            let depth = style.depth.or_else(|| lists.depth_of_style(&list, id));
            Some((list, depth.unwrap_or(0)))
        })
    }
}

impl Style {
    fn take(&mut self, name: &str, value: Option<&str>) {
        let value = value.unwrap_or_default();
        match name {
            "name" => {
                let name = value.to_lowercase();
                let heading = name.strip_prefix("heading ").and_then(|level| level.parse().ok());
                self.level = heading.or_else(|| (name == "title").then_some(1)).or(self.level);
            }
            "basedOn" => self.based_on = Some(value.to_owned()),
            "outlineLvl" if self.level.is_none() => {
                self.level = value.parse().ok().map(|level: u8| if level < 9 { level + 1 } else { 0 });
            }
            "numId" => self.list = Some(value.to_owned()),
            "ilvl" => self.depth = value.parse().ok(),
            _ => {}
        }
    }
}

impl Lists {
    pub(super) fn read(xml: &str) -> Result<Self, Failure> {
        let mut lists = Self::default();
        let (mut links, mut targets) = (Vec::new(), HashMap::new());
        let (mut kind, mut list, mut depth) = (String::new(), None::<String>, 0);
        xml::walk(xml, |node| {
            let Node::Open(name, attributes) = node else {
                if matches!(node, Node::Close("num")) {
                    list = None;
                }
                return;
            };
            let get = |name: &str| attributes.get(name).unwrap_or_default().to_owned();
            let value = || get("val");
            match (name, &list) {
                ("abstractNum", _) => {
                    kind = get("abstractNumId");
                    lists.kinds.entry(kind.clone()).or_default();
                }
                ("num", _) => {
                    list = Some(get("numId"));
                    lists.lists.entry(get("numId")).or_default();
                }
                ("styleLink", _) => drop(targets.insert(value(), kind.clone())),
                ("numStyleLink", _) => links.push((kind.clone(), value())),
                ("lvl" | "lvlOverride", _) => depth = get("ilvl").parse().unwrap_or(0).min(LEVELS - 1),
                ("abstractNumId", Some(list)) => lists.lists.entry(list.clone()).or_default().kind = value(),
                ("startOverride", Some(list)) => {
                    lists.lists.entry(list.clone()).or_default().starts[depth] = value().parse().ok();
                }
                (_, None) => {
                    if let Some(levels) = lists.kinds.get_mut(&kind) {
                        levels[depth].take(name, &value());
                    }
                }
                _ => {}
            }
        })?;
        for (kind, link) in links {
            if let Some(levels) = targets.get(&link).and_then(|target| lists.kinds.get(target)).cloned() {
                lists.kinds.insert(kind, levels);
            }
        }
        Ok(lists)
    }

    fn levels(&self, list: &str) -> Option<&[Level; LEVELS]> {
        self.kinds.get(&self.lists.get(list)?.kind)
    }

    fn depth_of_style(&self, list: &str, style: &str) -> Option<usize> {
        self.levels(list)?.iter().position(|level| level.style == style)
    }
}

impl Level {
    fn take(&mut self, name: &str, value: &str) {
        match name {
            "start" => self.start = value.parse().unwrap_or(1),
            "numFmt" => self.format = Format::of_word(value),
            "pStyle" => value.clone_into(&mut self.style),
            "lvlText" => value.clone_into(&mut self.text),
            "isLgl" => self.is_decimal = !matches!(value, "0" | "false"),
            _ => {}
        }
    }
}

impl Counters {
    /// Counts a paragraph of `list`; none if there is no such list.
    pub(super) fn next(&mut self, lists: &Lists, list: &str, depth: usize) -> Option<Label> {
        let levels = lists.levels(list)?;
        let depth = depth.min(LEVELS - 1);
        let List { kind, starts } = lists.lists.get(list)?;
        let counts = self.counts.entry(kind.clone()).or_default();
        if self.begun.insert(list.to_owned()) {
            // A list with start values of its own resets the counts of its kind.
            for (count, start) in counts.iter_mut().zip(starts).filter(|(_, start)| start.is_some()) {
                *count = start.and_then(|start| start.checked_sub(1)).filter(|_| count.is_some());
            }
        }
        let start = |level: usize| starts[level].unwrap_or(levels[level].start);
        counts[depth] = Some(counts[depth].map_or(start(depth), |count| count.saturating_add(1)));
        counts[depth + 1..].fill(None);
        let level = &levels[depth];
        if level.format == Format::None {
            return Some(Label::Bullet);
        }
        let mut text = level.text.clone();
        for (number, other) in levels.iter().enumerate().take(depth + 1) {
            let format = if level.is_decimal { Format::Decimal } else { other.format };
            let count = counts[number].unwrap_or(start(number));
            text = text.replace(&format!("%{}", number + 1), &format.write(count));
        }
        Some(Label::new(&text))
    }
}

/// The built-in styles of lists, which name no numbering in the paragraph: their level.
pub(super) fn list_of_style(style: &str) -> Option<(String, usize)> {
    let rest = style.strip_prefix("ListBullet").or_else(|| style.strip_prefix("ListNumber"))?;
    Some((String::new(), rest.parse::<usize>().map_or(0, |level| level.saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_count_as_word_does() {
        let level = |depth: usize, format: &str, text: &str| {
            format!(
                "<w:lvl w:ilvl='{depth}'><w:start w:val='1'/><w:numFmt w:val='{format}'/><w:lvlText w:val='{text}'/></w:lvl>"
            )
        };
        let xml = format!(
            "<w:numbering><w:abstractNum w:abstractNumId='0'>{}{}{}</w:abstractNum>\
             <w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>\
             <w:num w:numId='2'><w:abstractNumId w:val='0'/><w:lvlOverride w:ilvl='0'><w:startOverride w:val='1'/></w:lvlOverride></w:num>\
             </w:numbering>",
            level(0, "decimal", "%1."),
            level(1, "lowerLetter", "%2)"),
            level(2, "upperRoman", "%1.%3"),
        );
        let lists = Lists::read(&xml).unwrap();
        let mut counters = Counters::default();
        let mut next = |list: &str, depth: usize| counters.next(&lists, list, depth).unwrap();
        let written = |text: &str| Label::Written(text.to_owned());
        assert_eq!(next("1", 0), Label::Number(1));
        assert_eq!(next("1", 1), written("a)"));
        assert_eq!(next("1", 1), written("b)"));
        assert_eq!(next("1", 2), written("1.I"));
        assert_eq!(next("1", 0), Label::Number(2));
        assert_eq!(next("1", 1), written("a)"));
        assert_eq!(next("2", 0), Label::Number(1));
        assert_eq!(next("2", 0), Label::Number(2));
        assert_eq!(counters.next(&lists, "7", 0), None);
    }
}
