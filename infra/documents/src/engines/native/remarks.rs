//! Comments on documents of Office, and notes for their speakers.

use super::xml::{self, Node};
use crate::failure::Failure;

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comment {
    /// The place of a cell, or the id that the text refers to.
    pub(super) about: String,
    pub(super) text: String,
}

/// The comments of a part: its elements called `element`, whose attribute `about` says what they are about. Answers are part of
/// the comment that they answer.
pub(super) fn comments(xml: &str, element: &str, about: &str) -> Result<Vec<Comment>, Failure> {
    let (mut found, mut open, mut reads) = (Vec::new(), None::<Comment>, false);
    let (mut answers, mut is_answer, mut hidden) = (String::new(), false, 0_usize);
    xml::walk(xml, |node| match node {
        Node::Open("Fallback", _) => hidden += 1,
        Node::Close("Fallback") => hidden = hidden.saturating_sub(1),
        _ if hidden > 0 => {}
        Node::Open(name, attributes) if name == element => {
            let about = attributes.get(about).unwrap_or_default().to_owned();
            open = Some(Comment { about, text: String::new() });
            answers.clear();
        }
        Node::Close(name) if name == element => {
            let joined = |Comment { about, text }: Comment| {
                let text = format!("{}\n{}", text.trim(), answers.trim());
                Comment { about, text: text.trim().to_owned() }
            };
            let comment = open.take().map(joined);
            found.extend(comment.filter(|comment| !comment.text.is_empty()));
        }
        // PowerPoint has the answers before the comment.
        Node::Open("reply", _) => is_answer = true,
        Node::Close("reply") => is_answer = false,
        Node::Close("t" | "text") => reads = false,
        node => {
            if let Node::Open(name, _) = &node {
                reads = matches!(*name, "t" | "text");
            }
            let text = if is_answer { Some(&mut answers) } else { open.as_mut().map(|open| &mut open.text) };
            if let (Some(text), Some(more)) = (text, shown(&node, reads)) {
                text.push_str(more);
            }
        }
    })?;
    Ok(found)
}

/// The text that a node within a paragraph stands for.
fn shown<'a>(node: &Node<'a>, reads: bool) -> Option<&'a str> {
    match node {
        Node::Text(text) if reads => Some(text),
        Node::Open("br" | "cr", _) | Node::Close("p") => Some("\n"),
        Node::Open("tab", _) => Some("\t"),
        Node::Open(..) | Node::Close(_) | Node::Text(_) => None,
    }
}

/// The paragraphs of a slide's notes, without the numbers and heads of the pages that they are printed on.
pub(super) fn speaker_notes(xml: &str) -> Result<Vec<String>, Failure> {
    let (mut found, mut text, mut is_body, mut reads) = (Vec::new(), String::new(), false, false);
    xml::walk(xml, |node| match node {
        Node::Open("sp", _) => is_body = false,
        Node::Open("ph", attributes) => is_body = attributes.get("type") == Some("body"),
        Node::Open("t", _) => reads = is_body,
        Node::Close("t") => reads = false,
        Node::Close("p") => found.push(std::mem::take(&mut text)),
        node if is_body => text.push_str(shown(&node, reads).unwrap_or_default()),
        Node::Open(..) | Node::Close(_) | Node::Text(_) => {}
    })?;
    found.retain(|text| !text.trim().is_empty());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_with_their_answers() {
        let comment = |about: &str, text: &str| Comment { about: about.to_owned(), text: text.to_owned() };
        let sheet = "<comments><authors><author>Anna</author></authors><commentList><comment ref='B2' authorId='0'><text><r><t>Twice </t></r>\
            <r><t>measured</t></r></text></comment><comment ref='C2'><text><t> </t></text></comment></commentList></comments>";
        assert_eq!(comments(sheet, "comment", "ref").unwrap(), [comment("B2", "Twice measured")]);
        let slide = "<p188:cmLst><p188:cm><p188:replyLst><p188:reply><p188:txBody><a:p><a:r><a:t>Done</a:t></a:r></a:p></p188:txBody>\
            </p188:reply></p188:replyLst><p188:txBody><a:p><a:r><a:t>Larger?</a:t></a:r></a:p></p188:txBody></p188:cm></p188:cmLst>";
        assert_eq!(comments(slide, "cm", "idx").unwrap(), [comment("", "Larger?\nDone")]);
        let older = "<p:cmLst><p:cm authorId='0' idx='1'><p:pos x='1' y='2'/><p:text>Larger?</p:text></p:cm></p:cmLst>";
        assert_eq!(comments(older, "cm", "idx").unwrap(), [comment("1", "Larger?")]);
    }
}
