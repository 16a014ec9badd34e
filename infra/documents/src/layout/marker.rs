//! Words that mark the items of lists.

/// The last four are bullets of symbol fonts.
const BULLETS: &[char] = &[
    '•', '◦', '▪', '▫', '■', '□', '●', '○', '‣', '⁃', '∙', '·', '►', '▶', '➢', '➤', '✓', '✔', '–', '—', '-',
    '*', '\u{F0A7}', '\u{F0B7}', '\u{F0D8}', '\u{F0FC}',
];

/// A marker at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Bullet,
    /// 1. or 1) or (1), and letters likewise: a is 1.
    Number(u64),
}

/// The marker that `word` is.
pub(crate) fn marker(word: &str) -> Option<Marker> {
    let mut letters = word.chars();
    if let (Some(first), None) = (letters.next(), letters.next()) {
        return BULLETS.contains(&first).then_some(Marker::Bullet);
    }
    let inner = word.strip_suffix(')').or_else(|| word.strip_suffix('.'))?;
    let inner = if word.ends_with(')') { inner.strip_prefix('(').unwrap_or(inner) } else { inner };
    let is_letter = inner.len() == 1 && inner.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_letter {
        return inner.bytes().next().map(|byte| Marker::Number(u64::from(byte - b'a') + 1));
    }
    let is_number = (1..=3).contains(&inner.len()) && inner.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { inner.parse().ok().map(Marker::Number) } else { None }
}

/// Whether `word` is a dash, which marks an item in some places and stands for nothing in others.
pub(crate) fn is_dash(word: &str) -> bool {
    matches!(word, "–" | "—" | "-" | "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_distinguished_from_words() {
        for (word, expected) in [
            ("•", Some(Marker::Bullet)),
            ("–", Some(Marker::Bullet)),
            ("1.", Some(Marker::Number(1))),
            ("12)", Some(Marker::Number(12))),
            ("(3)", Some(Marker::Number(3))),
            ("b)", Some(Marker::Number(2))),
            ("2026.", None),
            ("A", None),
            ("1", None),
            ("z.B.", None),
            ("1.2", None),
        ] {
            assert_eq!(marker(word), expected, "{word}");
        }
    }
}
