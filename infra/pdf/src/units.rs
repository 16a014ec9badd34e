//! PDFium's letters come in units of UTF-16 or UTF-32.

/// PDFium's character for the hyphen at the end of a line, which may be joined with the next line.
pub(crate) const LINE_HYPHEN: u32 = 0x02;
const SOFT_HYPHEN: u32 = 0xAD;

/// The letter that `unit` of UTF-16 or UTF-32 completes; none for spaces and what cannot be seen. `high` is the first half of a letter,
/// until the second one is read.
pub(crate) fn letter(unit: u32, high: &mut Option<u32>) -> Option<char> {
    let first = high.take();
    match unit {
        LINE_HYPHEN => Some('-'),
        SOFT_HYPHEN => Some('\u{AD}'),
        _ if is_first_half(unit) => {
            *high = Some(unit);
            None
        }
        0xDC00..=0xDFFF => {
            let high = first?;
            char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
        }
        0xFFFE | 0xFFFF => None,
        _ => char::from_u32(unit).filter(|letter| !letter.is_whitespace() && !letter.is_control()),
    }
}

/// Whether `unit` is the first half of a letter.
pub(crate) fn is_first_half(unit: u32) -> bool {
    (0xD800..=0xDBFF).contains(&unit)
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts};

    #[test]
    fn codes_without_a_letter_are_no_hyphens() {
        assert_eq!(texts(pdf(r"BT /F 10 Tf 50 700 Td (ease\002of) Tj ET", "", "", &[])), ["ease", "of"]);
    }

    #[test]
    fn letters_of_two_units_part_no_words() {
        let letters = "begincmap 1 begincodespacerange<00><FF>endcodespacerange 2 beginbfchar<61><D835DC49><62><D835DC51>endbfchar \
            endcmap";
        let letters = format!("<</Length {}>>stream\n{letters}\nendstream", letters.len());
        let file = pdf("BT /F 10 Tf 50 700 Td (ab, b) Tj ET", "", "", &[&letters]);
        let encoding = "/Encoding/WinAnsiEncoding";
        let file = String::from_utf8(file).unwrap().replace(encoding, &format!("{encoding}/ToUnicode 6 0 R"));
        assert_eq!(texts(file.into_bytes()), ["𝑉𝑑,", "𝑑"]);
    }
}
