//! Detects the encoding of a text: by the byte order mark at its start, else by a declaration, else from the frequency of
//! its letters.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};

/// Bytes of a text at most from which its encoding is guessed.
const SAMPLE: usize = 1 << 20;
/// Where a text may declare its encoding.
const DECLARATION: usize = 2048;
/// Bytes in which UTF-16 without a mark is looked for.
const HEAD: usize = 4096;
/// Valid non-ASCII characters per invalid sequence, from which a damaged text still counts as UTF-8.
const VALID: usize = 20;
/// One of so many bytes may be a control character in a text of single bytes.
const CONTROLS: usize = 20;
/// Escape sequences that switch to Japanese in ISO-2022-JP, a seven-bit encoding.
const JAPANESE: [&[u8]; 2] = [b"\x1B$B", b"\x1B$@"];

/// `bytes` as text.
pub(crate) fn decode(bytes: &[u8]) -> String {
    let (encoding, skipped) = marked(bytes).unwrap_or_else(|| (guessed(bytes), 0));
    encoding.decode_without_bom_handling(&bytes[skipped..]).0.into_owned()
}

/// A web page or XML, which may declare its encoding.
pub(crate) fn decode_declared(bytes: &[u8]) -> String {
    let is_unicode = marked(bytes).is_some() || (is_utf8(bytes) && !has_seven_bit_japanese(bytes));
    match declared(bytes).filter(|_| !is_unicode) {
        Some(encoding) => encoding.decode_without_bom_handling(bytes).0.into_owned(),
        None => decode(bytes),
    }
}

/// The encoding that the mark at the beginning names, and the length of that.
fn marked(bytes: &[u8]) -> Option<(&'static Encoding, usize)> {
    Encoding::for_bom(bytes)
}

/// The encoding that the head of a page or of XML declares. A declaration of UTF-8 or UTF-16 is ignored: valid UTF-8 has
/// been recognised before, and a head that can be read is not in UTF-16.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARATION)]).to_ascii_lowercase();
    let xml = head.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")).map(|(xml, _)| xml);
    let after = |text: &str, name: &str| {
        let (_, rest) = text.split_once(name)?;
        let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let label = rest.split(['"', '\'', ' ', '>', ';', '/']).next()?;
        Encoding::for_label(label.as_bytes())
    };
    let found = xml.and_then(|xml| after(xml, "encoding")).or_else(|| after(&head, "charset"));
    found.filter(|encoding| ![UTF_8, UTF_16BE, UTF_16LE].contains(encoding))
}

/// The encoding that nothing names.
fn guessed(bytes: &[u8]) -> &'static Encoding {
    if is_utf8(bytes) {
        return if has_seven_bit_japanese(bytes) { ISO_2022_JP } else { UTF_8 };
    }
    if let Some(encoding) = utf16_without_mark(bytes) {
        return encoding;
    }
    if is_nearly_utf8(bytes) {
        return UTF_8;
    }
    // ASCII does not reveal the encoding, so detection starts shortly before the first other byte.
    let first = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(0).saturating_sub(HEAD);
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(&bytes[first..bytes.len().min(first + SAMPLE)], true);
    detector.guess(None, Utf8Detection::Deny)
}

fn is_utf8(bytes: &[u8]) -> bool {
    has_few_controls(bytes) && std::str::from_utf8(bytes).is_ok()
}

fn has_seven_bit_japanese(bytes: &[u8]) -> bool {
    JAPANESE.iter().any(|start| memchr::memmem::find(bytes, start).is_some())
}

/// Whether most characters other than ASCII are valid UTF-8: a log with one broken letter stays readable.
fn is_nearly_utf8(bytes: &[u8]) -> bool {
    let (mut valid, mut broken) = (0, 0);
    for chunk in bytes[..bytes.len().min(SAMPLE)].utf8_chunks() {
        valid += chunk.valid().chars().filter(|letter| !letter.is_ascii()).count();
        broken += usize::from(!chunk.invalid().is_empty());
    }
    has_few_controls(bytes) && valid >= VALID * broken
}

/// Whether bytes may be a text with a byte or more for each letter, rather than UTF-16 or no text. Logs and pages of
/// manuals have control characters, too: escape sequences, backspaces.
fn has_few_controls(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64 << 10)];
    let odd = head.iter().filter(|byte| matches!(byte, 1..=7 | 11 | 14..=26 | 28..=31 | 127)).count();
    !head.contains(&0) && odd * CONTROLS <= head.len()
}

/// Whether `bytes` are letters in UTF-8, UTF-16, or one of the older encodings.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    matches!(marked(bytes), Some((encoding, _)) if encoding != UTF_8)
        || has_few_controls(bytes)
        || utf16_without_mark(bytes).is_some()
}

/// The encoding of UTF-16 that does not begin with a mark: every unit is a letter, and nearly all are of scripts that are
/// in use.
fn utf16_without_mark(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(HEAD) & !1];
    let fits = |encoding: &&'static Encoding| is_utf16(head, *encoding == UTF_16BE);
    [UTF_16LE, UTF_16BE].into_iter().find(fits)
}

fn is_utf16(head: &[u8], is_big_endian: bool) -> bool {
    let units: Vec<u16> = head
        .chunks_exact(2)
        .map(|pair| {
            if is_big_endian {
                u16::from_be_bytes([pair[0], pair[1]])
            } else {
                u16::from_le_bytes([pair[0], pair[1]])
            }
        })
        .collect();
    // The last unit may be the first half of a letter.
    let whole = units.len() - usize::from(units.last().is_some_and(|unit| (0xD800..0xDC00).contains(unit)));
    let units = &units[..whole];
    let is_letter = |letter: Result<char, _>| letter.is_ok_and(|letter: char| !is_no_letter(letter));
    if units.len() < 8 || !char::decode_utf16(units.iter().copied()).all(is_letter) {
        return false;
    }
    let common = units.iter().filter(|unit| is_common(**unit)).count();
    let mut pages = [0_usize; 256];
    units.iter().for_each(|unit| pages[usize::from(unit >> 8)] += 1);
    // Spaces and line ends have a byte that is zero. Without one, 40 % of the letters have to be of one alphabet: they
    // share a high byte below 0x40, and no older encoding starts a multi-byte character with that.
    let is_one_alphabet = pages[1..0x40].iter().any(|count| count * 5 >= units.len() * 2);
    let has_ascii = pages[0] > 0 && (units.len() >= 16 || pages[0] * 10 >= units.len() * 7);
    common * 20 >= units.len() * 19 && (has_ascii || is_one_alphabet)
}

/// Control characters that no text has, and numbers without a letter.
fn is_no_letter(letter: char) -> bool {
    let is_control =
        letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{8}' | '\u{C}' | '\u{1B}');
    is_control
        || matches!(letter, '\u{E000}'..='\u{F8FF}' | '\u{FDD0}'..='\u{FDEF}' | '\u{FFFE}'..='\u{FFFF}')
}

/// Scripts in use: Latin to Georgian, punctuation, Japanese, Chinese, Korean.
fn is_common(unit: u16) -> bool {
    matches!(unit, 0x00..=0x7E | 0xA0..=0x11FF | 0x1E00..=0x22FF | 0x3000..=0x30FF | 0x4E00..=0x9FFF
        | 0xAC00..=0xDFFF | 0xFF00..=0xFFEF)
}

#[cfg(test)]
mod tests {
    use encoding_rs::{
        BIG5, EUC_JP, EUC_KR, GB18030, SHIFT_JIS, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1253,
    };

    use super::*;

    const RUSSIAN: &str = "Стрелка осмотрена весной, замечаний нет. Следующий осмотр осенью.";
    const JAPANESE_TEXT: &str = "転てつ器は春に点検され、異常はありませんでした。次回の点検は秋です。";
    const CHINESE: &str = "道岔于春季进行了检查，状态良好。下一次检查定于秋季进行。";
    const KOREAN: &str = "선로전환기는 봄에 점검되었으며 이상이 없었습니다. 다음 점검은 가을입니다.";
    const GERMAN: &str = "Die Prüfung der Weiche ergab keine Mängel. Nächste Prüfung: Frühjahr.";

    #[test]
    fn encodings_are_detected_from_letters() {
        for (text, encoding) in [
            (RUSSIAN, WINDOWS_1251),
            (JAPANESE_TEXT, SHIFT_JIS),
            (JAPANESE_TEXT, EUC_JP),
            (JAPANESE_TEXT, ISO_2022_JP),
            (CHINESE, GB18030),
            ("轉轍器於春季進行了檢查，狀態良好。下一次檢查定於秋季進行。", BIG5),
            (KOREAN, EUC_KR),
            (GERMAN, WINDOWS_1252),
            ("Grüße", WINDOWS_1252),
            ("Le contrôle a été effectué à l’été “sans défaut”", WINDOWS_1252),
            (
                "Výhybka byla na jaře zkontrolována, závady nebyly zjištěny. Příští prohlídka na podzim.",
                WINDOWS_1250,
            ),
            ("Η αλλαγή τροχιάς επιθεωρήθηκε την άνοιξη και είναι εντάξει.", WINDOWS_1253),
        ] {
            let (bytes, _, has_failed) = encoding.encode(text);
            assert!(!has_failed);
            assert!(is_text(&bytes), "{}", encoding.name());
            assert_eq!(decode(&bytes), text, "{}", encoding.name());
            let page =
                [b"<!doctype html><html><head><title>x</title></head><body><p>".as_slice(), &bytes].concat();
            assert!(decode(&page).ends_with(text), "{} in a page", encoding.name());
        }
    }

    #[test]
    fn utf_16_needs_no_mark() {
        for text in
            [RUSSIAN, JAPANESE_TEXT, KOREAN, GERMAN, "the points are in order", &format!("{CHINESE}\r\n")]
        {
            for is_big_endian in [false, true] {
                let bytes: Vec<u8> = text
                    .encode_utf16()
                    .flat_map(|unit| if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() })
                    .collect();
                assert!(is_text(&bytes), "{text}");
                assert_eq!(decode(&bytes), text);
            }
        }
    }

    #[test]
    fn declarations_and_marks_come_first() {
        let latin = "<?xml version='1.0' encoding='ISO-8859-2'?><p>\u{e8}\u{b9}</p>";
        let bytes: Vec<u8> = latin.chars().map(|letter| letter as u8).collect();
        assert!(decode_declared(&bytes).ends_with("<p>čš</p>"));
        let bytes = [b"<meta charset=windows-1251><p>".as_slice(), b"\xE4\xE0"].concat();
        assert!(decode_declared(&bytes).ends_with("<p>да"));
        assert_eq!(decode(b"\xEF\xBB\xBFok"), "ok");
        assert_eq!(decode(b"\xFF\xFEo\0k\0"), "ok");
        // A declaration that cannot be true.
        let (page, ..) =
            WINDOWS_1251.encode("<meta charset=utf-8><p>Стрелка осмотрена весной, замечаний нет.");
        assert!(decode_declared(&page).ends_with("замечаний нет."));
    }

    #[test]
    fn damaged_utf_8_stays_utf_8() {
        let bytes = [RUSSIAN.as_bytes(), b"\xD0\x20", RUSSIAN.as_bytes()].concat();
        assert_eq!(decode(&bytes), format!("{RUSSIAN}\u{FFFD} {RUSSIAN}"));
    }

    #[test]
    fn bytes_of_programs_are_no_text() {
        assert!(!is_text(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0"));
        let noise: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(!is_text(&noise));
    }
}
