//! Detects a file's type by its bytes. The name matters only to distinguish kinds of plain text.

use std::io::{Cursor, Read};

use zip::ZipArchive;

use crate::encoding;

/// Portable documents.
pub const PDF: &str = "application/pdf";
/// Microsoft's formats since 2007 with a password, in an envelope of the older kind.
pub const ENCRYPTED_OFFICE: &str = "application/x-encrypted-office";
/// The type of bytes that are not recognised.
pub const UNKNOWN: &str = "application/octet-stream";
/// Microsoft's formats since 2007.
pub const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// Sheets.
pub const XLSX: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
/// Slides.
pub const PPTX: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";
/// Sheets before 2007.
pub const XLS: &str = "application/vnd.ms-excel";
/// Open documents: text.
pub const ODT: &str = "application/vnd.oasis.opendocument.text";
/// Sheets.
pub const ODS: &str = "application/vnd.oasis.opendocument.spreadsheet";
/// Slides.
pub const ODP: &str = "application/vnd.oasis.opendocument.presentation";
/// Books.
pub const EPUB: &str = "application/epub+zip";
/// Rich text.
pub const RTF: &str = "application/rtf";
/// Web pages.
pub const HTML: &str = "text/html";
/// Mails.
pub const EML: &str = "message/rfc822";
/// Tables as text.
pub const CSV: &str = "text/csv";
/// Markdown.
pub const MARKDOWN: &str = "text/markdown";
/// Text.
pub const TEXT: &str = "text/plain";
/// Pictures.
pub const PNG: &str = "image/png";
/// Pictures.
pub const JPEG: &str = "image/jpeg";
/// Pictures of many pages.
pub const TIFF: &str = "image/tiff";
/// Pictures.
pub const BMP: &str = "image/bmp";
/// Pictures.
pub const GIF: &str = "image/gif";
/// Pictures.
pub const WEBP: &str = "image/webp";

/// Word before 2007.
pub const DOC: &str = "application/msword";
/// Slides before 2007.
const PPT: &str = "application/vnd.ms-powerpoint";
/// Mails of Outlook.
const MSG: &str = "application/vnd.ms-outlook";
/// Archives.
const ZIP: &str = "application/zip";
/// XHTML that a Tika server made of a document of another type.
pub const TIKA_PAGE: &str = "application/x-tika-page";

/// Other compound files.
pub(crate) const COMPOUND: &str = "application/x-ole-storage";

/// Types that are recognised here and only read by Tika; it knows more.
pub(crate) const FOR_TIKA: [&str; 3] = [PPT, MSG, ZIP];

/// All types that are known by name here.
const KNOWN: [&str; 21] = [
    PDF, DOC, DOCX, XLSX, PPTX, XLS, ODT, ODS, ODP, EPUB, RTF, HTML, EML, CSV, MARKDOWN, TEXT, PNG, JPEG,
    TIFF, WEBP, TIKA_PAGE,
];

/// The type called `name`.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    KNOWN.into_iter().find(|known| *known == name)
}

/// Bytes read to distinguish kinds of text.
const HEAD: usize = 4096;
/// Where a PDF may begin, as readers allow.
const PDF_HEAD: usize = 1024;

/// A container of files, whose type follows from its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Envelope {
    Archive,
    Compound,
}

/// The kind of envelope that `bytes` begin like.
pub(crate) fn envelope(bytes: &[u8]) -> Option<Envelope> {
    if contains(&bytes[..bytes.len().min(PDF_HEAD)], b"%PDF-") {
        return None;
    }
    match bytes {
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Envelope::Archive),
        _ if bytes.starts_with(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") => Some(Envelope::Compound),
        _ => None,
    }
}

/// The type of `bytes`; `name` is what the file was called.
pub fn detect(bytes: &[u8], name: &str) -> &'static str {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    if contains(&bytes[..bytes.len().min(PDF_HEAD)], b"%PDF-") {
        return PDF;
    }
    match envelope(bytes) {
        Some(Envelope::Archive) => return in_zip(bytes),
        Some(Envelope::Compound) => return in_compound_file(bytes),
        None => {}
    }
    if starts(b"\x89PNG\r\n\x1a\n") {
        return PNG;
    }
    if starts(b"\xFF\xD8\xFF") {
        return JPEG;
    }
    if starts(b"II*\0") || starts(b"MM\0*") || starts(b"II+\0") || starts(b"MM\0+") {
        return TIFF;
    }
    if starts(b"GIF87a") || starts(b"GIF89a") {
        return GIF;
    }
    if starts(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return WEBP;
    }
    if starts(b"BM") && bytes.get(6..10) == Some(&[0; 4]) {
        return BMP;
    }
    // Some programs write a line break before it.
    if starts(b"{\\rtf") || bytes.trim_ascii_start().starts_with(b"{\\rtf") {
        return RTF;
    }
    if encoding::is_text(bytes) { kind_of_text(bytes, name) } else { UNKNOWN }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Open documents and books name their type in the first file; Microsoft's have a main part.
fn in_zip(bytes: &[u8]) -> &'static str {
    let Ok(mut archive) = ZipArchive::new(Cursor::new(bytes)) else { return in_broken_zip(bytes) };
    let mut named = String::new();
    if let Ok(file) = archive.by_name("mimetype") {
        // An unreadable entry names no type.
        let _ = file.take(200).read_to_string(&mut named);
    }
    if let Some(known) = [ODT, ODS, ODP, EPUB].into_iter().find(|known| named.trim().starts_with(known)) {
        return known;
    }
    let has = |name: &str| archive.file_names().any(|file| file.is_ok_and(|file| file == name));
    let by_part = [
        ("word/document.xml", DOCX),
        ("xl/workbook.xml", XLSX),
        ("ppt/presentation.xml", PPTX),
        ("META-INF/container.xml", EPUB),
    ];
    if let Some((_, known)) = by_part.into_iter().find(|(part, _)| has(part)) {
        return known;
    }
    // The main part may have another name; the list of types names its kind.
    let mut types = String::new();
    if let Ok(file) = archive.by_name("[Content_Types].xml") {
        let _ = file.take(TYPES).read_to_string(&mut types);
    }
    let by_kind = [("wordprocessingml.", DOCX), ("presentationml.", PPTX), ("spreadsheetml.", XLSX)];
    let main = |kind: &str| {
        [
            "document.main+xml",
            "template.main+xml",
            "presentation.main+xml",
            "slideshow.main+xml",
            "sheet.main+xml",
        ]
        .iter()
        .any(|main| types.contains(&format!("{kind}{main}")))
    };
    by_kind.into_iter().find(|(kind, _)| main(kind)).map_or(ZIP, |(_, known)| known)
}

/// Bytes of the list of types that are looked at.
const TYPES: u64 = 1 << 20;

/// Names of the parts of Microsoft's formats; one of them is the first entry.
const OFFICE_PARTS: [&str; 6] = ["[Content_Types].xml", "_rels/", "docProps/", "word/", "xl/", "ppt/"];

/// The intended type of an archive without its directory, so that its reader can report the damage.
pub(crate) fn in_broken_zip(bytes: &[u8]) -> &'static str {
    let head = &bytes[..bytes.len().min(HEAD)];
    let named = [ODT, ODS, ODP, EPUB].into_iter().find(|known| contains(head, known.as_bytes()));
    let is_office = OFFICE_PARTS.into_iter().any(|part| contains(head, part.as_bytes()));
    named.unwrap_or(if is_office { DOCX } else { ZIP })
}

/// Microsoft's formats before 2007, distinguished by the names of their streams, which are in UTF-16.
pub(crate) fn in_compound_file(bytes: &[u8]) -> &'static str {
    let has = |name: &str| {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        contains(bytes, &name)
    };
    if has("WordDocument") {
        DOC
    } else if has("Workbook") || has("Book") {
        XLS
    } else if has("PowerPoint Document") {
        PPT
    } else if has("__substg1.0_") {
        MSG
    } else if has("EncryptedPackage") {
        ENCRYPTED_OFFICE
    } else {
        COMPOUND
    }
}

fn kind_of_text(bytes: &[u8], name: &str) -> &'static str {
    let head = encoding::decode(&bytes[..bytes.len().min(HEAD)]).to_ascii_lowercase();
    let head = head.trim_start_matches('\u{FEFF}').trim_start();
    if is_html(head) {
        return HTML;
    }
    if is_mail(head) {
        return EML;
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
    match extension.as_str() {
        "md" | "markdown" => MARKDOWN,
        "csv" | "tsv" if delimiter(head).is_some() => CSV,
        "txt" | "text" | "log" => TEXT,
        _ if delimiter(head).is_some_and(|delimiter| delimiter != b' ') && head.lines().count() >= 3 => CSV,
        _ => TEXT,
    }
}

fn is_html(head: &str) -> bool {
    let head =
        if head.starts_with("<?xml") { head.split_once("?>").map_or("", |(_, rest)| rest) } else { head };
    let head = head.trim_start();
    let head =
        if head.starts_with("<!--") { head.split_once("-->").map_or("", |(_, rest)| rest) } else { head };
    let head = head.trim_start();
    ["<!doctype html", "<html", "<head", "<body", "<h1", "<p>", "<div", "<table"]
        .iter()
        .any(|tag| head.starts_with(tag))
}

fn is_mail(head: &str) -> bool {
    let headers = [
        "from",
        "to",
        "subject",
        "date",
        "received",
        "return-path",
        "message-id",
        "mime-version",
        "delivered-to",
        "x-",
    ];
    let mut known = 0;
    for line in head.lines().take_while(|line| !line.is_empty()) {
        if line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((name, _)) = line.split_once(':') else { return false };
        known += usize::from(
            headers.iter().any(|header| name == *header || (*header == "x-" && name.starts_with("x-"))),
        );
    }
    known >= 2
}

/// The separator of values, if it gives every line the same number of values.
pub(crate) fn delimiter(head: &str) -> Option<u8> {
    let mut lines: Vec<&str> = head.lines().take(20).filter(|line| !line.trim().is_empty()).collect();
    if head.len() >= HEAD && lines.len() > 1 {
        lines.pop();
    }
    if lines.len() < 2 {
        return None;
    }
    [b';', b'\t', b',', b'|'].into_iter().find(|delimiter| {
        let count = |line: &&str| unquoted(line, *delimiter);
        let first = count(&lines[0]);
        first > 0 && lines.iter().all(|line| count(line) == first)
    })
}

fn unquoted(line: &str, delimiter: u8) -> usize {
    let mut quoted = false;
    let mut count = 0;
    for byte in line.bytes() {
        match byte {
            b'"' => quoted = !quoted,
            _ if byte == delimiter && !quoted => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_follows_from_bytes_and_not_from_names() {
        let cases: &[(&[u8], &str, &str)] = &[
            (b"%PDF-1.7\n", "a.txt", PDF),
            (b"\n\n%PDF-1.4", "", PDF),
            (b"\x89PNG\r\n\x1a\n....", "a.pdf", PNG),
            (b"\xFF\xD8\xFF\xE0", "", JPEG),
            (b"{\\rtf1 x}", "a.doc", RTF),
            (b"<!DOCTYPE html><p>x", "a.md", HTML),
            (b"<?xml version='1.0'?>\n<html>", "", HTML),
            (b"From: a@b\nSubject: x\nDate: y\n\nText", "", EML),
            (b"a;b\n1;2\n3;4\n", "", CSV),
            (b"a,b\n\"1,5\",2\n", "x.csv", CSV),
            (b"# Title\n\ntext", "x.md", MARKDOWN),
            (b"Hello, world.\nHow are you?\n", "x.csv", TEXT),
            ("Grüße".as_bytes(), "", TEXT),
            (b"Gr\xFC\xDFe", "", TEXT),
            (b"\x1B[31mfailed\x1B[0m: N\x08NA\x08AM\x08ME\x08E\x07", "a.log", TEXT),
            (b"t\0h\0e\0 \0p\0o\0i\0n\0t\0s\0", "", TEXT),
            (b"\x7fELF\x02\x01\x01\0\0\0", "a.txt", UNKNOWN),
            (b"PK\x03\x04broken", "a.docx", "application/zip"),
            (b"PK\x03\x04\x14\0docProps/app.xml", "", DOCX),
            (b"PK\x03\x04mimetypeapplication/epub+zip", "", EPUB),
        ];
        for (bytes, name, expected) in cases {
            assert_eq!(detect(bytes, name), *expected, "{name} {bytes:?}");
        }
    }
}
