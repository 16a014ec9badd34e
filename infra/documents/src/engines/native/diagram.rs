//! Diagrams of Office ("SmartArt"), ECMA-376 part 1, 21.4: their points as a list, each below the one that it belongs to.

use std::collections::HashMap;

use super::{
    archive::Archive,
    collect::Collector,
    tree::{self, Element},
};
use crate::failure::Failure;

/// Points of a diagram that are read, and levels that they are shown on.
const POINTS: usize = 10_000;
const LEVELS: usize = 9;

/// The texts of a diagram with their levels, 0 the outermost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Diagram(Vec<(usize, String)>);

impl Diagram {
    /// The diagram of a part; none if there is no such part.
    pub(super) fn read(archive: &mut Archive<'_>, part: &str) -> Result<Option<Self>, Failure> {
        let Some(xml) = archive.text(part)? else { return Ok(None) };
        Ok(Some(Self::of(&tree::parse(&xml)?)))
    }

    /// Adds its points to the blocks.
    pub(super) fn add_to(self, collector: &mut Collector) {
        collector.end_list();
        self.0.iter().for_each(|(level, text)| collector.item(*level, false, text));
        collector.end_list();
    }

    fn of(root: &Element) -> Self {
        let points: Vec<&Element> = root.all("pt").into_iter().take(POINTS).collect();
        let mut below: HashMap<&str, Vec<(u32, &str)>> = HashMap::new();
        for connection in root.all("cxn").into_iter().take(POINTS) {
            let get = |name: &str| connection.attribute(name);
            // Without a type, one is part of the other; the other types say how points are drawn.
            if let (None | Some("parOf"), Some(outer), Some(inner)) =
                (get("type"), get("srcId"), get("destId"))
            {
                let order = get("srcOrd").and_then(|order| order.parse().ok()).unwrap_or(0);
                below.entry(outer).or_default().push((order, inner));
            }
        }
        below.values_mut().for_each(|inner| inner.sort_by_key(|(order, _)| *order));
        let mut texts: HashMap<&str, String> = points.iter().filter_map(|point| shown(point)).collect();
        let roots = points.iter().filter(|point| point.attribute("type") == Some("doc"));
        let mut open: Vec<(usize, &str)> =
            roots.filter_map(|root| Some((0, root.attribute("modelId")?))).collect();
        let mut found = Vec::new();
        while let Some((level, id)) = open.pop() {
            let text = texts.remove(id);
            let deeper = level + usize::from(text.is_some());
            found.extend(text.map(|text| (level.min(LEVELS), text)));
            // Each is visited once, whatever a damaged file connects.
            let inner = below.remove(id).unwrap_or_default();
            open.extend(inner.into_iter().rev().map(|(_, id)| (deeper, id)));
        }
        let rest = points.iter().filter_map(|point| texts.remove(point.attribute("modelId")?));
        found.extend(rest.map(|text| (0, text)));
        Self(found)
    }
}

/// A point with a text, by its id.
fn shown<'a>(point: &&'a Element) -> Option<(&'a str, String)> {
    // Others stand for lines between points, and for places of the drawing.
    if !matches!(point.attribute("type"), None | Some("node" | "asst")) {
        return None;
    }
    let text = point.lines().join("\n").trim().to_owned();
    Some((point.attribute("modelId")?, text)).filter(|(_, text)| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_below_those_that_they_belong_to() {
        let point = |id: &str, kind: &str, text: &str| {
            format!(
                "<dgm:pt modelId='{id}' {kind}><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>"
            )
        };
        let connection = |outer: &str, inner: &str, order: u8| {
            format!("<dgm:cxn modelId='{outer}{inner}' srcId='{outer}' destId='{inner}' srcOrd='{order}'/>")
        };
        let points = [
            point("0", "type='doc'", ""),
            point("1", "", "Shunting</a:t></a:r><a:br/><a:r><a:t>yard"),
            point("2", "", "Points"),
            point("3", "type='asst'", "Foreman"),
            point("4", "type='pres'", "drawn"),
            point("5", "", "Alone"),
        ];
        // A point that belongs to itself, as only a damaged file has it.
        let connections = [
            connection("0", "1", 0),
            connection("1", "3", 1),
            connection("1", "2", 0),
            connection("2", "1", 0),
        ];
        let xml = format!(
            "<dgm:dataModel><dgm:ptLst>{}</dgm:ptLst><dgm:cxnLst>{}</dgm:cxnLst></dgm:dataModel>",
            points.concat(),
            connections.concat()
        );
        let Diagram(found) = Diagram::of(&tree::parse(&xml).unwrap());
        let found: Vec<(usize, &str)> = found.iter().map(|(level, text)| (*level, text.as_str())).collect();
        assert_eq!(found, [(0, "Shunting\nyard"), (1, "Points"), (1, "Foreman"), (0, "Alone")]);
    }
}
