//! Raised and lowered digits and signs: "10⁶" is not "106".

const DIGITS: &str = "0123456789+-−=()";
const RAISED: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾";
const LOWERED: &str = "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎";

/// `text` raised; none unless all of it are digits and signs, of which at least one is a digit.
pub fn raised(text: &str) -> Option<String> {
    mapped(text, RAISED)
}

/// `text` lowered; none unless all of it are digits and signs, of which at least one is a digit.
pub fn lowered(text: &str) -> Option<String> {
    mapped(text, LOWERED)
}

fn mapped(text: &str, to: &str) -> Option<String> {
    if !text.contains(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let of = |letter| DIGITS.chars().zip(to.chars()).find(|(from, _)| *from == letter).map(|(_, to)| to);
    text.chars().map(of).collect()
}

/// Letters of a word that are set alike.
pub(crate) struct Run {
    /// In bytes of the word.
    pub(crate) start: usize,
    pub(crate) baseline: f32,
    pub(crate) size: f32,
}

impl Run {
    pub(crate) fn is_set_like(&self, other: &Self) -> bool {
        let off = (self.size - other.size).abs().max((self.baseline - other.baseline).abs());
        off < 0.05 * self.size
    }
}

/// Letters that are smaller than this share of the word's, and stand higher or lower by these, are raised or lowered.
const SCRIPT: f32 = 0.85;
const HIGHER: f32 = 0.15;
const LOWER: f32 = 0.05;

/// Raises and lowers the digits of a word that are.
pub(crate) fn set(text: &mut String, runs: &[Run]) {
    let Some(base) = runs.iter().max_by(|one, other| one.size.total_cmp(&other.size)) else { return };
    for (index, run) in runs.iter().enumerate().rev().filter(|(_, run)| run.size <= SCRIPT * base.size) {
        let end = runs.get(index + 1).map_or(text.len(), |next| next.start);
        let Some(letters) = text.get(run.start..end) else { continue };
        let higher = (base.baseline - run.baseline) / base.size;
        let shown = match higher {
            _ if higher >= HIGHER => raised(letters),
            _ if higher <= -LOWER => lowered(letters),
            _ => None,
        };
        if let Some(shown) = shown {
            // From the end on, so that the runs before stay where they are; those behind move.
            text.replace_range(run.start..end, &shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_and_signs_are_raised_and_lowered() {
        assert_eq!(raised("−12").as_deref(), Some("⁻¹²"));
        assert_eq!(lowered("2").as_deref(), Some("₂"));
        assert_eq!((raised("st"), raised("-"), lowered("")), (None, None, None));
    }
}
