//! Words of texts and of queries, in the same form.
//!
//! PostgreSQL's parser takes `<b>` for markup and `http://…` for one word, and compares forms of a letter byte by byte. So it is given
//! letters and digits alone, folded; words of a query without a space between them are a phrase.

use std::collections::BTreeSet;

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

use super::snippet::{START, STOP};

/// A query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// For `websearch_to_tsquery`.
    query: String,
    /// The words that must be there, folded.
    words: BTreeSet<String>,
}

impl Search {
    /// Reads a query as search engines do: words, `"phrases"`, `or` and `-without`.
    pub fn parse(text: &str) -> Self {
        let mut search = Self::default();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_without = first == '-';
            let term = rest.trim_start_matches('-');
            let after = match term.strip_prefix('"') {
                Some(phrase) => {
                    let (phrase, after) = phrase.split_once('"').unwrap_or((phrase, ""));
                    search.add(phrase, is_without);
                    after
                }
                None => {
                    let end = term.find(|letter: char| letter.is_whitespace() || letter == '"');
                    let (word, after) = term.split_at(end.unwrap_or(term.len()));
                    match word.eq_ignore_ascii_case("or") && !is_without {
                        true => search.push_operator(),
                        false => search.add(word, is_without),
                    }
                    after
                }
            };
            rest = after.trim_start();
        }
        search
    }

    fn add(&mut self, term: &str, is_without: bool) {
        let folded = fold(term);
        let words: Vec<_> = folded.split_whitespace().collect();
        if words.is_empty() {
            return;
        }
        if !self.query.is_empty() {
            self.query.push(' ');
        }
        if is_without {
            self.query.push('-');
        } else {
            self.words.extend(words.iter().map(|word| (*word).to_owned()));
        }
        self.query.extend(["\"", &words.join(" "), "\""]);
    }

    /// Parts two alternatives; without a term before it, it is nothing.
    fn push_operator(&mut self) {
        if !self.query.is_empty() {
            self.query.push_str(" or");
        }
    }

    /// For `websearch_to_tsquery`.
    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// `text` with marks around each word that is searched for.
    pub(super) fn mark(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut word = String::new();
        for letter in text.chars().map(Some).chain([None]) {
            match letter {
                Some(letter) if is_in_word(letter) || is_nothing(letter) => word.push(letter),
                other => {
                    self.push(&mut marked, &word);
                    word.clear();
                    marked.extend(other);
                }
            }
        }
        marked
    }

    fn push(&self, marked: &mut String, word: &str) {
        if self.words.contains(fold(word).trim()) {
            marked.push(START);
            marked.push_str(word);
            marked.push(STOP);
        } else {
            marked.push_str(word);
        }
    }
}

/// Letters and digits of `text` in one form, whatever their case, their composition or their ligatures; words are parted by spaces.
/// A change of this raises `FORM` of `documents`.
pub(super) fn fold(text: &str) -> String {
    let lower = text.nfkc().flat_map(char::to_lowercase).nfkc();
    let mut folded = String::with_capacity(text.len());
    for letter in lower {
        match letter {
            'ß' => folded.push_str("ss"),
            'ς' => folded.push('σ'),
            letter if is_in_word(letter) => folded.push(letter),
            letter if is_nothing(letter) => {}
            _ => folded.push(' '),
        }
    }
    folded
}

fn is_in_word(letter: char) -> bool {
    letter.is_alphanumeric()
}

/// Marks on letters that make no other word, and invisible characters.
fn is_nothing(letter: char) -> bool {
    is_combining_mark(letter)
        || matches!(letter, '\u{AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_all_forms_are_the_same() {
        for (one, other) in [
            ("Überprüfung", "U\u{308}berpru\u{308}fung"),
            ("SCHLIESSKRAFT", "Schließkraft"),
            ("\u{FB01}nal", "final"),
            ("İSTANBUL", "i\u{307}stanbul"),
            ("ΟΔΟΣ", "οδος"),
            ("zu\u{AD}sammen", "zusammen"),
        ] {
            assert_eq!(fold(one), fold(other));
        }
        assert_eq!(fold("a<b>c, 4.5 kN"), "a b c  4 5 kn");
    }

    #[test]
    fn queries_have_words_phrases_alternatives_and_exclusions() {
        for (text, query) in [
            ("Stellkraft Herbst -Frost", r#""stellkraft" "herbst" -"frost""#),
            (r#""Keine Mängel" or x"#, r#""keine mängel" or "x""#),
            ("http://a.b/c", r#""http a b c""#),
            ("v1.2.3-rc1", r#""v1 2 3 rc1""#),
            (r#"-"two words" three"#, r#"-"two words" "three""#),
            (r#"bague "or" massif"#, r#""bague" "or" "massif""#),
            ("OR gold or -or", r#""gold" or -"or""#),
            (r#"one"two"#, r#""one" "two""#),
            ("\" <-> & | ! :* - -- 😀", ""),
            ("", ""),
        ] {
            assert_eq!(Search::parse(text).query(), query, "{text}");
        }
    }

    #[test]
    fn found_words_are_marked_as_they_are_written() {
        let mark =
            |query: &str, text: &str| Search::parse(query).mark(text).replace(START, "[").replace(STOP, "]");
        assert_eq!(mark("SCHLIESSKRAFT -x", "Die Schließkraft, x."), "Die [Schließkraft], x.");
        assert_eq!(mark("a.b/c", "see http://a.b/c"), "see http://[a].[b]/[c]");
        assert_eq!(mark("final", "\u{FB01}nal cut"), "[\u{FB01}nal] cut");
        assert_eq!(mark("\u{FC}ber", "u\u{308}ber alles"), "[u\u{308}ber] alles");
        assert_eq!(mark("", "text"), "text");
    }
}
