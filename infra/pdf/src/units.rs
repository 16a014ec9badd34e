//! PDFium's letters come in units of UTF-16 or UTF-32.

/// PDFium's character for the hyphen at the end of a line, which may be joined with the next line.
pub(crate) const LINE_HYPHEN: u32 = 0x02;
const SOFT_HYPHEN: u32 = 0xAD;

/// The letter that `unit` of UTF-16 or UTF-32 completes; none for spaces and what cannot be seen.
pub(crate) fn letter(unit: u32, high: &mut Option<u32>) -> Option<char> {
    match unit {
        LINE_HYPHEN => Some('-'),
        SOFT_HYPHEN => Some('\u{AD}'),
        0xD800..=0xDBFF => {
            *high = Some(unit);
            None
        }
        0xDC00..=0xDFFF => {
            let high = high.take()?;
            char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
        }
        0xFFFE | 0xFFFF => None,
        _ => char::from_u32(unit).filter(|letter| !letter.is_whitespace() && !letter.is_control()),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts};

    #[test]
    fn codes_without_a_letter_are_no_hyphens() {
        assert_eq!(texts(pdf(r"BT /F 10 Tf 50 700 Td (ease\002of) Tj ET", "", "", &[])), ["ease", "of"]);
    }
}
