//! Words that are set close together: gaps that are wider than those between letters.

use crate::Style;

/// Words without a space between them are apart by so much more than their letters, and at least by so much, in sizes
/// of the font. PDFium finds gaps from about 0.13 on.
const GAP: f32 = 0.1;
pub(crate) const LEAST: f32 = 0.05;
/// The same where the file has spaces between words: letters may be apart unevenly then.
const GAP_BESIDE_SPACES: f32 = 0.2;
/// By how much gaps between letters of one word may differ, in sizes of the font.
const EVEN: f32 = 0.02;

/// The numbers of the gaps that are wider than those between letters.
pub(crate) fn between_words(gaps: &[f32], has_spaces: bool) -> Vec<usize> {
    let least = if has_spaces { GAP_BESIDE_SPACES } else { GAP };
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f32::total_cmp);
    // Of two gaps, the narrow one is between letters.
    let usual = sorted[(sorted.len() - 1) / 2].max(sorted[0]);
    let is_wide = |gap: f32| gap >= LEAST && gap - usual >= least;
    (0..gaps.len()).filter(|index| is_wide(gaps[*index])).collect()
}

/// Whether letters of one word are set apart by `spacing` points.
pub(crate) fn are_spaced(spacing: f32, size: f32) -> bool {
    spacing >= LEAST * size
}

/// Whether a letter behind `gap` points is as near as letters that are apart by `spacing`.
pub(crate) fn is_even(spacing: f32, gap: f32, size: f32) -> bool {
    (-spacing..=spacing + EVEN * size).contains(&gap)
}

/// Whether a space may stand between two letters. Brackets and signs behind slanted letters are set apart without one.
pub(crate) fn may_part(before: char, after: char) -> bool {
    let ends = before.is_alphanumeric() || ".,;:!?)]}»”\"'".contains(before);
    let starts = after.is_alphanumeric() || "([{«„“\"'".contains(after);
    ends && starts && (before.is_alphanumeric() || after.is_alphanumeric())
}

/// Whether a letter at `to` cannot belong to the word of one at `from`, although there is no space between them.
pub(crate) fn is_elsewhere(from: (f64, f64), style: Style, to: (f64, f64), next: Style) -> bool {
    if style.turned || next.turned {
        return style.turned != next.turned;
    }
    let size = f64::from(style.size.max(next.size)).max(1.0);
    let (along, across) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
    // On a turned page along and across are exchanged; there, PDFium's own spaces have to do.
    let (along, across) = if across > along { (across, along) } else { (along, across) };
    across > 0.6 * size || along > 3.0 * size
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts};

    /// The words of a line whose pieces are apart by `gap` thousandths of the size, with `spacing` points between letters.
    fn line(pieces: &[&str], gap: i32, spacing: f32) -> Vec<String> {
        let pieces: Vec<String> = pieces.iter().map(|piece| format!("({piece})")).collect();
        let text = pieces.join(&format!("{}", -gap));
        texts(pdf(&format!("BT /F 10 Tf {spacing} Tc 50 700 Td [{text}] TJ ET"), "", "", &[]))
    }

    #[test]
    fn narrow_gaps_part_words() {
        for gap in [300, 130, 110] {
            assert_eq!(
                line(&["The", "points", "are", "in", "order."], gap, 0.0),
                ["The", "points", "are", "in", "order."]
            );
        }
    }

    #[test]
    fn evenly_spaced_letters_stay_one_word() {
        for spacing in [0.3, 0.8, 1.1] {
            assert_eq!(line(&["Signalbox"], 0, spacing), ["Signalbox"]);
        }
        assert_eq!(line(&["f", "]", ";"], 120, 0.0), ["f];"]);
        // Kerning moves letters, but not that far.
        assert_eq!(line(&["AV", "ATAR", "To"], 40, 0.0), ["AVATARTo"]);
        assert_eq!(line(&["floa", "t"], 90, 0.0), ["float"]);
    }

    #[test]
    fn last_letter_of_a_spaced_word_belongs_to_it() {
        let text = "BT /F 10 Tf 3 Tc 50 700 Td (Singapor) Tj 0 Tc (e) Tj ET";
        assert_eq!(texts(pdf(text, "", "", &[])), ["Singapore"]);
        let text = "BT /F 10 Tf 3 Tc 50 700 Td (two) Tj 0 Tc [-300(words)] TJ ET";
        assert_eq!(texts(pdf(text, "", "", &[])), ["two", "words"]);
    }

    #[test]
    fn letters_that_are_apart_unevenly_stay_one_word_where_the_file_has_spaces() {
        let text = "BT /F 10 Tf 50 700 Td [(the un) -110 (even word)] TJ ET";
        assert_eq!(texts(pdf(text, "", "", &[])), ["the", "uneven", "word"]);
    }
}
