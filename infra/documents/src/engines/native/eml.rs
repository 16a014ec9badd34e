//! Mails: sender, recipients, subject and text; attachments are listed by name.

use mail_parser::{Address, Message, MessageParser, MimeHeaders, PartType};

use super::{Content, collect::Collector, html};
use crate::failure::Failure;

/// Mails within mails at most.
const DEPTH: usize = 4;

/// Reads a mail.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let message =
        MessageParser::default().parse(bytes).ok_or_else(|| Failure::corrupt("the mail cannot be read"))?;
    let collector = append(&message, Collector::default(), 0)?;
    let mut content = Content { blocks: collector.finish(), ..Content::default() };
    let author = message.from().map(people).unwrap_or_default();
    for (name, value) in [("title", message.subject().unwrap_or_default()), ("author", author.as_str())] {
        content.metadata.insert(name.to_owned(), value.into());
    }
    Ok(content)
}

fn append(message: &Message<'_>, mut collector: Collector, depth: usize) -> Result<Collector, Failure> {
    collector.heading(1, message.subject().unwrap_or_default());
    let mut head = Vec::new();
    for (name, people_of) in [("From", message.from()), ("To", message.to()), ("Cc", message.cc())] {
        head.extend(people_of.map(|address| format!("{name}: {}", people(address))));
    }
    head.extend(message.date().map(|date| format!("Date: {}", date.to_rfc3339())));
    collector.paragraph(&head.join("\n"));
    let has_plain = message.text_bodies().any(|part| matches!(part.body, PartType::Text(_)));
    if has_plain {
        for index in 0..message.text_body_count() {
            let text = message.body_text(index).unwrap_or_default().replace("\r\n", "\n");
            text.split("\n\n").for_each(|paragraph| collector.paragraph(paragraph));
        }
    } else {
        for index in 0..message.html_body_count() {
            collector = html::append(&message.body_html(index).unwrap_or_default(), collector)?;
        }
    }
    for attachment in message.attachments() {
        match &attachment.body {
            PartType::Message(inner) if depth < DEPTH => collector = append(inner, collector, depth + 1)?,
            _ => collector.item(
                0,
                false,
                &format!("Attachment: {}", attachment.attachment_name().unwrap_or("unnamed")),
            ),
        }
    }
    collector.end_list();
    Ok(collector)
}

fn people(address: &Address<'_>) -> String {
    let one = |person: &mail_parser::Addr<'_>| match (person.name(), person.address()) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        (name, address) => name.or(address).unwrap_or_default().to_owned(),
    };
    address.iter().map(one).collect::<Vec<_>>().join(", ")
}
