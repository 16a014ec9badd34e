//! Open documents, ISO 26300: text and slides.

use std::collections::HashMap;

use super::{
    Content,
    archive::Archive,
    charts::Chart,
    collect::Collector,
    notes,
    odf_lists::{ListStyles, Lists, Place},
    odf_margins::Margins,
    odf_objects::{Object, object_name, objects},
    xml::{self, Attributes, Node},
};
use crate::{
    failure::Failure,
    table::{Table, TableCell},
};

/// A cell or column that says that it is repeated is, but no more often.
const REPEATED: usize = 256;

/// Reads a text or slides.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut archive = Archive::open(bytes)?;
    if archive.text("META-INF/manifest.xml")?.is_some_and(|manifest| manifest.contains("encryption-data")) {
        return Err(Failure::Encrypted);
    }
    let content = archive.main("content.xml")?;
    let styles = archive.text("styles.xml")?.unwrap_or_default();
    let mut list_styles = ListStyles::default();
    for xml in [styles.as_str(), content.as_str()] {
        list_styles.read(xml)?;
    }
    let margins = Margins::read(&styles)?;
    let objects = objects(&mut archive)?;
    let mut reader = Reader { list_styles, objects, ..Reader::default() };
    margins.heads.iter().for_each(|text| reader.collector.paragraph(text));
    xml::walk(&content, |node| reader.take(node))?;
    reader.add_notes();
    margins.feet.iter().for_each(|text| reader.collector.paragraph(text));
    let mut metadata = super::Metadata::new();
    if let Some(meta) = archive.text("meta.xml")? {
        super::named_texts(
            &meta,
            &[("title", "title"), ("creator", "author"), ("subject", "subject")],
            &mut metadata,
        )?;
    }
    if reader.pages > 0 {
        metadata.insert("page_count".to_owned(), reader.pages.into());
        metadata.insert("pages".to_owned(), reader.pages.into());
    }
    Ok(Content { blocks: reader.collector.finish(), metadata, ..Content::default() })
}

/// A picture, a text box or an object.
#[derive(Default)]
struct Frame {
    /// On a slide.
    class: Option<String>,
    /// Paragraphs that it is in.
    paragraphs: usize,
    is_image: bool,
    /// Whether it holds a formula or chart, which a picture stands for as well.
    is_object: bool,
    title: String,
    description: String,
}

/// The paragraph that a note or comment interrupts.
#[derive(Default)]
struct Outside {
    text: String,
    heading: Option<u8>,
    title: bool,
    is_list_header: bool,
}

#[derive(Default)]
struct Reader {
    list_styles: ListStyles,
    objects: HashMap<String, Object>,
    collector: Collector,
    text: String,
    /// Level of the heading that is read.
    heading: Option<u8>,
    title: bool,
    is_list_header: bool,
    lists: Lists,
    table: Option<Table>,
    /// Whether the rows and columns that are read are of the table's head.
    is_head: bool,
    repeated: usize,
    paragraphs: usize,
    hidden: usize,
    frames: Vec<Frame>,
    /// The name or mark that is read: of a picture, of a note.
    aside: Option<String>,
    /// Charts in the paragraph that is read.
    charts: Vec<Chart>,
    pages: usize,
    /// Texts of notes, which follow their paragraph.
    notes: Vec<String>,
    outside: Vec<Outside>,
    /// Paragraphs around the text boxes that are open.
    around: Vec<Outside>,
    /// Comments that are open.
    comments: usize,
    /// Notes for the speaker of the slide whose notes are open.
    spoken: Option<Vec<String>>,
    /// The mark of the note that is read, until its first paragraph.
    mark: Option<String>,
}

impl Reader {
    fn take(&mut self, node: Node<'_>) {
        match node {
            Node::Open("tracked-changes" | "forms", _) => self.hidden += 1,
            Node::Close("tracked-changes" | "forms") => self.hidden = self.hidden.saturating_sub(1),
            _ if self.hidden > 0 => {}
            Node::Open("annotation", _) => {
                let around = self.interrupted();
                self.outside.push(around);
                self.comments += 1;
            }
            Node::Close("annotation") => {
                let around = self.outside.pop();
                self.continue_with(around);
                self.comments = self.comments.saturating_sub(1);
            }
            // The author and the time of a comment.
            Node::Open("creator" | "creator-initials" | "date" | "date-string", _) if self.comments > 0 => {
                self.aside = Some(String::new());
            }
            Node::Close("creator" | "creator-initials" | "date" | "date-string") if self.comments > 0 => {
                self.aside = None;
            }
            Node::Open(name, attributes) => self.open(name, attributes),
            Node::Close(name) => self.close(name),
            Node::Text(text) => match &mut self.aside {
                Some(aside) => aside.push_str(text),
                None if self.paragraphs > 0 => xml::push_collapsed(&mut self.text, text),
                None => {}
            },
        }
    }

    fn open(&mut self, name: &str, attributes: Attributes<'_>) {
        match name {
            "p" | "h" => {
                self.paragraphs += 1;
                if name == "h" {
                    let level = attributes.get("outline-level").and_then(|level| level.parse().ok());
                    self.heading = Some(level.unwrap_or(1));
                    self.is_list_header = attributes.get("is-list-header") == Some("true");
                }
                self.title = attributes.get("style-name") == Some("Title");
            }
            "note-body" => {
                let around = self.interrupted();
                self.outside.push(around);
            }
            "text-box" => {
                let around = self.interrupted();
                self.around.push(around);
            }
            "s" => {
                let count = attributes.get("c").and_then(|count| count.parse().ok()).unwrap_or(1_usize);
                self.text.push_str(&" ".repeat(count.min(REPEATED)));
            }
            "tab" => self.text.push('\t'),
            "line-break" => self.text.push('\n'),
            "note-citation" => self.aside = Some(String::new()),
            "list" => self.lists.open(attributes),
            "list-item" => self.lists.begin_item(attributes, false),
            "list-header" => self.lists.begin_item(attributes, true),
            "table" if self.table.is_none() => (self.table, self.is_head) = (Some(Table::default()), false),
            "table-header-rows" => self.is_head = true,
            "table-row" => self.table.iter_mut().for_each(|table| table.rows.push(Vec::new())),
            "table-cell" | "covered-table-cell" => {
                let repeated = attributes.get("number-columns-repeated").and_then(|count| count.parse().ok());
                self.repeated = repeated.unwrap_or(1_usize).min(REPEATED);
                self.begin_cell(attributes);
            }
            "page" => {
                self.add_notes();
                self.pages += 1;
                self.collector.turn_to(self.pages);
            }
            "notes" => self.spoken = Some(Vec::new()),
            "frame" => {
                let class = attributes.get("class").map(str::to_owned);
                self.frames.push(Frame { class, paragraphs: self.paragraphs, ..Frame::default() });
            }
            "image" => self.frames.iter_mut().last().into_iter().for_each(|frame| frame.is_image = true),
            "object" => {
                let object = self.objects.remove(object_name(attributes));
                if let Some(frame) = self.frames.last_mut() {
                    frame.is_object = object.is_some();
                }
                match object {
                    Some(Object::Formula(formula)) => self.text.push_str(&formula),
                    Some(Object::Chart(chart)) => self.charts.push(chart),
                    None => {}
                }
            }
            "title" | "desc" if self.is_about_frame() => self.aside = Some(String::new()),
            _ => {}
        }
    }

    /// The paragraph that is read, before another one within it.
    fn interrupted(&mut self) -> Outside {
        Outside {
            text: std::mem::take(&mut self.text),
            heading: self.heading.take(),
            title: std::mem::take(&mut self.title),
            is_list_header: std::mem::take(&mut self.is_list_header),
        }
    }

    fn continue_with(&mut self, outside: Option<Outside>) {
        let Outside { text, heading, title, is_list_header } = outside.unwrap_or_default();
        (self.text, self.heading, self.title, self.is_list_header) = (text, heading, title, is_list_header);
    }

    /// Whether an element at this place describes the open frame, rather than a paragraph within it.
    fn is_about_frame(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.paragraphs == self.paragraphs)
    }

    /// Ends a name or mark.
    fn end_aside(&mut self, name: &str) {
        let Some(text) = self.aside.take() else { return };
        match (name, self.frames.last_mut()) {
            ("note-citation", _) => {
                let mark = notes::mark(&text);
                self.text.push_str(&mark);
                self.mark = Some(mark);
            }
            ("title", Some(frame)) => frame.title = text,
            (_, Some(frame)) => frame.description = text,
            _ => {}
        }
    }

    /// Ends a frame and adds its description, or else its title, as an image. The picture of an object is not added.
    fn end_frame(&mut self) {
        let Some(frame) = self.frames.pop().filter(|frame| !frame.is_object) else { return };
        let is_named = !frame.description.trim().is_empty();
        let text = if is_named { frame.description } else { frame.title };
        if (frame.is_image && frame.class.is_none()) || !text.trim().is_empty() {
            self.collector.image(&text);
        }
    }

    /// Adds the notes and comments on the paragraph that has ended.
    fn add_notes(&mut self) {
        std::mem::take(&mut self.notes).iter().for_each(|note| self.collector.paragraph(note));
    }

    fn end_notes(&mut self) {
        for text in self.spoken.take().unwrap_or_default() {
            self.collector.paragraph(&text);
        }
    }

    /// Places that a merged cell covers have elements of their own.
    fn begin_cell(&mut self, attributes: Attributes<'_>) {
        let Some(table) = &mut self.table else { return };
        let Some(row) = table.rows.len().checked_sub(1) else { return };
        let column = table.rows[row].len();
        table.rows[row].push(String::new());
        let span = |name: &str| attributes.get(name).and_then(|span| span.parse().ok()).unwrap_or(1_usize);
        let cell = TableCell::new(row, column)
            .spanning(span("number-rows-spanned"), span("number-columns-spanned"))
            .header(self.is_head);
        if cell != TableCell::new(row, column) {
            table.cells.push(cell);
        }
    }

    /// Repeats the cell as often as it says.
    fn end_cell(&mut self) {
        let more = std::mem::take(&mut self.repeated).saturating_sub(1);
        let Some(table) = &mut self.table else { return };
        let Some(index) = table.rows.len().checked_sub(1) else { return };
        let row = &mut table.rows[index];
        let Some(text) = row.last().cloned() else { return };
        for _ in 0..more {
            if self.is_head {
                table.cells.push(TableCell::new(index, row.len()).header(true));
            }
            row.push(text.clone());
        }
    }

    fn cell_text(&mut self) -> Option<&mut String> {
        self.table.as_mut()?.rows.last_mut()?.last_mut()
    }

    fn close(&mut self, name: &str) {
        match name {
            "p" | "h" => {
                self.paragraphs = self.paragraphs.saturating_sub(1);
                self.end_paragraph();
            }
            "note-body" => {
                let around = self.outside.pop();
                self.continue_with(around);
            }
            "text-box" => {
                let around = self.around.pop();
                self.continue_with(around);
            }
            "note-citation" | "title" | "desc" => self.end_aside(name),
            "list" if self.lists.close() => self.collector.end_list(),
            "table-cell" | "covered-table-cell" => self.end_cell(),
            "table-header-rows" => self.is_head = false,
            "table" => {
                if let Some(table) = self.table.take() {
                    self.collector.table(table);
                    self.add_notes();
                }
            }
            "frame" => self.end_frame(),
            "notes" => self.end_notes(),
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let heading = self.heading.take();
        let class = self.frames.last().and_then(|frame| frame.class.as_deref());
        if let Some(spoken) = &mut self.spoken {
            // The pages on which notes are printed have heads and numbers, too.
            spoken.extend((class == Some("notes")).then_some(text));
            return;
        }
        if !self.outside.is_empty() {
            let mark = self.mark.take().map_or(String::new(), |mark| format!("{mark} "));
            self.notes.push(mark + &text);
            return;
        }
        // A paragraph without text is not counted.
        let place = if text.trim().is_empty() { Place::Outside } else { self.lists.place(&self.list_styles) };
        if self.table.is_some() {
            let text = match place {
                Place::Starts { label, .. } => label.before(&text),
                _ => text,
            };
            if let Some(cell) = self.cell_text() {
                if !cell.is_empty() {
                    cell.push('\n');
                }
                cell.push_str(text.trim_end());
            }
            return;
        }
        self.add(heading, place, &text);
        self.add_notes();
        std::mem::take(&mut self.charts).into_iter().for_each(|chart| chart.add_to(&mut self.collector));
    }

    fn add(&mut self, heading: Option<u8>, place: Place, text: &str) {
        let class = self.frames.last().and_then(|frame| frame.class.as_deref());
        match (heading, class, place) {
            (Some(level), _, Place::Starts { label, .. }) => {
                self.collector.heading(level, &label.before(text))
            }
            (Some(level), ..) if self.is_list_header || text.trim().is_empty() => {
                self.collector.heading(level, text)
            }
            (Some(level), ..) => {
                let label = self.lists.heading(&self.list_styles, level);
                self.collector.heading(level, &label.before(text));
            }
            (None, Some("title"), _) => self.collector.heading(2, text),
            _ if self.title => self.collector.heading(1, text),
            (None, _, Place::Starts { level, label }) => self.collector.labelled_item(level, &label, text),
            (None, _, Place::Continues { level }) => {
                if !self.collector.continue_item(text) {
                    self.collector.item(level, false, text);
                }
            }
            _ => self.collector.paragraph(text),
        }
    }
}
