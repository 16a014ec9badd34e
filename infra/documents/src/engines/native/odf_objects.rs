//! Documents within open documents: formulas and charts, each in a folder of its own.

use std::collections::HashMap;

use super::{
    archive::Archive,
    charts::{self, Chart},
    formula, tree,
    xml::Attributes,
};
use crate::failure::Failure;

/// Formulas and charts that are read.
const OBJECTS: usize = 1000;
/// A document within the document.
pub(super) enum Object {
    Formula(String),
    Chart(Chart),
}

/// Formulas and charts by the names of their folders. One that is damaged is left out.
pub(super) fn objects(archive: &mut Archive<'_>) -> Result<HashMap<String, Object>, Failure> {
    let names = archive.names();
    let folders = names.iter().filter_map(|name| name.strip_suffix("/content.xml")).take(OBJECTS);
    let mut found = HashMap::new();
    for folder in folders {
        let Some(xml) = archive.text(&format!("{folder}/content.xml"))? else { continue };
        let Ok(root) = tree::parse(&xml) else { continue };
        let object = if root.name == "math" {
            Some(Object::Formula(formula::mathml(&root)))
        } else {
            charts::open_document(&root).map(Object::Chart)
        };
        found.extend(object.map(|object| (folder.to_owned(), object)));
    }
    Ok(found)
}

/// The folder of the object that an element shows.
pub(super) fn object_name<'a>(attributes: Attributes<'a>) -> &'a str {
    attributes.get("href").unwrap_or_default().trim_start_matches("./")
}
