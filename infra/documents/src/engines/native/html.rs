//! Web pages: what a reader would read of them.

use scraper::{ElementRef, Html, Node};

use super::{Content, collect::Collector};
use crate::failure::Failure;

/// Elements within elements at most.
const DEPTH: usize = 400;
/// Statements of a page about itself that are kept.
const META: usize = 256;

/// A page and what it says of itself: names in lower case, and values.
pub(in crate::engines) struct Page {
    pub(in crate::engines) content: Content,
    pub(in crate::engines) meta: Vec<(String, String)>,
}

/// Reads a page.
pub(super) fn read(html: &str) -> Result<Content, Failure> {
    Ok(read_with_meta(html)?.content)
}

/// Reads a page and all that it says of itself.
pub(in crate::engines) fn read_with_meta(html: &str) -> Result<Page, Failure> {
    check_depth(html)?;
    let page = Html::parse_document(html);
    let mut walker = Walker::default();
    walker.element(page.root_element(), 0)?;
    walker.end_paragraph();
    let mut content = Content { blocks: walker.collector.finish(), ..Content::default() };
    let author =
        walker.meta.iter().rev().find(|(name, _)| name == "author").map(|(_, author)| author.clone());
    for (name, value) in [("title", walker.title), ("author", author.unwrap_or_default())] {
        if !value.is_empty() {
            content.metadata.insert(name.to_owned(), value.into());
        }
    }
    Ok(Page { content, meta: walker.meta })
}

/// Adds the blocks of a page to others; of a book, for instance.
pub(super) fn append(html: &str, collector: Collector) -> Result<Collector, Failure> {
    check_depth(html)?;
    let page = Html::parse_document(html);
    let mut walker = Walker { collector, ..Walker::default() };
    walker.element(page.root_element(), 0)?;
    walker.end_paragraph();
    Ok(walker.collector)
}

/// Elements that need no end, so that many of them are not deep.
const UNENDED: [&str; 30] = [
    "p", "li", "dd", "dt", "tr", "td", "th", "tbody", "thead", "tfoot", "option", "optgroup", "br", "img",
    "hr", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr", "html", "head",
    "body", "rp", "rt",
];

/// Refuses what is nested absurdly before the parser sees it: its work grows with the square of the depth.
fn check_depth(html: &str) -> Result<(), Failure> {
    let mut depth = 0_usize;
    for tag in html.split('<').skip(1) {
        let name = |text: &str| -> String {
            text.chars()
                .take_while(char::is_ascii_alphanumeric)
                .take(12)
                .collect::<String>()
                .to_ascii_lowercase()
        };
        if let Some(end) = tag.strip_prefix('/') {
            if !UNENDED.contains(&name(end).as_str()) {
                depth = depth.saturating_sub(1);
            }
        } else if tag.starts_with(|first: char| first.is_ascii_alphabetic()) {
            let is_closed = tag.split('>').next().is_some_and(|tag| tag.ends_with('/'));
            if !is_closed && !UNENDED.contains(&name(tag).as_str()) {
                depth += 1;
            }
        }
        if depth > 4 * DEPTH {
            return Err(Failure::too_much("the page is nested more deeply than is read"));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Walker {
    collector: Collector,
    text: String,
    /// Of the open lists: whether they are numbered.
    lists: Vec<bool>,
    title: String,
    meta: Vec<(String, String)>,
    is_preformatted: bool,
}

impl Walker {
    fn element(&mut self, element: ElementRef<'_>, depth: usize) -> Result<(), Failure> {
        if depth > DEPTH {
            return Err(Failure::too_much("the page is nested more deeply than is read"));
        }
        let name = element.value().name();
        match name {
            "script" | "style" | "noscript" | "template" | "svg" | "iframe" | "object" | "select"
            | "button" => Ok(()),
            "head" => {
                self.head(element);
                Ok(())
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_paragraph();
                let level = name.as_bytes()[1] - b'0';
                self.collector.heading(level, &text_of(element));
                Ok(())
            }
            "br" => {
                self.text.push('\n');
                Ok(())
            }
            "img" => {
                self.end_paragraph();
                self.collector.image(element.attr("alt").unwrap_or_default());
                Ok(())
            }
            "table" if is_of_data(element) => {
                self.end_paragraph();
                self.collector.table(rows(element));
                Ok(())
            }
            "ul" | "ol" => {
                self.end_paragraph();
                self.lists.push(name == "ol");
                self.children(element, depth)?;
                self.end_paragraph();
                self.lists.pop();
                if self.lists.is_empty() {
                    self.collector.end_list();
                }
                Ok(())
            }
            "pre" => {
                self.end_paragraph();
                self.is_preformatted = true;
                self.children(element, depth)?;
                self.end_paragraph();
                self.is_preformatted = false;
                Ok(())
            }
            _ if is_block(name) => {
                self.end_paragraph();
                self.children(element, depth)?;
                self.end_paragraph();
                Ok(())
            }
            _ => self.children(element, depth),
        }
    }

    fn children(&mut self, element: ElementRef<'_>, depth: usize) -> Result<(), Failure> {
        for child in element.children() {
            match child.value() {
                Node::Text(text) if self.is_preformatted => self.text.push_str(text),
                Node::Text(text) => push_collapsed(&mut self.text, text),
                Node::Element(_) => {
                    if let Some(child) = ElementRef::wrap(child) {
                        self.element(child, depth + 1)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let lines: Vec<&str> =
            text.lines().map(|line| if self.is_preformatted { line } else { line.trim() }).collect();
        let text = lines.join("\n");
        match self.lists.first() {
            Some(ordered) => self.collector.item(self.lists.len() - 1, *ordered, &text),
            None => self.collector.paragraph(&text),
        }
    }

    fn head(&mut self, head: ElementRef<'_>) {
        for child in head.child_elements() {
            match child.value().name() {
                "title" => self.title = text_of(child),
                "meta" if self.meta.len() < META => {
                    if let (Some(name), Some(value)) = (child.attr("name"), child.attr("content")) {
                        self.meta.push((name.to_ascii_lowercase(), value.to_owned()));
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "caption"
            | "center"
            | "dd"
            | "details"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "header"
            | "hr"
            | "html"
            | "li"
            | "main"
            | "nav"
            | "p"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "td"
            | "th"
            | "thead"
            | "tr"
    )
}

/// Whether a table shows data, and does not only arrange a page.
fn is_of_data(table: ElementRef<'_>) -> bool {
    let has_inner = table.descendent_elements().skip(1).any(|inner| inner.value().name() == "table");
    let rows = rows(table);
    !has_inner && rows.iter().any(|row| row.len() >= 2)
}

fn rows(table: ElementRef<'_>) -> Vec<Vec<String>> {
    let rows = table.descendent_elements().filter(|element| element.value().name() == "tr");
    rows.map(|row| {
        let cells = row.child_elements().filter(|cell| matches!(cell.value().name(), "td" | "th"));
        let mut texts = Vec::new();
        for cell in cells {
            let span =
                cell.attr("colspan").and_then(|span| span.parse().ok()).unwrap_or(1_usize).clamp(1, 64);
            texts.push(text_of(cell));
            texts.extend(std::iter::repeat_n(String::new(), span - 1));
        }
        texts
    })
    .filter(|row| !row.is_empty())
    .collect()
}

fn text_of(element: ElementRef<'_>) -> String {
    let mut text = String::new();
    element.text().for_each(|piece| push_collapsed(&mut text, piece));
    text.trim().to_owned()
}

/// Appends text with white space collapsed, as browsers show it.
fn push_collapsed(text: &mut String, piece: &str) {
    for letter in piece.chars() {
        if !matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{C}') {
            text.push(letter);
        } else if !text.ends_with([' ', '\n']) && !text.is_empty() {
            text.push(' ');
        }
    }
}
