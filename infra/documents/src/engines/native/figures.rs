//! Charts and diagrams that parts of Office documents show.

use std::collections::{HashMap, HashSet};

use super::{
    archive::Archive,
    charts::{self, Chart},
    collect::Collector,
    diagram::Diagram,
    xml::Attributes,
};
use crate::failure::Failure;

/// A chart or a diagram.
pub(super) enum Figure {
    Chart(Chart),
    Diagram(Diagram),
}

impl Figure {
    /// Adds its texts to the blocks.
    pub(super) fn add_to(self, collector: &mut Collector) {
        match self {
            Self::Chart(chart) => chart.add_to(collector),
            Self::Diagram(diagram) => diagram.add_to(collector),
        }
    }
}

/// The figures of a part that are not shown yet, by the keys of their relations.
#[derive(Default)]
pub(super) struct Figures(HashMap<String, Figure>);

impl Figures {
    /// Those that `part` relates to.
    pub(super) fn of(archive: &mut Archive<'_>, part: &str) -> Result<Self, Failure> {
        let (mut found, mut known) = (HashMap::new(), HashSet::new());
        for (key, relation) in archive.relations(part)? {
            // A part that several relations name is read once.
            if !known.insert(relation.part.clone()) {
                continue;
            }
            let figure = match relation.kind.as_str() {
                "chart" => charts::office(archive, &relation.part).map(|chart| chart.map(Figure::Chart)),
                "diagramData" => {
                    Diagram::read(archive, &relation.part).map(|diagram| diagram.map(Figure::Diagram))
                }
                _ => Ok(None),
            };
            found.extend(archive.unless_damaged(figure)?.map(|figure| (key, figure)));
        }
        Ok(Self(found))
    }

    /// Those of a sheet, whose charts show what is in cells.
    pub(super) fn without_values(self) -> Self {
        let of_sheet = |figure| match figure {
            Figure::Chart(chart) => Figure::Chart(chart.titles_only()),
            diagram @ Figure::Diagram(_) => diagram,
        };
        Self(self.0.into_iter().map(|(key, figure)| (key, of_sheet(figure))).collect())
    }

    /// The figure that an element shows.
    pub(super) fn shown_by(&mut self, element: &str, attributes: Attributes<'_>) -> Option<Figure> {
        let key = match element {
            "chart" => attributes.get("id"),
            "relIds" => attributes.get("dm"),
            _ => None,
        };
        self.0.remove(key?)
    }
}
