//! What a file is, from its bytes. Names say nothing, except which kind of plain text a plain text is.

use std::io::{Cursor, Read};

use zip::ZipArchive;

/// Portable documents.
pub const PDF: &str = "application/pdf";
/// Microsoft's formats since 2007 with a password, in an envelope of the older kind.
pub const ENCRYPTED_OFFICE: &str = "application/x-encrypted-office";
/// What nobody reads.
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
const DOC: &str = "application/msword";
/// Slides before 2007.
const PPT: &str = "application/vnd.ms-powerpoint";
/// Mails of Outlook.
const MSG: &str = "application/vnd.ms-outlook";
/// Archives.
const ZIP: &str = "application/zip";
/// XHTML that a Tika server made of a document of another type.
pub const TIKA_PAGE: &str = "application/x-tika-page";

/// Types that are recognised here and only read by Tika; it knows more.
pub(crate) const FOR_TIKA: [&str; 4] = [DOC, PPT, MSG, ZIP];

/// All types that are known by name here.
const KNOWN: [&str; 20] = [
    PDF, DOCX, XLSX, PPTX, XLS, ODT, ODS, ODP, EPUB, RTF, HTML, EML, CSV, MARKDOWN, TEXT, PNG, JPEG, TIFF,
    WEBP, TIKA_PAGE,
];

/// The type called `name`.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    KNOWN.into_iter().find(|known| *known == name)
}

/// How many bytes are looked at to tell kinds of text apart.
const HEAD: usize = 4096;
/// Where a PDF may begin, as readers allow.
const PDF_HEAD: usize = 1024;

/// The type of `bytes`; `name` is what the file was called.
pub fn detect(bytes: &[u8], name: &str) -> &'static str {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    if contains(&bytes[..bytes.len().min(PDF_HEAD)], b"%PDF-") {
        return PDF;
    }
    if starts(b"PK\x03\x04") || starts(b"PK\x05\x06") {
        return in_zip(bytes);
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
    if starts(b"{\\rtf") {
        return RTF;
    }
    if starts(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") {
        return in_compound_file(bytes);
    }
    if is_text(bytes) { kind_of_text(bytes, name) } else { UNKNOWN }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Open documents and books name their type in the first file; Microsoft's have a main part.
fn in_zip(bytes: &[u8]) -> &'static str {
    let Ok(mut archive) = ZipArchive::new(Cursor::new(bytes)) else { return in_broken_zip(bytes) };
    let mut named = String::new();
    if let Ok(file) = archive.by_name("mimetype") {
        // What cannot be read names nothing.
        let _ = file.take(200).read_to_string(&mut named);
    }
    if let Some(known) = [ODT, ODS, ODP, EPUB].into_iter().find(|known| named.trim().starts_with(known)) {
        return known;
    }
    let has = |name: &str| archive.file_names().any(|file| file.is_ok_and(|file| file == name));
    if has("word/document.xml") {
        DOCX
    } else if has("xl/workbook.xml") {
        XLSX
    } else if has("ppt/presentation.xml") {
        PPTX
    } else if has("META-INF/container.xml") {
        EPUB
    } else {
        ZIP
    }
}

/// What the parts of Microsoft's formats are called, one of which comes first.
const OFFICE_PARTS: [&str; 6] = ["[Content_Types].xml", "_rels/", "docProps/", "word/", "xl/", "ppt/"];

/// What an archive without its directory was meant to be: enough for its reader to say that it is damaged.
fn in_broken_zip(bytes: &[u8]) -> &'static str {
    let head = &bytes[..bytes.len().min(HEAD)];
    let named = [ODT, ODS, ODP, EPUB].into_iter().find(|known| contains(head, known.as_bytes()));
    let is_office = OFFICE_PARTS.into_iter().any(|part| contains(head, part.as_bytes()));
    named.unwrap_or(if is_office { DOCX } else { ZIP })
}

/// Microsoft's formats before 2007, told apart by the names of their streams, which are in UTF-16.
fn in_compound_file(bytes: &[u8]) -> &'static str {
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
        "application/x-ole-storage"
    }
}

/// Whether bytes are letters in UTF-8, UTF-16 with a mark, or one of the encodings with a byte per letter.
fn is_text(bytes: &[u8]) -> bool {
    if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        return true;
    }
    let head = &bytes[..bytes.len().min(64 * 1024)];
    let odd = head.iter().filter(|byte| matches!(byte, 0..=8 | 11 | 14..=26 | 28..=31 | 127)).count();
    !head.contains(&0) && odd * 200 <= head.len()
}

fn kind_of_text(bytes: &[u8], name: &str) -> &'static str {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD)]).to_ascii_lowercase();
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

/// What separates the values of each line, if every line has as many.
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
    fn bytes_tell_the_type_and_names_do_not() {
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
