//! XML as a stream of elements and text. Entities of the document's own are left out, so that none can explode.

use quick_xml::{Reader, events::Event};

use crate::failure::Failure;

/// Elements within elements at most.
const DEPTH: usize = 256;

/// The next node. Names are without their prefix.
pub(super) enum Node<'a> {
    Open(&'a str, Attributes<'a>),
    Close(&'a str),
    Text(&'a str),
}

/// The attributes of an element.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(&'a [(String, String)]);

impl<'a> Attributes<'a> {
    /// All names, without their prefixes, and values.
    pub(super) fn pairs(self) -> &'a [(String, String)] {
        self.0
    }

    /// The value of the attribute with this name, without its prefix.
    pub(super) fn get(self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Calls `visit` for every node of `xml`; empty elements are opened and closed.
pub(super) fn walk(xml: &str, mut visit: impl FnMut(Node<'_>)) -> Result<(), Failure> {
    let damaged = || Failure::corrupt("a part of the document is not well-formed XML");
    let mut reader = Reader::from_str(xml);
    let mut depth = 0;
    let mut pairs = Vec::new();
    loop {
        match reader.read_event().map_err(|_| damaged())? {
            Event::Start(tag) => {
                depth += 1;
                if depth > DEPTH {
                    return Err(Failure::too_much("the document is nested more deeply than is read"));
                }
                read_attributes(&tag, &mut pairs);
                visit(Node::Open(local(tag.name().as_ref()), Attributes(&pairs)));
            }
            Event::Empty(tag) => {
                read_attributes(&tag, &mut pairs);
                visit(Node::Open(local(tag.name().as_ref()), Attributes(&pairs)));
                visit(Node::Close(local(tag.name().as_ref())));
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                visit(Node::Close(local(tag.name().as_ref())));
            }
            Event::Text(text) => visit(Node::Text(&text.xml10_content())),
            Event::CData(text) => visit(Node::Text(&text.xml10_content())),
            Event::GeneralRef(name) => {
                let known = match &*name.xml10_content() {
                    "amp" => Some('&'),
                    "lt" => Some('<'),
                    "gt" => Some('>'),
                    "quot" => Some('"'),
                    "apos" => Some('\''),
                    _ => name.resolve_char_ref().ok().flatten(),
                };
                if let Some(letter) = known {
                    visit(Node::Text(letter.encode_utf8(&mut [0; 4])));
                }
            }
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// Appends text with its white space collapsed, for formats whose files may be indented.
pub(super) fn push_collapsed(text: &mut String, more: &str) {
    for letter in more.chars() {
        if !matches!(letter, ' ' | '\t' | '\n' | '\r') {
            text.push(letter);
        } else if !text.is_empty() && !text.ends_with([' ', '\n', '\t']) {
            text.push(' ');
        }
    }
}

fn read_attributes(tag: &quick_xml::events::BytesStart<'_>, pairs: &mut Vec<(String, String)>) {
    pairs.clear();
    for attribute in tag.attributes().with_checks(false).flatten() {
        if let Ok(value) = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0) {
            pairs.push((local(attribute.key.as_ref()).to_owned(), value.into_owned()));
        }
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}
