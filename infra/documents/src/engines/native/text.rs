use super::Content;
use crate::block::{Block, Content as Kind};

/// Text as a terminal or a printer shows it: without escape sequences, and without letters that are struck over.
fn as_shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{8}' if !shown.ends_with('\n') => {
                shown.pop();
            }
            '\u{1B}' if letters.next_if_eq(&'[').is_some() => {
                // Parameters, then one letter that says what to do.
                while letters.next_if(|next| matches!(next, ' '..='?')).is_some() {}
                letters.next_if(|next| matches!(next, '@'..='~'));
            }
            _ => shown.push(letter),
        }
    }
    shown
}

/// Paragraphs are divided by empty lines; lines within them stay.
pub(super) fn read(text: &str) -> Content {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = if text.contains(['\u{8}', '\u{1B}']) { as_shown(&text) } else { text };
    let paragraphs =
        text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.trim().is_empty());
    let blocks = paragraphs.map(|part| Block::new(Kind::Paragraph(part.to_owned()))).collect();
    Content { blocks, ..Content::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_what_they_do_on_a_terminal() {
        assert_eq!(as_shown("\u{1B}[1;31mfailed\u{1B}[0m N\u{8}NA\u{8}A _\u{8}x"), "failed NA x");
    }
}
