//! Word since 2007, ECMA-376: paragraphs with styles, numbered and bulleted lists, tables, notes, comments, heads of pages.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    docx_styles::{Counters, Lists, Styles, list_of_style},
    docx_table::{DocxTable, Merge},
    figures::{Figure, Figures},
    formula, notes,
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
        let comments = remarks::comments(&xml, "comment", "id")?.into_iter();
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
    Ok(Content { blocks: reader.collector.finish(), metadata, ..Content::default() })
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
        let mut known = HashSet::new();
        for (_, part) in margins.iter().filter(|(of, _)| of == kind) {
            let Some(xml) = archive.text(part)? else { continue };
            for text in self.read_apart(&xml)? {
                if text.chars().any(char::is_alphabetic) && known.insert(text.clone()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        block::{Block, Content as Kind},
        detect,
        engines::native::archive::packed,
    };

    fn texts(bytes: &[u8]) -> Vec<String> {
        read(bytes).unwrap().blocks.iter().map(Block::text).collect()
    }

    #[test]
    fn main_part_may_have_another_name() {
        let types = r#"<Types><Override PartName="/word/document2.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;
        let relations = r#"<Relationships><Relationship Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="/word/document2.xml"/></Relationships>"#;
        let main = r#"<w:document><w:body><w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r><w:r><w:t> points</w:t></w:r></w:p></w:body></w:document>"#;
        let parts =
            [("[Content_Types].xml", types), ("_rels/.rels", relations), ("word/document2.xml", main)];
        let bytes = packed(&parts);
        assert_eq!(detect::detect(&bytes, ""), detect::DOCX);
        assert_eq!(texts(&bytes), ["10⁶ points"]);
    }

    #[test]
    fn merged_and_header_cells_are_kept() {
        let cell = |properties: &str, text: &str| {
            format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>")
        };
        let main = format!(
            "<w:document><w:body><w:tbl><w:tr><w:trPr><w:tblHeader/></w:trPr>{}{}</w:tr><w:tr><w:trPr><w:tblHeader/></w:trPr>{}{}{}</w:tr>\
             <w:tr>{}{}{}</w:tr></w:tbl></w:body></w:document>",
            cell("<w:vMerge w:val='restart'/>", "Part"),
            cell("<w:gridSpan w:val='2'/>", "Size"),
            cell("<w:vMerge/>", ""),
            cell("", "mm"),
            cell("", "inch"),
            cell("", "Rod"),
            cell("", "25"),
            cell("", "1"),
        );
        let blocks = read(&packed(&[("word/document.xml", &main)])).unwrap().blocks;
        let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "25", "1"]]);
        let cells =
            table.cells.iter().map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span, cell.header));
        let expected = [(0, 0, 2, 1, true), (0, 1, 1, 2, true), (1, 1, 1, 1, true), (1, 2, 1, 1, true)];
        assert_eq!(cells.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn headers_and_footers_of_pages_are_read_once() {
        let part = |text: &str| format!("<w:hdr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:hdr>");
        let relation = |id: u8, kind: &str, part: &str| {
            format!("<Relationship Id='r{id}' Type='http://x/relationships/{kind}' Target='{part}'/>")
        };
        let relations =
            [(1, "footer", "footer1.xml"), (2, "header", "header2.xml"), (3, "header", "header1.xml")];
        let relations = relations.map(|(id, kind, part)| relation(id, kind, part)).concat();
        let bytes = packed(&[
            (
                "word/document.xml",
                "<w:document><w:body><w:p><w:r><w:t>Offer</w:t></w:r></w:p></w:body></w:document>",
            ),
            ("word/_rels/document.xml.rels", &format!("<Relationships>{relations}</Relationships>")),
            ("word/header1.xml", &part("ACME GmbH")),
            ("word/header2.xml", &part("ACME GmbH")),
            ("word/footer1.xml", &format!("{}{}", part("Bank account 5"), part("1"))),
        ]);
        assert_eq!(texts(&bytes), ["ACME GmbH", "Offer", "Bank account 5"]);
    }

    #[test]
    fn comments_and_diagrams_follow_their_paragraphs() {
        let refer = |id: u8| format!("<w:r><w:commentReference w:id='{id}'/></w:r>");
        let main = format!(
            "<w:document><w:body><w:p><w:r><w:t>Offer</w:t></w:r>{}</w:p><w:p><w:r><w:drawing><wp:inline><a:graphic><a:graphicData>\
             <dgm:relIds r:dm='r3'/></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>5</w:t></w:r>\
             {}</w:p></w:tc></w:tr></w:tbl></w:body></w:document>",
            refer(0),
            refer(1)
        );
        let comment = |id: u8, text: &str| {
            format!(
                "<w:comment w:id='{id}' w:author='Anna'><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:comment>"
            )
        };
        let comments =
            [comment(0, "To us?"), comment(1, "Euros?"), comment(2, "Of a text that was deleted")].concat();
        let diagram = "<dgm:dataModel><dgm:ptLst><dgm:pt modelId='1'><dgm:t><a:p><a:r><a:t>Yard</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst>\
            </dgm:dataModel>";
        let relations = "<Relationships><Relationship Id='r3' Type='http://x/relationships/diagramData' Target='diagrams/data1.xml'/></Relationships>";
        let bytes = packed(&[
            ("word/document.xml", &main),
            ("word/_rels/document.xml.rels", relations),
            ("word/comments.xml", &format!("<w:comments>{comments}</w:comments>")),
            ("word/diagrams/data1.xml", diagram),
        ]);
        assert_eq!(texts(&bytes), ["Offer", "To us?", "Yard", "5", "Euros?"]);
    }

    #[test]
    fn numbers_notes_and_formulas_are_kept() {
        let level = |depth: usize, format: &str, text: &str| {
            format!("<w:lvl w:ilvl='{depth}'><w:numFmt w:val='{format}'/><w:lvlText w:val='{text}'/></w:lvl>")
        };
        let numbering = format!(
            "<w:numbering><w:abstractNum w:abstractNumId='4'>{}{}</w:abstractNum><w:abstractNum w:abstractNumId='5'>{}</w:abstractNum>\
             <w:num w:numId='1'><w:abstractNumId w:val='4'/></w:num><w:num w:numId='2'><w:abstractNumId w:val='5'/></w:num></w:numbering>",
            level(0, "decimal", "%1."),
            level(1, "lowerLetter", "%2)"),
            level(0, "decimal", "%1"),
        );
        let styles = "<w:styles><w:style w:styleId='H'><w:name w:val='heading 1'/><w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr>\
            </w:style><w:style w:styleId='H2'><w:basedOn w:val='H'/></w:style></w:styles>";
        let item = |depth: usize, text: &str| {
            format!(
                "<w:p><w:pPr><w:numPr><w:ilvl w:val='{depth}'/><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
            )
        };
        let heading = |text: &str| {
            format!("<w:p><w:pPr><w:pStyle w:val='H2'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
        };
        let main = format!(
            "<w:document><w:body>{}{}{}{}<w:p><w:r><w:t>Checked</w:t></w:r><w:r><w:footnoteReference w:id='7'/></w:r><w:r>\
             <w:endnoteReference w:id='2'/></w:r><m:oMath><m:r><m:t>=</m:t></m:r><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r>\
             <m:t>2</m:t></m:r></m:den></m:f></m:oMath></w:p>{}</w:body></w:document>",
            heading("Scope"),
            item(0, "Drive"),
            item(1, "Motor"),
            item(0, "Blades"),
            heading("Result"),
        );
        let notes = |kind: &str, id: u8, text: &str| {
            format!(
                "<w:{kind}s><w:{kind} w:id='-1'><w:p/></w:{kind}><w:{kind} w:id='{id}'><w:p><w:r><w:{kind}Ref/></w:r><w:r><w:t> {text}</w:t></w:r>\
                 </w:p></w:{kind}></w:{kind}s>"
            )
        };
        let bytes = packed(&[
            ("word/document.xml", &main),
            ("word/numbering.xml", &numbering),
            ("word/styles.xml", styles),
            ("word/footnotes.xml", &notes("footnote", 7, "In May.")),
            ("word/endnotes.xml", &notes("endnote", 2, "By Anna.")),
        ]);
        let expected = [
            "1 Scope",
            "Drive\na) Motor\nBlades",
            "Checked¹[i]=1/2",
            "2 Result",
            "¹ In May.",
            "[i] By Anna.",
        ];
        assert_eq!(texts(&bytes), expected);
        let markdown = crate::write::markdown::blocks(&read(&bytes).unwrap().blocks);
        assert!(markdown.contains("1. Drive\n   - a) Motor\n2. Blades"), "{markdown}");
    }
}
