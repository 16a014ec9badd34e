//! Title, author and subject as the bytes of a file name them, without the table that says where its objects are.
//!
//! A damaged table is mended by looking for the objects; PDFium does not look for these. Compressed objects are not found here.

use crate::Metadata;

/// Bytes of the dictionary that are looked at, and of an entry.
const DICTIONARY: usize = 1 << 16;
const ENTRY: usize = 8192;
/// Depth of arrays and dictionaries within it.
const DEPTH: usize = 32;

/// The metadata in `bytes`; those of the newest version, if there are several. Nothing of a file with a password.
pub(crate) fn find(bytes: &[u8]) -> Metadata {
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<Metadata> {
    let (number, generation) =
        last(bytes, b"/Info").and_then(|at| reference(&bytes[at + b"/Info".len()..]))?;
    if last(bytes, b"/Encrypt").is_some() {
        return None;
    }
    let dictionary = object(bytes, number, generation)?;
    let text = |name: &[u8]| -> String {
        let Some(value) = entry(dictionary, name) else { return String::new() };
        let referred = reference(value).and_then(|(number, generation)| object(bytes, number, generation));
        string(referred.unwrap_or(value)).map_or_else(String::new, |found| decode(&found).trim().to_owned())
    };
    Some(Metadata { title: text(b"Title"), author: text(b"Author"), subject: text(b"Subject") })
}

/// Where `pattern` stands last, not as the beginning of a longer name or number.
fn last(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let first = *pattern.first()?;
    let starts = (0..bytes.len().checked_sub(pattern.len())? + 1).rev();
    starts.into_iter().find(|at| {
        bytes[*at] == first
            && bytes[*at..].starts_with(pattern)
            && bytes.get(at + pattern.len()).is_none_or(|next| is_white(*next) || is_delimiter(*next))
    })
}

/// The content of the newest object of this number.
fn object(bytes: &[u8], number: u32, generation: u32) -> Option<&[u8]> {
    let head = format!("{number} {generation} obj");
    let mut before = bytes;
    loop {
        let at = last(before, head.as_bytes())?;
        if at == 0 || !bytes[at - 1].is_ascii_digit() {
            let content = &bytes[at + head.len()..];
            return Some(&content[..content.len().min(DICTIONARY)]);
        }
        before = &bytes[..at + head.len() - 1];
    }
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b'\0' | b'\t' | b'\n' | b'\x0C' | b'\r' | b' ')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'/' | b'%')
}

fn after_space(mut bytes: &[u8]) -> &[u8] {
    loop {
        match bytes.first() {
            Some(b'%') => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
                bytes = &bytes[end..];
            }
            Some(byte) if is_white(*byte) => bytes = &bytes[1..],
            _ => return bytes,
        }
    }
}

/// `number generation R` at the beginning of `bytes`.
fn reference(bytes: &[u8]) -> Option<(u32, u32)> {
    let (number, rest) = whole_number(after_space(bytes))?;
    let (generation, rest) = whole_number(after_space(rest))?;
    (after_space(rest).first() == Some(&b'R')).then_some((number, generation))
}

fn whole_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&bytes[..length]).ok()?.parse().ok()?;
    Some((number, &bytes[length..]))
}

/// The value of `name` in the dictionary at the beginning of `bytes`.
fn entry<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = after_space(bytes).strip_prefix(b"<<")?;
    loop {
        rest = after_space(rest);
        let found = rest.strip_prefix(b"/")?;
        let length = found.iter().take_while(|byte| !is_white(**byte) && !is_delimiter(**byte)).count();
        let value = after_space(&found[length..]);
        if &found[..length] == name {
            return Some(value);
        }
        rest = after_value(value, 0)?;
    }
}

/// The bytes behind the value at the beginning of `bytes`.
fn after_value(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    if depth > DEPTH {
        return None;
    }
    if let Some(inner) = bytes.strip_prefix(b"<<") {
        return after_all(inner, b">>", depth);
    }
    if reference(bytes).is_some() {
        let end = bytes.iter().position(|byte| *byte == b'R')?;
        return Some(&bytes[end + 1..]);
    }
    match bytes.first()? {
        b'[' => after_all(&bytes[1..], b"]", depth),
        b'(' | b'<' => string_length(bytes).map(|length| &bytes[length..]),
        b'/' => {
            let length =
                bytes[1..].iter().take_while(|byte| !is_white(**byte) && !is_delimiter(**byte)).count();
            Some(&bytes[length + 1..])
        }
        _ => {
            let length = bytes.iter().take_while(|byte| !is_white(**byte) && !is_delimiter(**byte)).count();
            (length > 0).then(|| &bytes[length..])
        }
    }
}

/// The bytes behind values up to `end`.
fn after_all<'a>(mut bytes: &'a [u8], end: &[u8], depth: usize) -> Option<&'a [u8]> {
    loop {
        bytes = after_space(bytes);
        match bytes.strip_prefix(end) {
            Some(rest) => return Some(rest),
            None => bytes = after_value(bytes, depth + 1)?,
        }
    }
}

/// Bytes that the string at the beginning of `bytes` takes.
fn string_length(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'<') {
        return bytes.iter().position(|byte| *byte == b'>').map(|end| end + 1);
    }
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(index + 1),
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The bytes of the string at the beginning of `bytes`.
fn string(bytes: &[u8]) -> Option<Vec<u8>> {
    let bytes = after_space(bytes);
    if !matches!(bytes.first(), Some(b'(' | b'<')) || bytes.starts_with(b"<<") {
        return None;
    }
    let inner = &bytes[1..string_length(bytes)? - 1];
    let inner = &inner[..inner.len().min(4 * ENTRY)];
    let mut found = if bytes[0] == b'<' { from_hex(inner) } else { from_literal(inner) };
    found.truncate(ENTRY);
    Some(found)
}

fn from_hex(bytes: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> =
        bytes.iter().filter_map(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect()
}

fn from_literal(bytes: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if *byte != b'\\' {
            found.push(*byte);
            continue;
        }
        let Some(escaped) = bytes.get(at) else { break };
        at += 1;
        match escaped {
            b'n' => found.push(b'\n'),
            b'r' => found.push(b'\r'),
            b't' => found.push(b'\t'),
            b'b' => found.push(8),
            b'f' => found.push(12),
            // The line continues.
            b'\n' => {}
            b'\r' => at += usize::from(bytes.get(at) == Some(&b'\n')),
            b'0'..=b'7' => {
                let octal = bytes[at - 1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
                let (count, value) = octal
                    .fold((0, 0_u32), |(count, value), byte| (count + 1, value * 8 + u32::from(byte - b'0')));
                at += count - 1;
                found.push(value as u8);
            }
            other => found.push(*other),
        }
    }
    found
}

/// Characters of PDFDocEncoding from 0x80 on that are not those of Latin-1 (PDF 1.7, annex D.2).
const DOC_ENCODING: [char; 33] = [
    '•', '†', '‡', '…', '—', '–', 'ƒ', '⁄', '‹', '›', '−', '‰', '„', '“', '”', '‘', '’', '‚', '™', 'ﬁ', 'ﬂ',
    'Ł', 'Œ', 'Š', 'Ÿ', 'Ž', 'ı', 'ł', 'œ', 'š', 'ž', '\u{FFFD}', '€',
];

fn decode(bytes: &[u8]) -> String {
    if let Some(units) = bytes.strip_prefix(b"\xFE\xFF") {
        let units: Vec<u16> =
            units.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    if let Some(text) = bytes.strip_prefix(b"\xEF\xBB\xBF") {
        return String::from_utf8_lossy(text).into_owned();
    }
    let letter = |byte: &u8| match byte.checked_sub(0x80) {
        Some(index) => DOC_ENCODING.get(usize::from(index)).copied().unwrap_or(char::from(*byte)),
        None => char::from(*byte),
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pdf, with_library};

    #[test]
    fn entries_are_found_whatever_stands_between_them() {
        let file = b"4 0 obj<</Title(old)>>endobj 14 0 obj<</Title(no)>>endobj\n4 0 obj\n<< /Producer (a /Title \\(b\\) (c)) /X[1 2 R(])<5D>]\
            /Y<</Title(inner)>>/Trapped/False /N 4 0 R % /Title(comment)\n/Author <FEFF00C4> /Subject 5 0 R/Title(A \\\"B\\\" \\(\\101\\)\\r\\223x)>>endobj\n\
            5 0 obj(of it)endobj trailer<</InfoX 9 0 R/Info 4 0 R>>";
        let found = find(file);
        assert_eq!((found.author.as_str(), found.subject.as_str()), ("Ä", "of it"));
        assert_eq!(found.title, "A \"B\" (A)\rﬁx");
    }

    #[test]
    fn odd_files_have_none() {
        for file in [
            &b""[..],
            b"/Info",
            b"/Info 4 0 R",
            b"4 0 obj /Info 4 0 R",
            b"4 0 obj<</Title(never ends /Info 4 0 R",
            b"4 0 obj<</Title 4 0 R>> /Info 4 0 R",
            b"4 0 obj<</Title(a)>> /Info 4 0 R /Encrypt 5 0 R",
        ] {
            assert_eq!(find(file), Metadata::default(), "{}", String::from_utf8_lossy(file));
        }
        let deep = format!("4 0 obj<</A{}/Title(a)>>endobj/Info 4 0 R", "[".repeat(100_000));
        assert_eq!(find(deep.as_bytes()), Metadata::default());
    }

    /// The title that is read from a file which is damaged by `damage`.
    fn title(damage: impl Fn(&str) -> String) -> String {
        let info = "<</Title(Pr\\374fbericht)/Author(Anna)>>";
        let whole = pdf("BT /F 12 Tf 50 700 Td (words) Tj ET", "", "", &[info]);
        let whole = String::from_utf8(whole).unwrap().replace("/Root 1 0 R", "/Root 1 0 R/Info 6 0 R");
        let bytes = damage(&whole).into_bytes();
        with_library(move |library| library.open(bytes).unwrap().metadata().title)
    }

    #[test]
    fn title_of_a_file_with_a_damaged_table_is_kept() {
        assert_eq!(title(str::to_owned), "Prüfbericht");
        let moved = |file: &str| file.replacen("%PDF-1.5\n", "%PDF-1.5\n% a line more\n", 1);
        assert_eq!(title(moved), "Prüfbericht");
        let lost = |file: &str| file.replace("startxref\n", "startxref\n9");
        assert_eq!(title(lost), "Prüfbericht");
        // A newer trailer that names none.
        let newer = |file: &str| {
            format!("{}trailer<</Size 7/Root 1 0 R>>\n%%EOF\n", file.replace("startxref\n", "startxref\n9"))
        };
        assert_eq!(title(newer), "Prüfbericht");
    }
}
