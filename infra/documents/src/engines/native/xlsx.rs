//! Texts beside the cells of a workbook since 2007: text boxes, charts, diagrams and comments.

use std::collections::{HashMap, HashSet};

use super::{
    archive::{Archive, Relation},
    collect::Collector,
    figures::Figures,
    pptx,
    remarks::{self, Comment},
    xml::{self, Node},
};
use crate::failure::Failure;

/// A workbook.
pub(super) struct Workbook<'a> {
    archive: Archive<'a>,
    /// The parts of the sheets by their names.
    sheets: HashMap<String, String>,
}

impl<'a> Workbook<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, Failure> {
        let mut archive = Archive::open(bytes)?;
        let name = archive.main_name("xl/workbook.xml")?;
        let mut relations = archive.relations(&name)?;
        let mut sheets = HashMap::new();
        xml::walk(&archive.main(&name)?, |node| {
            let Node::Open("sheet", attributes) = node else { return };
            let relation = attributes.get("id").and_then(|key| relations.remove(key));
            if let (Some(name), Some(relation)) = (attributes.get("name"), relation) {
                sheets.insert(name.to_owned(), relation.part);
            }
        })?;
        Ok(Self { archive, sheets })
    }

    /// Whether a part was left out.
    pub(super) fn lacks(&self) -> bool {
        self.archive.warning().is_some()
    }

    /// Adds the texts beside the cells of a sheet.
    pub(super) fn add_beside(&mut self, sheet: &str, collector: &mut Collector) -> Result<(), Failure> {
        let Some(part) = self.sheets.get(sheet) else { return Ok(()) };
        let mut relations: Vec<Relation> = self.archive.relations(part)?.into_values().collect();
        relations.sort_unstable_by(|one, other| one.part.cmp(&other.part));
        for drawing in relations.iter().filter(|relation| relation.kind == "drawing") {
            let figures = Figures::of(&mut self.archive, &drawing.part)?.without_values();
            let edge = pptx::add_drawing(&mut self.archive, &drawing.part, figures, collector)?;
            edge.iter().for_each(|text| collector.paragraph(text));
        }
        let threads = self.comments(&relations, "threadedComment", "threadedComment")?;
        let known: HashSet<&str> = threads.iter().map(|comment| comment.about.as_str()).collect();
        let mut others = self.comments(&relations, "comments", "comment")?;
        // Programs that know no threads show a copy, headed by words of the program.
        others.retain(|comment| !known.contains(comment.about.as_str()));
        threads.iter().chain(&others).for_each(|comment| collector.paragraph(&comment.text));
        Ok(())
    }

    fn comments(
        &mut self,
        relations: &[Relation],
        kind: &str,
        element: &str,
    ) -> Result<Vec<Comment>, Failure> {
        let mut found = Vec::new();
        for relation in relations.iter().filter(|relation| relation.kind == kind) {
            let xml = self.archive.text(&relation.part)?.unwrap_or_default();
            found.extend(remarks::comments(&xml, element, "ref")?);
        }
        Ok(found)
    }
}
