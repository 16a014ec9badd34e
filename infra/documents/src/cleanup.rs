//! The processor `cleanup`: text as people would type it.

/// Cleans `text`: one kind of line end; no control characters and soft hyphens; divided words joined, ranges of numbers not;
/// no spaces at the end of lines; at most one empty line; single spaces between words. Page breaks, tabs and what aligns
/// columns by three spaces or more stay.
pub fn cleanup(text: &mut String) {
    if is_clean(text) {
        return;
    }
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    let visible: String = lines
        .chars()
        .filter(|letter| {
            matches!(letter, '\n' | '\t' | '\u{C}') || !(letter.is_control() || is_invisible(*letter))
        })
        .collect();
    let mut cleaned = String::with_capacity(visible.len());
    let mut empty = 0;
    for line in visible.split('\n') {
        let line = line.trim_end_matches([' ', '\t', '\u{A0}']);
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if !cleaned.is_empty() {
            join(&mut cleaned, line, empty);
        }
        empty = 0;
        push_single_spaced(&mut cleaned, line);
    }
    *text = cleaned.trim_matches(|letter: char| letter.is_whitespace() && letter != '\u{C}').to_owned();
}

/// The common case costs one look.
fn is_clean(text: &str) -> bool {
    let mut before = '\n';
    for letter in text.chars() {
        let is_odd = letter.is_control()
            || is_invisible(letter)
            || letter == '\u{A0}'
            || (before == ' ' && letter == ' ');
        if is_odd {
            return false;
        }
        before = letter;
    }
    text.trim().len() == text.len()
}

/// Soft hyphens and what has no width and no meaning for a reader.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{AD}' | '\u{200B}' | '\u{2060}' | '\u{FEFF}')
}

/// Ends the line before, or joins a word that it divides.
fn join(cleaned: &mut String, line: &str, empty: usize) {
    if empty > 0 {
        cleaned.push_str("\n\n");
        return;
    }
    let mut before = cleaned.chars().rev();
    let divided = matches!(before.next(), Some('-' | '\u{2010}'))
        && before.next().is_some_and(char::is_alphabetic)
        && line.chars().next().is_some_and(char::is_lowercase);
    if divided {
        cleaned.pop();
    } else {
        cleaned.push('\n');
    }
}

/// Appends `line` with two spaces between words made one; more of them align columns and stay.
fn push_single_spaced(cleaned: &mut String, line: &str) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    cleaned.push_str(&line[..indent]);
    let mut spaces = 0;
    for letter in line[indent..].chars() {
        if letter == ' ' || letter == '\u{A0}' {
            spaces += 1;
            continue;
        }
        let kept = if spaces == 2 { 1 } else { spaces };
        cleaned.extend(std::iter::repeat_n(' ', kept));
        spaces = 0;
        cleaned.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cleaned_without_losing_anything() {
        for (given, expected) in [
            ("Hello\rWorld\rFoo", "Hello\nWorld\nFoo"),
            ("a\n\n\n\n\nb", "a\n\nb"),
            ("a\n \n \nb", "a\n\nb"),
            ("page1\u{C}page2", "page1\u{C}page2"),
            ("2020-\n2021", "2020-\n2021"),
            ("docu-\nment", "document"),
            ("docu\u{2010}\nment", "document"),
            ("E\u{2010}\nMail, up\u{2010}to\u{2010}date", "E\u{2010}\nMail, up\u{2010}to\u{2010}date"),
            ("a-\n  b", "a-\n  b"),
            ("x-\ny-\nz", "xyz"),
            ("soft\u{AD}hyphen", "softhyphen"),
            ("one  two   three", "one two   three"),
            ("\tkeep\ttabs\t", "keep\ttabs"),
            ("bell\u{7} nul\u{0}", "bell nul"),
            ("E-\nMail", "E-\nMail"),
            ("  text  ", "text"),
        ] {
            let mut text = given.to_owned();
            cleanup(&mut text);
            assert_eq!(text, expected, "{given:?}");
            let once = text.clone();
            cleanup(&mut text);
            assert_eq!(text, once, "{given:?} twice");
        }
    }
}
