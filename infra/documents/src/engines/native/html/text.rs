//! Text as browsers show it.

use ego_tree::iter::Edge;
use scraper::{ElementRef, Node};

use super::{super::script::Script, is_block};

/// The text of a cell, a heading or a note in one line: breaks and blocks part words, raised and lowered digits are letters of their
/// own, and programs are left out.
pub(super) fn text_of(element: ElementRef<'_>) -> String {
    let mut text = String::new();
    let mut hidden = 0_usize;
    let mut scripts = Vec::new();
    for edge in element.traverse() {
        let (node, opens) = match edge {
            Edge::Open(node) => (node, true),
            Edge::Close(node) => (node, false),
        };
        if node.id() == element.id() {
            continue;
        }
        match node.value() {
            Node::Text(piece) if opens && hidden == 0 => push_collapsed(&mut text, piece),
            Node::Element(inner) => match inner.name() {
                "script" | "style" | "template" => hidden = if opens { hidden + 1 } else { hidden - 1 },
                "sup" | "sub" if opens => scripts.push(text.len()),
                name @ ("sup" | "sub") => {
                    let piece = text.split_off(scripts.pop().unwrap_or(text.len()));
                    text.push_str(&Script::set(Script::of(name), &piece));
                }
                name if name == "br" || is_block(name) => {
                    push_collapsed(&mut text, " ");
                }
                _ => {}
            },
            _ => {}
        }
    }
    text.trim().to_owned()
}

/// Appends what stands in a box of its own.
pub(super) fn push_apart(text: &mut String, piece: &str) {
    if piece.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with([' ', '\n']) {
        text.push(' ');
    }
    push_collapsed(text, piece);
    text.push(' ');
}

/// Appends text with white space collapsed, as browsers show it.
pub(super) fn push_collapsed(text: &mut String, piece: &str) {
    for letter in piece.chars() {
        if !matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{C}') {
            text.push(letter);
        } else if !text.ends_with([' ', '\n']) && !text.is_empty() {
            text.push(' ');
        }
    }
}
