//! The part of a text that a search shows, and the words in it that were found.

/// Marks the beginning of a found word. Private characters, which texts lose before they are indexed.
pub const START: char = '\u{E000}';
/// Marks its end.
pub const STOP: char = '\u{E001}';

/// Characters of a snippet, about.
const LENGTH: usize = 240;
/// Characters of it before the first found word, at most.
const BEFORE: usize = 60;
const ELLIPSIS: &str = "…";

/// A part of a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetPart {
    pub text: String,
    /// Whether it was found.
    pub is_match: bool,
}

/// How many words of `marked` are marked.
pub(super) fn matches(marked: &str) -> usize {
    marked.chars().filter(|letter| *letter == START).count()
}

/// The text around the first marked words of `marked`, in one line.
pub(super) fn cut(marked: &str) -> Vec<SnippetPart> {
    let line = marked.split_whitespace().collect::<Vec<_>>().join(" ");
    let letters: Vec<char> = line.chars().collect();
    let first = letters.iter().position(|letter| *letter == START).unwrap_or_default();
    let start = first.saturating_sub(BEFORE);
    // From the beginning of a word.
    let start = match start {
        0 => 0,
        _ => {
            letters[start..first].iter().position(|letter| *letter == ' ').map_or(first, |at| start + at + 1)
        }
    };
    let mut parts: Vec<SnippetPart> = Vec::new();
    let mut is_match = false;
    let mut shown = 0;
    if start > 0 {
        push(&mut parts, ELLIPSIS, false);
    }
    for letter in &letters[start..] {
        match *letter {
            START => is_match = true,
            STOP => is_match = false,
            ' ' if shown >= LENGTH => break,
            // A word without an end, as scripts without spaces have them.
            _ if shown >= 2 * LENGTH => break,
            letter => {
                push(&mut parts, letter.encode_utf8(&mut [0; 4]), is_match);
                shown += 1;
            }
        }
    }
    let all = letters[start..].iter().filter(|letter| !matches!(**letter, START | STOP)).count();
    if shown < all {
        push(&mut parts, ELLIPSIS, false);
    }
    parts
}

fn push(parts: &mut Vec<SnippetPart>, text: &str, is_match: bool) {
    match parts.last_mut() {
        Some(last) if last.is_match == is_match => last.text.push_str(text),
        _ => parts.push(SnippetPart { text: text.to_owned(), is_match }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(marked: &str) -> String {
        let mark = |part: SnippetPart| if part.is_match { format!("[{}]", part.text) } else { part.text };
        cut(marked).into_iter().map(mark).collect()
    }

    #[test]
    fn a_short_text_is_shown_whole() {
        assert_eq!(shown("The \u{E000}valve\u{E001}\n is  closed."), "The [valve] is closed.");
        assert_eq!(shown("nothing"), "nothing");
        assert_eq!(shown(""), "");
        assert_eq!(matches("\u{E000}a\u{E001} \u{E000}b\u{E001}"), 2);
    }

    #[test]
    fn a_long_text_is_cut_at_words_around_the_first_match() {
        let text = format!("{}\u{E000}Ventil\u{E001} {}", "vorher ".repeat(50), "nachher ".repeat(90));
        let cut = shown(&text);
        assert!(cut.starts_with("…vorher "), "{cut}");
        assert!(cut.contains(" [Ventil] nachher") && cut.ends_with("nachher…"), "{cut}");
        assert!((LENGTH..LENGTH + 20).contains(&cut.chars().count()), "{cut}");
    }

    #[test]
    fn a_text_without_spaces_is_cut_too() {
        let text = format!("{}\u{E000}弁\u{E001}{}", "前".repeat(500), "後".repeat(5000));
        let cut = shown(&text);
        assert!(cut.starts_with("…[弁]後") && cut.chars().count() < 500, "{cut}");
    }
}
