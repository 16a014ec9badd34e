//! Word since 2007, ECMA-376: paragraphs with styles, numbered and bulleted lists, tables, notes.

use std::collections::HashMap;

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    xml::{self, Attributes, Node},
};
use crate::failure::Failure;

/// What a style means: the level of a heading.
#[derive(Debug, Default)]
struct Styles(HashMap<String, u8>);

/// Which lists are numbered: by number and level.
#[derive(Debug, Default)]
struct Numbering(HashMap<(String, usize), bool>);

/// Reads the document and its notes.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    let main = archive.main("word/document.xml")?;
    let styles = styles(&archive.text("word/styles.xml")?.unwrap_or_default())?;
    let numbering = numbering(&archive.text("word/numbering.xml")?.unwrap_or_default())?;
    let mut reader = Reader::new(&styles, &numbering);
    xml::walk(&main, |node| reader.take(node))?;
    let mut blocks = reader.collector;
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        let Some(notes) = archive.text(notes)? else { continue };
        let mut reader = Reader::new(&styles, &numbering);
        xml::walk(&notes, |node| reader.take(node))?;
        for block in reader.collector.finish() {
            blocks.paragraph(&block.text());
        }
    }
    let metadata = super::core_properties(&mut archive)?;
    Ok(Content { blocks: blocks.finish(), metadata, ..Content::default() })
}

fn styles(xml: &str) -> Result<Styles, Failure> {
    let mut styles = Styles::default();
    let mut id = String::new();
    xml::walk(xml, |node| match node {
        Node::Open("style", attributes) => id = attributes.get("styleId").unwrap_or_default().to_owned(),
        Node::Open("name", attributes) if !id.is_empty() => {
            let name = attributes.get("val").unwrap_or_default().to_lowercase();
            if let Some(level) = name.strip_prefix("heading ").and_then(|level| level.parse().ok()) {
                styles.0.insert(id.clone(), level);
            } else if name == "title" {
                styles.0.insert(id.clone(), 1);
            }
        }
        Node::Open("outlineLvl", attributes) if !id.is_empty() => {
            if let Some(level) =
                attributes.get("val").and_then(|level| level.parse::<u8>().ok()).filter(|level| *level < 9)
            {
                styles.0.entry(id.clone()).or_insert(level + 1);
            }
        }
        Node::Close("style") => id.clear(),
        _ => {}
    })?;
    Ok(styles)
}

fn numbering(xml: &str) -> Result<Numbering, Failure> {
    let mut kinds: HashMap<(String, usize), bool> = HashMap::new();
    let mut numbers: Vec<(String, String)> = Vec::new();
    let (mut kind, mut level, mut number) = (String::new(), 0, String::new());
    xml::walk(xml, |node| match node {
        Node::Open("abstractNum", attributes) => {
            kind = attributes.get("abstractNumId").unwrap_or_default().to_owned()
        }
        Node::Open("lvl", attributes) => {
            level = attributes.get("ilvl").and_then(|level| level.parse().ok()).unwrap_or(0);
        }
        Node::Open("numFmt", attributes) => {
            let ordered = !matches!(attributes.get("val"), Some("bullet" | "none"));
            kinds.insert((kind.clone(), level), ordered);
        }
        Node::Open("num", attributes) => number = attributes.get("numId").unwrap_or_default().to_owned(),
        Node::Open("abstractNumId", attributes) => {
            numbers.push((number.clone(), attributes.get("val").unwrap_or_default().to_owned()));
        }
        _ => {}
    })?;
    let mut found = Numbering::default();
    for (number, kind) in numbers {
        for level in 0..9 {
            if let Some(ordered) = kinds.get(&(kind.clone(), level)) {
                found.0.insert((number.clone(), level), *ordered);
            }
        }
    }
    Ok(found)
}

/// The paragraph that is read.
#[derive(Default)]
struct Paragraph {
    text: String,
    style: String,
    outline: Option<u8>,
    list: Option<(String, usize)>,
}

struct Reader<'a> {
    styles: &'a Styles,
    numbering: &'a Numbering,
    collector: Collector,
    paragraph: Paragraph,
    /// Tables within tables: the rows of each.
    tables: Vec<Vec<Vec<String>>>,
    /// Elements whose content is not shown.
    hidden: usize,
    reads_text: bool,
    images: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(styles: &'a Styles, numbering: &'a Numbering) -> Self {
        Self {
            styles,
            numbering,
            collector: Collector::default(),
            paragraph: Paragraph::default(),
            tables: Vec::new(),
            hidden: 0,
            reads_text: false,
            images: Vec::new(),
        }
    }

    fn take(&mut self, node: Node<'_>) {
        match node {
            // What was deleted, what older programs show instead, and separators of notes.
            Node::Open("del" | "moveFrom" | "Fallback", _) => self.hidden += 1,
            Node::Close("del" | "moveFrom" | "Fallback") => self.hidden = self.hidden.saturating_sub(1),
            _ if self.hidden > 0 => {}
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) if self.reads_text => self.paragraph.text.push_str(text),
            Node::Text(_) => {}
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        let value = attributes.get("val");
        match name {
            "t" => self.reads_text = true,
            "tab" if self.paragraph.list.is_none() || !self.paragraph.text.is_empty() => {
                self.paragraph.text.push('\t')
            }
            "br" | "cr" => self.paragraph.text.push('\n'),
            "noBreakHyphen" => self.paragraph.text.push('-'),
            "pStyle" => value.unwrap_or_default().clone_into(&mut self.paragraph.style),
            "outlineLvl" => self.paragraph.outline = value.and_then(|level| level.parse().ok()),
            "ilvl" => {
                let level = value.and_then(|level| level.parse().ok()).unwrap_or(0);
                self.paragraph.list.get_or_insert_default().1 = level;
            }
            "numId" => {
                value.unwrap_or_default().clone_into(&mut self.paragraph.list.get_or_insert_default().0)
            }
            "tbl" => self.tables.push(Vec::new()),
            "tr" => self.rows().push(Vec::new()),
            "tc" => self.row().push(String::new()),
            "docPr" => self.images.push(attributes.get("descr").unwrap_or_default().to_owned()),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.reads_text = false,
            "p" => self.end_paragraph(),
            "tbl" => {
                let rows = self.tables.pop().unwrap_or_default();
                match self.tables.last_mut() {
                    None => self.collector.table(rows),
                    // A table in a cell becomes its text.
                    Some(_) => {
                        let text: Vec<String> = rows.into_iter().map(|row| row.join(" ")).collect();
                        self.append_to_cell(&text.join("\n"));
                    }
                }
            }
            _ => {}
        }
    }

    fn rows(&mut self) -> &mut Vec<Vec<String>> {
        if self.tables.is_empty() {
            self.tables.push(Vec::new());
        }
        let last = self.tables.len() - 1;
        &mut self.tables[last]
    }

    fn row(&mut self) -> &mut Vec<String> {
        let rows = self.rows();
        if rows.is_empty() {
            rows.push(Vec::new());
        }
        let last = rows.len() - 1;
        &mut rows[last]
    }

    fn append_to_cell(&mut self, text: &str) {
        let row = self.row();
        let Some(cell) = row.last_mut() else { return };
        if !cell.is_empty() && !text.is_empty() {
            cell.push('\n');
        }
        cell.push_str(text.trim());
    }

    fn end_paragraph(&mut self) {
        let Paragraph { text, style, outline, list } = std::mem::take(&mut self.paragraph);
        if !self.tables.is_empty() {
            self.append_to_cell(&text);
            return;
        }
        let level = outline
            .filter(|level| *level < 9)
            .map(|level| level + 1)
            .or_else(|| self.styles.0.get(&style).copied());
        let list = list.filter(|(number, _)| number != "0").or_else(|| list_of_style(&style));
        match (level, list) {
            (Some(level), _) => self.collector.heading(level, &text),
            (None, Some((number, depth))) => {
                let by_style = style.starts_with("ListNumber");
                let ordered = self.numbering.0.get(&(number, depth)).copied().unwrap_or(by_style);
                self.collector.item(depth, ordered, &text);
            }
            (None, None) => self.collector.paragraph(&text),
        }
        for image in std::mem::take(&mut self.images) {
            self.collector.image(&image);
        }
    }
}

/// The built-in styles of lists, which name no numbering in the paragraph: their level.
fn list_of_style(style: &str) -> Option<(String, usize)> {
    let rest = style.strip_prefix("ListBullet").or_else(|| style.strip_prefix("ListNumber"))?;
    Some((String::new(), rest.parse::<usize>().map_or(0, |level| level.saturating_sub(1))))
}
