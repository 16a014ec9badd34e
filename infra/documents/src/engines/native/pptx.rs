//! PowerPoint since 2007, ECMA-376: slides with titles, texts, lists, tables and figures, their comments, and notes for
//! their speakers.

use std::collections::HashSet;

use super::{
    Content,
    archive::Archive,
    collect::Collector,
    figures::Figures,
    formula, numbering, remarks,
    tree::Builder,
    xml::{self, Attributes, Node},
};
use crate::{
    failure::Failure,
    table::{Table, TableCell},
};

/// Levels of numbered paragraphs.
const LEVELS: usize = 9;

/// Reads all slides; each is a page. Texts that repeat at the edge of slides are read once.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    let slides = slides(&mut archive)?;
    let (mut collector, mut known) = (Collector::default(), HashSet::new());
    for (index, part) in slides.iter().enumerate() {
        collector.turn_to(index + 1);
        let figures = Figures::of(&mut archive, part)?;
        let margins = add_drawing(&mut archive, part, figures, &mut collector)?;
        let margins = margins.into_iter().filter(|text| known.insert(text.clone()));
        margins.for_each(|text| collector.paragraph(&text));
        add_beside(&mut archive, part, &mut collector)?;
    }
    let mut metadata = super::core_properties(&mut archive)?;
    metadata.insert("page_count".to_owned(), slides.len().into());
    metadata.insert("pages".to_owned(), slides.len().into());
    let warnings = archive.warning().into_iter().collect();
    Ok(Content { blocks: collector.finish(), metadata, warnings })
}

/// The parts of the slides in the order in which they are shown; behind them those that the presentation does not name.
fn slides(archive: &mut Archive<'_>) -> Result<Vec<String>, Failure> {
    let name = archive.main_name("ppt/presentation.xml")?;
    let mut relations = archive.relations(&name)?;
    let mut slides = Vec::new();
    if let Some(xml) = archive.text(&name)? {
        xml::walk(&xml, |node| {
            if let Node::Open("sldId", attributes) = node {
                // One id is the slide's own, the other that of its relation.
                let mut values = attributes.pairs().iter().filter(|(name, _)| name == "id");
                let slide = values.find_map(|(_, value)| relations.remove(value));
                slides.extend(slide.map(|relation| relation.part));
            }
        })?;
    }
    let number = |name: &str| -> Option<usize> {
        name.strip_prefix("ppt/slides/slide")?.strip_suffix(".xml")?.parse().ok()
    };
    let mut names: HashSet<String> = archive.names().into_iter().collect();
    if slides.iter().any(|slide| !names.contains(slide)) {
        archive.note_missing();
    }
    slides.retain(|slide| names.remove(slide));
    let mut others: Vec<(usize, String)> =
        names.into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
    others.sort_unstable();
    slides.extend(others.into_iter().map(|(_, name)| name));
    Ok(slides)
}

/// Adds the shapes of a slide or another drawing. Gives back what stands at its edge.
pub(super) fn add_drawing(
    archive: &mut Archive<'_>,
    part: &str,
    figures: Figures,
    collector: &mut Collector,
) -> Result<Vec<String>, Failure> {
    let text = archive.main(part)?;
    let mut reader = Reader { collector: std::mem::take(collector), figures, ..Reader::default() };
    let walked = xml::walk(&text, |node| reader.take(node));
    *collector = reader.collector;
    walked.map(|()| reader.margins)
}

/// Adds the notes for the speaker, and the comments of a slide.
fn add_beside(archive: &mut Archive<'_>, part: &str, collector: &mut Collector) -> Result<(), Failure> {
    let mut relations: Vec<_> = archive.relations(part)?.into_values().collect();
    relations.sort_unstable_by(|one, other| one.part.cmp(&other.part));
    let of = |archive: &mut Archive<'_>, kind: &str| -> Result<Vec<String>, Failure> {
        let parts = relations.iter().filter(|relation| relation.kind == kind);
        let texts: Result<Vec<Option<String>>, _> =
            parts.map(|relation| archive.text(&relation.part)).collect();
        Ok(texts?.into_iter().flatten().collect())
    };
    for xml in of(archive, "notesSlide")? {
        archive
            .unless_damaged(remarks::speaker_notes(&xml))?
            .iter()
            .for_each(|text| collector.paragraph(text));
    }
    for xml in of(archive, "comments")? {
        let comments = archive.unless_damaged(remarks::comments(&xml, "cm", "idx"))?;
        comments.iter().for_each(|comment| collector.paragraph(&comment.text));
    }
    Ok(())
}

#[derive(Default)]
struct Reader {
    collector: Collector,
    text: String,
    reads_text: bool,
    /// The kind of placeholder that the shape is.
    place: Option<String>,
    level: usize,
    /// The marker that the paragraph itself sets.
    marker: Option<Marker>,
    /// How far the numbered paragraphs of the shape have counted, by level.
    counts: Vec<(String, u64)>,
    table: Option<Table>,
    /// Whether the first row and the first column of the table are headers.
    heads: (bool, bool),
    figures: Figures,
    formula: Option<Builder>,
    /// The description of the open picture or frame.
    description: String,
    /// Elements whose content is not shown.
    hidden: usize,
    /// Dates and footers.
    margins: Vec<String>,
}

/// The marker of a paragraph.
enum Marker {
    None,
    Bullet,
    /// A number of this kind, and where it starts.
    Number(String, u64),
}

impl Reader {
    fn take(&mut self, node: Node<'_>) {
        match node {
            // Older programs show this alternative instead.
            Node::Open("Fallback", _) => self.hidden += 1,
            Node::Close("Fallback") => self.hidden = self.hidden.saturating_sub(1),
            _ if self.hidden > 0 => {}
            node if self.formula.is_some() => {
                if let Some(root) = self.formula.as_mut().and_then(|formula| formula.take(node)) {
                    self.formula = None;
                    self.text.push_str(&formula::office(&root));
                }
            }
            Node::Open("oMath", attributes) => self.formula = Some(Builder::begin("oMath", attributes)),
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) if self.reads_text => self.text.push_str(text),
            Node::Text(_) => {}
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        match name {
            "sp" => (self.place, self.counts) = (None, Vec::new()),
            "ph" => self.place = Some(attributes.get("type").unwrap_or("body").to_owned()),
            "t" => self.reads_text = true,
            "br" => self.text.push('\n'),
            "pPr" => self.level = attributes.get("lvl").and_then(|level| level.parse().ok()).unwrap_or(0),
            "buNone" => self.marker = Some(Marker::None),
            "buChar" | "buBlip" => self.marker = Some(Marker::Bullet),
            "buAutoNum" => {
                let start = attributes.get("startAt").and_then(|start| start.parse().ok()).unwrap_or(1);
                self.marker =
                    Some(Marker::Number(attributes.get("type").unwrap_or_default().to_owned(), start));
            }
            "tbl" => (self.table, self.heads) = (Some(Table::default()), (false, false)),
            "tblPr" => {
                let is_on = |name: &str| matches!(attributes.get(name), Some("1" | "true"));
                self.heads = (is_on("firstRow"), is_on("firstCol"));
            }
            "tr" => self.table.iter_mut().for_each(|table| table.rows.push(Vec::new())),
            "tc" => self.begin_cell(attributes),
            "pic" | "graphicFrame" => self.description.clear(),
            "cNvPr" => {
                let described = |name: &str| attributes.get(name).filter(|text| !text.is_empty());
                let text = described("descr").or_else(|| described("title"));
                text.unwrap_or_default().clone_into(&mut self.description);
            }
            "chart" | "relIds" => {
                if let Some(figure) = self.figures.shown_by(name, attributes) {
                    figure.add_to(&mut self.collector);
                }
            }
            _ => {}
        }
    }

    /// Every place of a table has an element; those that a merged cell covers are empty.
    fn begin_cell(&mut self, attributes: Attributes<'_>) {
        let (in_first_row, in_first_column) = self.heads;
        let Some(table) = &mut self.table else { return };
        let Some(row) = table.rows.len().checked_sub(1) else { return };
        let column = table.rows[row].len();
        table.rows[row].push(String::new());
        let span = |name: &str| attributes.get(name).and_then(|span| span.parse().ok()).unwrap_or(1_usize);
        let is_header = (in_first_row && row == 0) || (in_first_column && column == 0);
        let cell = TableCell::new(row, column).spanning(span("rowSpan"), span("gridSpan")).header(is_header);
        if cell != TableCell::new(row, column) {
            table.cells.push(cell);
        }
    }

    fn cell_text(&mut self) -> Option<&mut String> {
        self.table.as_mut()?.rows.last_mut()?.last_mut()
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.reads_text = false,
            "p" => self.end_paragraph(),
            "sp" => self.collector.end_list(),
            "pic" => self.collector.image(&std::mem::take(&mut self.description)),
            "graphicFrame" if !self.description.is_empty() => {
                self.collector.image(&std::mem::take(&mut self.description));
            }
            "tbl" => {
                if let Some(table) = self.table.take() {
                    self.collector.table(table);
                }
            }
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let (level, marker) = (std::mem::take(&mut self.level), self.marker.take());
        if self.table.is_some() {
            if let Some(cell) = self.cell_text() {
                if !cell.is_empty() {
                    cell.push('\n');
                }
                cell.push_str(&text);
            }
            return;
        }
        let is_empty = text.trim().is_empty();
        match (self.place.as_deref(), marker) {
            (Some("title"), _) => self.collector.heading(2, &text),
            (Some("ctrTitle"), _) => self.collector.heading(1, &text),
            (Some("sldNum"), _) => {}
            (Some("dt" | "ftr" | "hdr"), _) if is_empty => {}
            (Some("dt" | "ftr" | "hdr"), _) => self.margins.push(text.trim().to_owned()),
            (_, Some(Marker::Number(..))) if is_empty => {}
            (_, Some(Marker::Number(kind, start))) => {
                let label = numbering::of_slide(&kind, self.count(level, kind.clone(), start));
                self.collector.labelled_item(level, &label, &text);
            }
            (_, Some(Marker::Bullet)) | (Some("body" | "obj"), None) => {
                self.collector.item(level, false, &text)
            }
            _ => self.collector.paragraph(&text),
        }
    }

    /// The number of a paragraph: one more than that of the one before of the same kind.
    fn count(&mut self, level: usize, kind: String, start: u64) -> u64 {
        let level = level.min(LEVELS);
        self.counts.truncate(level + 1);
        self.counts.resize(level + 1, (String::new(), 0));
        let (known, count) = &mut self.counts[level];
        *count = if *known == kind { count.saturating_add(1) } else { start };
        *known = kind;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        block::{Block, Content as Kind},
        engines::native::archive::packed,
    };

    #[test]
    fn merged_and_header_cells_are_kept() {
        let cell = |attributes: &str, text: &str| {
            format!("<a:tc {attributes}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>")
        };
        let slide = format!(
            "<p:sld><p:graphicFrame><a:tbl><a:tblPr firstRow='1' firstCol='1'/><a:tr>{}{}{}</a:tr><a:tr>{}{}{}</a:tr></a:tbl>\
             </p:graphicFrame></p:sld>",
            cell("", "Part"),
            cell("gridSpan='2'", "Size"),
            cell("hMerge='1'", ""),
            cell("", "Rod"),
            cell("", "25"),
            cell("", "1"),
        );
        let blocks = read(&packed(&[("ppt/slides/slide1.xml", &slide)])).unwrap().blocks;
        let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        let cells = table.cells.iter().map(|cell| (cell.row, cell.column, cell.col_span, cell.header));
        assert_eq!(cells.collect::<Vec<_>>(), [(0, 0, 1, true), (0, 1, 2, true), (1, 0, 1, true)]);
    }

    fn shape(place: &str, text: &str) -> String {
        format!(
            "<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
    }

    fn relation(id: &str, kind: &str, target: &str) -> String {
        format!("<Relationship Id='{id}' Type='http://x/relationships/{kind}' Target='{target}'/>")
    }

    #[test]
    fn slides_are_in_the_order_of_the_presentation() {
        let slide =
            |text: &str| format!("<p:sld>{}{}</p:sld>", shape("", text), shape("<p:ph type='ftr'/>", "ACME"));
        let presentation = "<p:presentation><p:sldIdLst><p:sldId id='256' r:id='r2'/><p:sldId id='257' r:id='r1'/><p:sldId id='258' r:id='r9'/><p:sldId id='259' r:id='r8'/>\
            </p:sldIdLst></p:presentation>";
        let relations = [
            relation("r1", "slide", "slides/slide1.xml"),
            relation("r2", "slide", "slides/slide2.xml"),
            relation("r9", "slide", "slides/gone.xml"),
            relation("r8", "slide", "slides/./slide1.xml"),
        ];
        let bytes = packed(&[
            ("ppt/presentation.xml", presentation),
            (
                "ppt/_rels/presentation.xml.rels",
                &format!("<Relationships>{}</Relationships>", relations.concat()),
            ),
            ("ppt/slides/slide1.xml", &slide("Second")),
            ("ppt/slides/slide2.xml", &slide("First")),
            ("ppt/slides/slide10.xml", &slide("Unnamed")),
        ]);
        let Content { blocks, warnings, .. } = read(&bytes).unwrap();
        assert_eq!(warnings.len(), 1);
        let texts: Vec<_> = blocks.iter().map(|block| (block.page, block.text())).collect();
        let expected = [(1, "First"), (1, "ACME"), (2, "Second"), (3, "Unnamed")];
        assert_eq!(texts, expected.map(|(page, text)| (Some(page), text.to_owned())));
    }

    #[test]
    fn notes_comments_and_diagrams_are_kept() {
        let slide = format!(
            "<p:sld>{}<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id='5' descr=''/></p:nvGraphicFramePr><a:graphic><a:graphicData>\
             <dgm:relIds r:dm='r3' r:lo='r4'/></a:graphicData></a:graphic></p:graphicFrame></p:sld>",
            shape("<p:ph type='title'/>", "Results")
        );
        let notes = format!(
            "<p:notes>{}{}{}</p:notes>",
            shape("<p:ph type='sldImg'/>", ""),
            shape("<p:ph type='body' idx='1'/>", "Thank the crew."),
            shape("<p:ph type='sldNum'/>", "1")
        );
        let relations = [
            relation("r1", "notesSlide", "../notesSlides/notesSlide1.xml"),
            relation("r2", "comments", "../comments/comment1.xml"),
            relation("r3", "diagramData", "../diagrams/data1.xml"),
        ];
        let diagram = "<dgm:dataModel><dgm:ptLst><dgm:pt modelId='1'><dgm:t><a:p><a:r><a:t>Yard</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst>\
            </dgm:dataModel>";
        let bytes = packed(&[
            ("ppt/slides/slide1.xml", &slide),
            (
                "ppt/slides/_rels/slide1.xml.rels",
                &format!("<Relationships>{}</Relationships>", relations.concat()),
            ),
            ("ppt/notesSlides/notesSlide1.xml", &notes),
            ("ppt/comments/comment1.xml", "<p:cmLst><p:cm idx='1'><p:text>Larger?</p:text></p:cm></p:cmLst>"),
            ("ppt/diagrams/data1.xml", diagram),
        ]);
        let texts: Vec<String> = read(&bytes).unwrap().blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["Results", "Yard", "Thank the crew.", "Larger?"]);
    }

    #[test]
    fn numbers_descriptions_charts_and_formulas_are_kept() {
        let item = |text: &str| {
            format!(
                "<a:p><a:pPr><a:buAutoNum type='alphaLcParenR'/></a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>"
            )
        };
        let slide = format!(
            "<p:sld><p:sp><p:txBody>{}{}</p:txBody></p:sp><p:pic><p:nvPicPr><p:cNvPr id='4' name='Picture 3' descr='Points in snow'/>\
             </p:nvPicPr></p:pic><p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id='5'/></p:nvGraphicFramePr><c:chart r:id='rId2'/>\
             </p:graphicFrame><p:sp><a:p><a:r><a:t>So </a:t></a:r><a14:m><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r>\
             <m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></a14:m></a:p></p:sp></p:sld>",
            item("Drive"),
            item("Lock")
        );
        let relations = "<Relationships><Relationship Id='rId2' Type='http://x/relationships/chart' Target='../charts/chart1.xml'/></Relationships>";
        let chart = "<c:chartSpace><c:chart><c:title><a:p><a:r><a:t>Runs</a:t></a:r></a:p></c:title></c:chart></c:chartSpace>";
        let bytes = packed(&[
            ("ppt/slides/slide1.xml", &slide),
            ("ppt/slides/_rels/slide1.xml.rels", relations),
            ("ppt/charts/chart1.xml", chart),
        ]);
        let texts: Vec<String> = read(&bytes).unwrap().blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["a) Drive\nb) Lock", "Points in snow", "Runs", "So x²"]);
    }
}
