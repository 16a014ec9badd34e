//! Markers of list items.

use super::line::Line;

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

/// The marker at the start of `line`, if text follows it.
pub(crate) fn marker_of(line: &Line) -> Option<Marker> {
    let first = line.words.first()?;
    if line.words.len() < 2 {
        return None;
    }
    marker(&first.text)
}

/// Parts the marker with this number from a word that it is stuck to: "10.Text".
pub(crate) fn part_marker(line: &mut Line, number: u64) {
    let Some(first) = line.words.first() else { return };
    let marker = format!("{number}.");
    let Some(rest) = first.text.strip_prefix(&marker).filter(|rest| rest.starts_with(char::is_alphabetic))
    else {
        return;
    };
    let (mut alone, mut word) = (first.clone(), first.clone());
    let share = marker.len() as f32 / first.text.len() as f32;
    let edge = first.area.left + share * first.area.width();
    (alone.area.right, word.area.left) = (edge, edge);
    word.text = rest.to_owned();
    alone.text = marker;
    line.words.splice(..1, [alone, word]);
}

/// Whether `before` stands alone as a marker of what `line` says: of an item, or the number of a heading.
pub(crate) fn is_marker(before: &Line, line: &Line) -> bool {
    let [word] = before.words.as_slice() else { return false };
    if marker(&word.text).is_some() {
        return true;
    }
    let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && word.text.starts_with(|first: char| first.is_ascii_digit());
    is_number && before.bold && line.bold
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
