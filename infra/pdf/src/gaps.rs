//! Words that are set close together: gaps that are wider than those between letters.

use crate::Style;

/// Words without a space between them are apart by so much more than their letters, and at least by so much, in sizes
/// of the font. PDFium finds gaps from about 0.13 on.
const GAP: f32 = 0.08;
pub(crate) const LEAST: f32 = 0.05;

/// The numbers of the gaps that are wider than those between letters.
pub(crate) fn between_words(gaps: &[f32]) -> Vec<usize> {
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f32::total_cmp);
    // Of two gaps, the narrow one is between letters.
    let usual = sorted[(sorted.len() - 1) / 2].max(sorted[0]);
    let is_wide = |gap: f32| gap >= LEAST && gap - usual >= GAP;
    (0..gaps.len()).filter(|index| is_wide(gaps[*index])).collect()
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
