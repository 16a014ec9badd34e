//! Trees of small parts of XML: formulas and charts, whose elements are not in the order in which they are read.

use super::xml::{self, Attributes, Node};
use crate::failure::Failure;

/// Elements and texts of a tree at most.
const NODES: usize = 1_000_000;

/// An element. Names are without their prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Element(Element),
    Text(String),
}

/// Builds a tree from the nodes of its root.
#[derive(Debug, Default)]
pub(super) struct Builder {
    open: Vec<Element>,
    nodes: usize,
}

impl Builder {
    /// A builder with the root open.
    pub(super) fn begin(name: &str, attributes: Attributes<'_>) -> Self {
        let mut builder = Self::default();
        builder.push(name, attributes);
        builder
    }

    /// Takes the next node; gives back the root when that is closed.
    pub(super) fn take(&mut self, node: Node<'_>) -> Option<Element> {
        match node {
            Node::Open(name, attributes) => self.push(name, attributes),
            Node::Text(text) => {
                self.nodes += 1;
                if let Some(last) = self.open.last_mut().filter(|_| self.nodes <= NODES) {
                    last.parts.push(Part::Text(text.to_owned()));
                }
            }
            Node::Close(_) => {
                let closed = self.open.pop()?;
                match self.open.last_mut() {
                    None => return Some(closed),
                    Some(last) if self.nodes <= NODES => last.parts.push(Part::Element(closed)),
                    Some(_) => {}
                }
            }
        }
        None
    }

    fn push(&mut self, name: &str, attributes: Attributes<'_>) {
        self.nodes += 1;
        self.open.push(Element {
            name: name.to_owned(),
            attributes: attributes.pairs().to_vec(),
            parts: Vec::new(),
        });
    }
}

/// The root of `xml`.
pub(super) fn parse(xml: &str) -> Result<Element, Failure> {
    let (mut builder, mut root) = (Builder::default(), None);
    xml::walk(xml, |node| {
        if let Some(closed) = builder.take(node) {
            root = root.take().or(Some(closed));
        }
    })?;
    if builder.nodes > NODES {
        return Err(Failure::too_much("a part of the document has more elements than are read"));
    }
    Ok(root.unwrap_or_default())
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The elements in it.
    pub(super) fn children(&self) -> impl Iterator<Item = &Self> {
        self.parts.iter().filter_map(|part| match part {
            Part::Element(element) => Some(element),
            Part::Text(_) => None,
        })
    }

    /// The first element in it called `name`.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children().find(|child| child.name == name)
    }

    /// All elements called `name` in it at any depth, outermost ones only.
    pub(super) fn all<'a>(&'a self, name: &str) -> Vec<&'a Self> {
        let mut found = Vec::new();
        for child in self.children() {
            if child.name == name {
                found.push(child);
            } else {
                found.extend(child.all(name));
            }
        }
        found
    }

    /// The lines of its paragraphs, as Office writes them.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |paragraph: &Self| {
            let mut text = String::new();
            paragraph.add_runs(&mut text);
            text
        };
        self.all("p").into_iter().map(line).collect()
    }

    fn add_runs(&self, text: &mut String) {
        for child in self.children() {
            match child.name.as_str() {
                "t" => text.push_str(&child.text()),
                "br" => text.push('\n'),
                _ => child.add_runs(text),
            }
        }
    }

    /// All text in it.
    pub(super) fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Element(element) => element.text(),
            Part::Text(text) => text.clone(),
        };
        self.parts.iter().map(text).collect()
    }
}
