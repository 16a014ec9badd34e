//! The text of web pages, without scripts, style sheets and embedded objects.

mod depth;
mod tables;
mod text;

use std::borrow::Cow;

use scraper::{ElementRef, Html, Node};

use self::{
    depth::{DEPTH, check_depth},
    tables::{is_of_data, table},
    text::{push_apart, push_collapsed, text_of},
};
use super::{
    Content,
    collect::Collector,
    formula,
    numbering::{Format, Label},
    script::Script,
    tree::{Element, Part},
};
use crate::failure::Failure;

/// Elements within elements of a formula at most.
const FORMULA_DEPTH: usize = 200;
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

/// An open list.
struct List {
    /// How its items are numbered, if they are.
    format: Option<Format>,
    next: u64,
    /// The label of the open item, until its first paragraph.
    label: Option<Label>,
    has_begun: bool,
}

#[derive(Default)]
struct Walker {
    collector: Collector,
    text: String,
    lists: Vec<List>,
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
            "script" | "style" | "template" | "svg" | "iframe" | "object" => Ok(()),
            "noscript" => self.noscript(element),
            "select" | "datalist" => {
                self.choices(element);
                Ok(())
            }
            "input" => {
                self.input(element);
                Ok(())
            }
            "sup" | "sub" => {
                let text = text_of(element);
                match Script::set(Script::of(name), &text) {
                    Cow::Owned(set) => self.text.push_str(&set),
                    Cow::Borrowed(_) => self.children(element, depth)?,
                }
                Ok(())
            }
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
                for caption in element.child_elements().filter(|child| child.value().name() == "caption") {
                    self.element(caption, depth + 1)?;
                }
                self.collector.table(table(element));
                Ok(())
            }
            "ul" | "ol" => {
                self.end_paragraph();
                self.lists.push(List::of(element));
                self.children(element, depth)?;
                self.end_paragraph();
                self.lists.pop();
                if self.lists.is_empty() {
                    self.collector.end_list();
                }
                Ok(())
            }
            "li" => {
                self.end_paragraph();
                self.begin_item(element);
                self.children(element, depth)?;
                self.end_paragraph();
                Ok(())
            }
            "math" => {
                self.formula(element);
                Ok(())
            }
            "a" if is_note_reference(element) => {
                let text = text_of(element);
                self.text.push_str(&Script::set(Some(Script::Raised), &text));
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

    /// Content for readers without scripts. The parser has scripting enabled and treats it as text.
    fn noscript(&mut self, element: ElementRef<'_>) -> Result<(), Failure> {
        let html: String = element.text().collect();
        // Most hold nothing but a picture that counts readers.
        let has_text =
            |piece: &str| piece.rsplit('>').next().is_some_and(|text| text.contains(char::is_alphanumeric));
        if !html.split('<').any(has_text) {
            return Ok(());
        }
        self.end_paragraph();
        check_depth(&html)?;
        let collector = append(&html, std::mem::take(&mut self.collector))?;
        self.collector = collector;
        Ok(())
    }

    /// The choices of a form, of which the chosen ones are named first by browsers, too.
    fn choices(&mut self, element: ElementRef<'_>) {
        let options = element.descendent_elements().filter(|option| option.value().name() == "option");
        let texts: Vec<String> = options
            .map(|option| match (text_of(option), option.attr("label")) {
                (text, Some(label)) if text.is_empty() => label.to_owned(),
                (text, _) => text,
            })
            .filter(|text| !text.is_empty())
            .collect();
        push_apart(&mut self.text, &texts.join(", "));
    }

    /// The visible text of an input: its value, or a button's label.
    fn input(&mut self, element: ElementRef<'_>) {
        let shown = match element.attr("type").unwrap_or("text") {
            "hidden" | "password" | "file" | "color" | "range" => None,
            "checkbox" | "radio" => Some(if element.attr("checked").is_some() { "☒" } else { "☐" }),
            "image" => element.attr("alt"),
            _ => element.attr("value"),
        };
        push_apart(&mut self.text, shown.unwrap_or_default());
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let lines: Vec<&str> =
            text.lines().map(|line| if self.is_preformatted { line } else { line.trim() }).collect();
        let text = lines.join("\n");
        if text.trim().is_empty() {
            return;
        }
        let level = self.lists.len().saturating_sub(1);
        match self.lists.last_mut() {
            Some(List { format: None, .. }) => self.collector.labelled_item(level, &Label::Bullet, &text),
            Some(list) => match list.label.take() {
                Some(label) => {
                    list.has_begun = true;
                    self.collector.labelled_item(level, &label, &text);
                }
                // A further paragraph of the item.
                None if list.has_begun && self.collector.continue_item(&text) => {}
                None => self.collector.item(level, false, &text),
            },
            None => self.collector.paragraph(&text),
        }
    }

    fn begin_item(&mut self, element: ElementRef<'_>) {
        let Some(list) = self.lists.last_mut() else { return };
        let Some(format) = list.format else { return };
        let number = element.attr("value").and_then(|number| number.trim().parse().ok()).unwrap_or(list.next);
        list.next = number.saturating_add(1);
        list.label = Some(Label::new(&format!("{}.", format.write(number))));
    }

    /// A formula in one line. A formula that is nested too deeply is read as text.
    fn formula(&mut self, element: ElementRef<'_>) {
        let formula = tree(element, 0).map(|tree| formula::mathml(&tree));
        let text = formula.filter(|text| !text.is_empty()).unwrap_or_else(|| text_of(element));
        self.text.push_str(&text);
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

impl List {
    fn of(element: ElementRef<'_>) -> Self {
        let format = (element.value().name() == "ol").then(|| match element.attr("type") {
            Some("") | None => Format::Decimal,
            Some(example) => Format::of_example(example),
        });
        let next = element.attr("start").and_then(|start| start.trim().parse().ok()).unwrap_or(1);
        Self { format, next, label: None, has_begun: false }
    }
}

/// Whether a link leads to a note, as books say it.
fn is_note_reference(element: ElementRef<'_>) -> bool {
    let is = |attribute: &str, value: &str| {
        element.attr(attribute).is_some_and(|values| values.split_whitespace().any(|known| known == value))
    };
    is("role", "doc-noteref") || is("epub:type", "noteref")
}

/// A formula as a tree.
fn tree(element: ElementRef<'_>, depth: usize) -> Option<Element> {
    if depth > FORMULA_DEPTH {
        return None;
    }
    let mut parts = Vec::new();
    for child in element.children() {
        match child.value() {
            Node::Text(text) => parts.push(Part::Text(text.to_string())),
            Node::Element(_) => parts.push(Part::Element(tree(ElementRef::wrap(child)?, depth + 1)?)),
            _ => {}
        }
    }
    let attributes = element.value().attrs().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let name = element.value().name().to_owned();
    Some(Element { name, attributes: attributes.collect(), parts })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(html: &str) -> Vec<String> {
        read(html).unwrap().blocks.iter().map(crate::block::Block::text).collect()
    }

    #[test]
    fn controls_and_what_is_shown_without_scripts_are_read() {
        let form = "<p>Size <select><option>small<option selected>large</select> <button>Order now</button>\
            <p><input type=checkbox checked> gift <input value='Anna'><input type=password value=x>";
        assert_eq!(texts(form), ["Size small, large Order now", "☒ gift Anna"]);
        let without = "<body><p>One<noscript><p>Please <b>enable</b> scripts</noscript><p>Two";
        assert_eq!(texts(without), ["One", "Please enable scripts", "Two"]);
        assert_eq!(texts("<body><p>One<noscript><img src='https://x/count'></noscript>"), ["One"]);
        assert_eq!(texts("<p>10<sup>6</sup> H<sub>2</sub>O the 1<sup>st</sup>"), ["10⁶ H₂O the 1st"]);
    }

    #[test]
    fn breaks_and_blocks_part_the_words_of_cells_and_headings() {
        assert_eq!(texts("<h1>Head<br>line</h1><p>x")[0], "Head line");
        let html = "<table><tr><td>Zeile eins<br>Zeile zwei<td><p>aa</p><p>bb</p><tr><td>10<sup>6</sup><td>a<b>b</b><script>x</script></table>";
        let blocks = read(html).unwrap().blocks;
        let crate::block::Content::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["Zeile eins Zeile zwei", "aa bb"], ["10⁶", "ab"]]);
    }

    #[test]
    fn the_caption_of_a_table_is_read_before_it() {
        let html = "<table><tr><td>1<td>2</tr><caption>Sizes <b>in mm</b></caption></table>";
        assert_eq!(texts(html), ["Sizes in mm", "1\t2"]);
    }

    #[test]
    fn a_cell_without_a_number_of_rows_covers_its_part() {
        let html = "<table><tbody><tr><td rowspan=0>A<td>1<tr><td>2</tbody><tbody><tr><td>B<td>3</table>";
        let blocks = read(html).unwrap().blocks;
        let crate::block::Content::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["A", "1"], ["", "2"], ["B", "3"]]);
    }

    #[test]
    fn merged_and_header_cells_are_kept() {
        let html = "<table><thead><tr><th rowspan=9>Part<th colspan=2>Size<tr><th>mm<th>inch</thead><tr><th>Rod<td>25<td>1</table>";
        let blocks = read(html).unwrap().blocks;
        let crate::block::Content::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "25", "1"]]);
        let cells = table.cells.iter().map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span));
        assert_eq!(
            cells.collect::<Vec<_>>(),
            [(0, 0, 2, 1), (0, 1, 1, 2), (1, 1, 1, 1), (1, 2, 1, 1), (2, 0, 1, 1)]
        );
        assert!(table.cells.iter().all(|cell| cell.header));
    }

    #[test]
    fn numbers_formulas_and_marks_of_notes_are_kept() {
        let list = "<ol start=3><li>Drive<li><p>Lock<p>and blades<ol type=a><li>left<li>right</ol></ol><ul><li>one</ul>";
        let blocks = read(list).unwrap().blocks;
        let markdown = crate::write::markdown::blocks(&blocks);
        assert!(
            markdown.starts_with("3. Drive\n4. Lock and blades\n   - a. left\n   - b. right\n\n")
                && markdown.ends_with("- one"),
            "{markdown}"
        );
        let formula = "<p>So <math><mfrac><mi>a</mi><mn>2</mn></mfrac><annotation>x</annotation></math> holds<a role=doc-noteref>1</a>.";
        assert_eq!(texts(formula), ["So a/2 holds¹."]);
    }
}
