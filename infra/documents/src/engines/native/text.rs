use encoding_rs::{UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::Content;
use crate::block::{Block, Content as Kind};

/// Text in UTF-8, UTF-16 with a mark, or, where it is none of these, in Windows' western encoding.
pub(super) fn decode(bytes: &[u8]) -> String {
    let (encoding, skip) = match bytes {
        [0xFF, 0xFE, ..] => (UTF_16LE, 2),
        [0xFE, 0xFF, ..] => (UTF_16BE, 2),
        [0xEF, 0xBB, 0xBF, ..] => (UTF_8, 3),
        _ if std::str::from_utf8(bytes).is_ok() => (UTF_8, 0),
        _ => (WINDOWS_1252, 0),
    };
    encoding.decode_without_bom_handling(&bytes[skip..]).0.into_owned()
}

/// A web page, in the encoding that it names in its head if it is not in Unicode.
pub(super) fn decode_html(bytes: &[u8]) -> String {
    if std::str::from_utf8(bytes).is_ok() {
        return decode(bytes);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(2048)]).to_ascii_lowercase();
    let named = head.split_once("charset=").map(|(_, rest)| rest.trim_start_matches(['"', '\'']));
    let label = named.map(|rest| rest.split(['"', '\'', ' ', '>', ';', '/']).next().unwrap_or_default());
    match label.and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes())) {
        Some(encoding) if encoding != UTF_8 => encoding.decode(bytes).0.into_owned(),
        _ => decode(bytes),
    }
}

/// Paragraphs are divided by empty lines; lines within them stay.
pub(super) fn read(text: &str) -> Content {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let paragraphs =
        text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.trim().is_empty());
    let blocks = paragraphs.map(|part| Block::new(Kind::Paragraph(part.to_owned()))).collect();
    Content { blocks, ..Content::default() }
}
