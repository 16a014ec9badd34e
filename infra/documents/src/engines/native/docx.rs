//! Word since 2007, ECMA-376: paragraphs with styles, numbered and bulleted lists, tables, notes, comments, heads of pages.

use std::collections::{BTreeSet, HashMap};

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    docx_styles::{Counters, Lists, Styles, list_of_style},
    docx_table::{DocxTable, Merge},
    figures::{Figure, Figures},
    formula,
    margins::MarginTexts,
    notes,
    numbering::Format,
    remarks,
    script::Script,
    tree::Builder,
    xml::{self, Attributes, Node},
};
use crate::{block::Block, failure::Failure};

/// Reads the document with the headers of its pages before it, and its notes and the footers behind it.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    let name = archive.main_name("word/document.xml")?;
    let folder = name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let main = archive.main(&name)?;
    let styles = Styles::read(&archive.text(&format!("{folder}styles.xml"))?.unwrap_or_default())?;
    let lists = Lists::read(&archive.text(&format!("{folder}numbering.xml"))?.unwrap_or_default())?;
    let mut reader = Reader::new(&styles, &lists, Figures::of(&mut archive, &name)?);
    if let Some(xml) = archive.text(&format!("{folder}comments.xml"))? {
        let comments = archive.unless_damaged(remarks::comments(&xml, "comment", "id"))?.into_iter();
        reader.comments = comments.map(|comment| (comment.about, comment.text)).collect();
    }
    let margins = margins(&mut archive, &name)?;
    reader.add_margins(&mut archive, &margins, "header")?;
    xml::walk(&main, |node| reader.take(node))?;
    for notes in ["footnotes.xml", "endnotes.xml"] {
        let Some(notes) = archive.text(&format!("{folder}{notes}"))? else { continue };
        for text in reader.read_apart(&notes)? {
            reader.collector.paragraph(&text);
        }
    }
    reader.add_margins(&mut archive, &margins, "footer")?;
    let metadata = super::core_properties(&mut archive)?;
    let warnings = archive.warning().into_iter().collect();
    Ok(Content { blocks: reader.collector.finish(), metadata, warnings })
}

/// The headers and footers of a part, by kind and name.
fn margins(archive: &mut Archive<'_>, part: &str) -> Result<BTreeSet<(String, String)>, Failure> {
    let relations = archive.relations(part)?.into_values();
    let margins = relations.filter(|relation| matches!(relation.kind.as_str(), "header" | "footer"));
    Ok(margins.map(|relation| (relation.kind, relation.part)).collect())
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
    lists: &'a Lists,
    counters: Counters,
    figures: Figures,
    /// Comments that the text has not referred to yet, by their ids.
    comments: HashMap<String, String>,
    /// The formula that is read.
    formula: Option<Builder>,
    /// Marks of the notes so far, by kind and id.
    notes: HashMap<(NoteKind, String), String>,
    /// In a part of notes, the mark that is put before the next paragraph.
    mark: Option<String>,
    collector: Collector,
    paragraph: Paragraph,
    /// Paragraphs around the text boxes that are open.
    around: Vec<Paragraph>,
    /// Tables within tables.
    tables: Vec<DocxTable>,
    /// Elements whose content is not shown.
    hidden: usize,
    reads_text: bool,
    /// `superscript` or `subscript`, of the run that is read.
    script: Option<Script>,
    images: Vec<String>,
    shown: Vec<Figure>,
    remarks: Vec<String>,
}

/// Footnotes and endnotes are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NoteKind {
    Foot,
    End,
}

impl<'a> Reader<'a> {
    fn new(styles: &'a Styles, lists: &'a Lists, figures: Figures) -> Self {
        Self {
            styles,
            lists,
            counters: Counters::default(),
            figures,
            comments: HashMap::new(),
            formula: None,
            notes: HashMap::new(),
            mark: None,
            collector: Collector::default(),
            paragraph: Paragraph::default(),
            around: Vec::new(),
            tables: Vec::new(),
            hidden: 0,
            reads_text: false,
            script: None,
            images: Vec::new(),
            shown: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// The texts of a part that is read apart from the document.
    fn read_apart(&mut self, xml: &str) -> Result<Vec<String>, Failure> {
        // Its figures have ids of their own, which may be those of others in the document.
        let (collector, figures) = (std::mem::take(&mut self.collector), std::mem::take(&mut self.figures));
        xml::walk(xml, |node| self.take(node))?;
        self.figures = figures;
        let apart = std::mem::replace(&mut self.collector, collector);
        Ok(apart.finish().iter().map(Block::text).collect())
    }

    /// Adds the texts of the `margins` of a kind, each once, but for numbers of pages.
    fn add_margins(
        &mut self,
        archive: &mut Archive<'_>,
        margins: &BTreeSet<(String, String)>,
        kind: &str,
    ) -> Result<(), Failure> {
        let mut known = MarginTexts::default();
        for (_, part) in margins.iter().filter(|(of, _)| of == kind) {
            let Some(xml) = archive.text(part)? else { continue };
            for text in self.read_apart(&xml)? {
                if known.is_new(&text) {
                    self.collector.paragraph(&text);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, node: Node<'_>) {
        match node {
            // Deleted text, fallbacks for older programs, and separators of notes.
            Node::Open("del" | "moveFrom" | "Fallback", _) => self.hidden += 1,
            Node::Close("del" | "moveFrom" | "Fallback") => self.hidden = self.hidden.saturating_sub(1),
            _ if self.hidden > 0 => {}
            node if self.formula.is_some() => {
                if let Some(root) = self.formula.as_mut().and_then(|formula| formula.take(node)) {
                    self.formula = None;
                    self.paragraph.text.push_str(&formula::office(&root));
                }
            }
            Node::Open("oMath", attributes) => self.formula = Some(Builder::begin("oMath", attributes)),
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) if self.reads_text => {
                self.paragraph.text.push_str(&Script::set(self.script, text));
            }
            Node::Text(_) => {}
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        let value = attributes.get("val");
        match name {
            "t" => self.reads_text = true,
            "r" => self.script = None,
            "vertAlign" => self.script = value.and_then(Script::of),
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
            "txbxContent" => self.around.push(std::mem::take(&mut self.paragraph)),
            "tbl" => self.tables.push(DocxTable::default()),
            "tr" => self.table().begin_row(),
            "tc" => self.table().begin_cell(),
            "tblHeader" if is_on(value) => self.table().make_row_head(),
            "gridSpan" => {
                let count = value.and_then(|count| count.parse().ok()).unwrap_or(1);
                self.table().span_columns(count);
            }
            "vMerge" => {
                let merge = if value == Some("restart") { Merge::Starts } else { Merge::Continues };
                self.table().merge_rows(merge);
            }
            "docPr" => {
                let described = |name: &str| attributes.get(name).filter(|text| !text.is_empty());
                let text = described("descr").or_else(|| described("title"));
                self.images.push(text.unwrap_or_default().to_owned());
            }
            "chart" | "relIds" => self.shown.extend(self.figures.shown_by(name, attributes)),
            "commentReference" => {
                self.remarks.extend(attributes.get("id").and_then(|id| self.comments.remove(id)));
            }
            "footnoteReference" => self.refer(NoteKind::Foot, attributes),
            "endnoteReference" => self.refer(NoteKind::End, attributes),
            "footnote" => self.begin_note(NoteKind::Foot, attributes),
            "endnote" => self.begin_note(NoteKind::End, attributes),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.reads_text = false,
            "p" => self.end_paragraph(),
            "txbxContent" => self.paragraph = self.around.pop().unwrap_or_default(),
            "tc" => self.table().end_cell(),
            "tbl" => {
                let table = self.tables.pop().unwrap_or_default().finish();
                match self.tables.last_mut() {
                    None => {
                        self.collector.table(table);
                        self.add_beside();
                    }
                    // A table in a cell becomes its text.
                    Some(_) => {
                        let text: Vec<String> = table.rows.into_iter().map(|row| row.join(" ")).collect();
                        self.append_to_cell(&text.join("\n"));
                    }
                }
            }
            _ => {}
        }
    }

    /// Appends the mark of a note; those with a mark of their own have it as text.
    fn refer(&mut self, kind: NoteKind, attributes: Attributes<'_>) {
        let id = attributes.get("id").unwrap_or_default().to_owned();
        if attributes.get("customMarkFollows").is_some_and(|value| is_on(Some(value))) {
            return;
        }
        let number = self.notes.keys().filter(|(known, _)| *known == kind).count() + 1;
        let mark = match kind {
            NoteKind::Foot => number.to_string(),
            NoteKind::End => Format::LowerRoman.write(number as u64),
        };
        let mark = self.notes.entry((kind, id)).or_insert_with(|| notes::mark(&mark));
        self.paragraph.text.push_str(mark);
    }

    fn begin_note(&mut self, kind: NoteKind, attributes: Attributes<'_>) {
        let id = attributes.get("id").unwrap_or_default().to_owned();
        self.mark = self.notes.get(&(kind, id)).cloned();
    }

    fn table(&mut self) -> &mut DocxTable {
        if self.tables.is_empty() {
            self.tables.push(DocxTable::default());
        }
        let last = self.tables.len() - 1;
        &mut self.tables[last]
    }

    fn append_to_cell(&mut self, text: &str) {
        let Some(cell) = self.table().text() else { return };
        if !cell.is_empty() && !text.is_empty() {
            cell.push('\n');
        }
        cell.push_str(text.trim());
    }

    fn end_paragraph(&mut self) {
        let Paragraph { mut text, style, outline, list } = std::mem::take(&mut self.paragraph);
        if let Some(mark) = self.mark.take_if(|_| !text.trim().is_empty()) {
            text = format!("{mark} {}", text.trim_start());
        }
        let level = outline
            .map(|level| if level < 9 { level + 1 } else { 0 })
            .or_else(|| self.styles.level(&style))
            .filter(|level| *level > 0);
        let list = match list {
            // The style says which list, the paragraph on which level.
            Some((list, depth)) if list.is_empty() => {
                self.styles.list(&style, self.lists).map(|(list, _)| (list, depth))
            }
            None => self.styles.list(&style, self.lists),
            of_paragraph => of_paragraph,
        };
        let list = list.filter(|(list, _)| list != "0").or_else(|| list_of_style(&style));
        // Word counts paragraphs without text, too, but no reader sees their numbers.
        let is_empty = text.trim().is_empty();
        let label = list
            .as_ref()
            .filter(|_| !is_empty)
            .and_then(|(list, depth)| self.counters.next(self.lists, list, *depth));
        if !self.tables.is_empty() {
            self.append_to_cell(&label.unwrap_or_default().before(&text));
        } else {
            match (level, list, label) {
                (Some(level), _, label) => {
                    self.collector.heading(level, &label.unwrap_or_default().before(&text))
                }
                (None, Some((_, depth)), Some(label)) => self.collector.labelled_item(depth, &label, &text),
                (None, Some((_, depth)), None) => {
                    self.collector.item(depth, style.starts_with("ListNumber"), &text);
                }
                (None, None, _) => self.collector.paragraph(&text),
            }
        }
        if self.tables.is_empty() {
            self.add_beside();
        }
    }

    /// Adds what belongs to the paragraph or table that has ended.
    fn add_beside(&mut self) {
        std::mem::take(&mut self.shown).into_iter().for_each(|figure| figure.add_to(&mut self.collector));
        std::mem::take(&mut self.images).iter().for_each(|image| self.collector.image(image));
        std::mem::take(&mut self.remarks).iter().for_each(|remark| self.collector.paragraph(remark));
    }
}

/// Whether a property is set: without a value it is.
fn is_on(value: Option<&str>) -> bool {
    matches!(value, None | Some("1" | "true" | "on"))
}
