//! Heads and feet of the pages of open texts, ISO 26300 part 3, 16.10: they stand in the file of styles.

use super::{
    margins::MarginTexts,
    xml::{self, Node},
};
use crate::failure::Failure;

/// Texts of the edges of pages, each once, without those that are numbers alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Margins {
    pub(super) heads: Vec<String>,
    pub(super) feet: Vec<String>,
}

/// The edge whose text is read.
#[derive(Debug, Clone, Copy)]
enum Edge {
    Head,
    Foot,
}

impl Edge {
    fn of(element: &str) -> Option<Self> {
        match element {
            "header" | "header-left" | "header-first" => Some(Self::Head),
            "footer" | "footer-left" | "footer-first" => Some(Self::Foot),
            _ => None,
        }
    }
}

impl Margins {
    /// Those of a file of styles.
    pub(super) fn read(styles: &str) -> Result<Self, Failure> {
        let (mut margins, mut known) = (Self::default(), MarginTexts::default());
        let (mut edge, mut text, mut paragraphs) = (None, String::new(), 0_usize);
        xml::walk(styles, |node| match node {
            Node::Open(name, attributes) if Edge::of(name).is_some() => {
                edge = Edge::of(name).filter(|_| attributes.get("display") != Some("false"));
            }
            Node::Close(name) if Edge::of(name).is_some() => edge = None,
            Node::Open("p" | "h", _) => {
                text.clear();
                paragraphs += 1;
            }
            Node::Close("p" | "h") => {
                paragraphs = paragraphs.saturating_sub(1);
                let text = std::mem::take(&mut text).trim().to_owned();
                let texts = match edge {
                    Some(Edge::Head) => &mut margins.heads,
                    Some(Edge::Foot) => &mut margins.feet,
                    None => return,
                };
                if known.is_new(&text) {
                    texts.push(text);
                }
            }
            Node::Open("tab", _) => text.push('\t'),
            Node::Open("line-break", _) => text.push('\n'),
            Node::Open("s", _) => text.push(' '),
            Node::Text(more) if paragraphs > 0 && edge.is_some() => xml::push_collapsed(&mut text, more),
            Node::Open(..) | Node::Close(_) | Node::Text(_) => {}
        })?;
        Ok(margins)
    }
}
