//! Lines become running text: words that were divided at the end of a line are joined again.

use std::collections::HashSet;

use signalbox_pdf::Word;

/// The words of a document that stand within a line, in lower case, so that none of them is divided.
#[derive(Debug, Default)]
pub(crate) struct Words(HashSet<String>);

impl Words {
    /// Learns the words that have another one on either side: the first and the last of a line may be divided.
    pub(crate) fn learn(&mut self, words: &[Word]) {
        for three in words.windows(3) {
            let [before, word, after] = three else { continue };
            let is_level = before.baseline == word.baseline && word.baseline == after.baseline;
            if is_level && word.text.len() > 3 {
                let letters = word.text.trim_matches(|letter: char| !letter.is_alphanumeric());
                if !self.0.contains(letters) {
                    self.0.insert(letters.to_lowercase());
                }
            }
        }
    }

    fn knows(&self, word: &str) -> bool {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        self.0.contains(&word.to_lowercase())
    }

    /// Appends the line `next` to `text`, as running text.
    pub(crate) fn append(&self, text: &mut String, next: &str) {
        if text.is_empty() {
            text.push_str(next);
            return;
        }
        match self.seam(text, next) {
            Seam::Space => text.push(' '),
            Seam::Nothing => {}
            Seam::Divided => {
                text.pop();
            }
        }
        text.push_str(next);
    }

    fn seam(&self, text: &str, next: &str) -> Seam {
        if text.ends_with('\u{AD}') && text.chars().nth_back(1).is_some_and(char::is_alphabetic) {
            return Seam::Divided;
        }
        let Some(head) = text.strip_suffix(['-', '\u{2010}']) else { return Seam::Space };
        let before = head.rsplit(char::is_whitespace).next().unwrap_or_default();
        let after = next.split(char::is_whitespace).next().unwrap_or_default();
        let (Some(last), Some(first)) = (before.chars().next_back(), after.chars().next()) else {
            return Seam::Space;
        };
        if !last.is_alphanumeric() {
            return Seam::Space;
        }
        let plain = after.trim_end_matches(|letter: char| !letter.is_alphanumeric());
        // "Vor- und Nachteile", "pre- and post-war"
        if ["und", "oder", "bzw", "sowie", "and", "or", "to", "bis"].contains(&plain) {
            return Seam::Space;
        }
        if !last.is_alphabetic() || !first.is_lowercase() || is_path(before) || is_path(plain) {
            return Seam::Nothing;
        }
        let divided = self.knows(&format!("{before}{plain}"));
        let hyphenated =
            ['-', '\u{2010}'].iter().any(|hyphen| self.knows(&format!("{before}{hyphen}{plain}")));
        if hyphenated && !divided { Seam::Nothing } else { Seam::Divided }
    }
}

/// Whether a word is a path, an address or a name of a program, which is divided at its own hyphens only.
fn is_path(word: &str) -> bool {
    word.starts_with('/') || word.matches('/').count() > 1 || word.contains(['_', '@'])
}

/// How two lines meet.
enum Seam {
    Space,
    /// The hyphen stays.
    Nothing,
    /// The hyphen only divides.
    Divided,
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    #[test]
    fn divided_words_are_joined_and_others_are_not() {
        let mut words = Words::default();
        let word = |text: &str| Word {
            text: text.to_owned(),
            area: Area::default(),
            baseline: 0.0,
            style: Style::default(),
            confidence: None,
        };
        words.learn(&"the well-known one is here".split(' ').map(word).collect::<Vec<_>>());
        for (first, second, expected) in [
            ("docu-", "ment ends", "document ends"),
            ("Vor-", "und Nachteile", "Vor- und Nachteile"),
            ("2020-", "2021", "2020-2021"),
            ("E-Mail-", "Adresse", "E-Mail-Adresse"),
            ("a well-", "known fact", "a well-known fact"),
            ("eins", "zwei", "eins zwei"),
            ("Über\u{AD}", "gang", "Übergang"),
            ("dash -", "here", "dash - here"),
            ("Prü-", "fung, die", "Prüfung, die"),
            ("Prü\u{2010}", "fung", "Prüfung"),
            ("in /usr/lib/i386-linux-", "gnu/one/", "in /usr/lib/i386-linux-gnu/one/"),
            ("und/oder-", "artig", "und/oderartig"),
            ("E\u{2010}Mail\u{2010}", "Adresse", "E\u{2010}Mail\u{2010}Adresse"),
        ] {
            let mut text = first.to_owned();
            words.append(&mut text, second);
            assert_eq!(text, expected);
        }
    }
}
