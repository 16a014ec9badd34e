//! Letters from right to left: words are put together by where their letters stand, since PDFium's order of them is not
//! reliable, and files may hold either what is meant or what is seen.

use crate::Area;

/// Letters whose baselines are no further apart are of one line; a gap between words is at least this wide where the
/// file has no spaces, and where it has; one between columns this. All in sizes of the font.
const BASELINE: f32 = 0.3;
const GAP: f32 = 0.13;
const GAP_BESIDE_SPACES: f32 = 0.3;
const COLUMN: f32 = 1.5;
/// How far apart a sign of a number and a space without a width are, in sizes of the font, that stand at one place.
const ONE_PLACE: f32 = 0.02;

/// A letter and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) letter: char,
    pub(crate) area: Area,
    pub(crate) baseline: f32,
    pub(crate) size: f32,
    /// Its number on the page.
    pub(crate) index: i32,
    /// Whether it is a space.
    pub(crate) is_space: bool,
}

/// Whether a letter is written from right to left: Hebrew, Arabic, and those between them, with their older forms.
pub fn is_rtl(letter: char) -> bool {
    matches!(letter, '\u{590}'..='\u{8FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}')
        && !is_digit(letter)
}

/// Whether a letter is the shape of one or more letters in a word.
pub(crate) fn is_shape(letter: char) -> bool {
    matches!(letter, '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}')
}

/// Points and vowels, which stand above or below a letter.
fn is_mark(letter: char) -> bool {
    matches!(letter, '\u{591}'..='\u{5BD}' | '\u{5BF}' | '\u{5C1}' | '\u{5C2}' | '\u{5C4}' | '\u{5C5}' | '\u{5C7}'
        | '\u{610}'..='\u{61A}' | '\u{64B}'..='\u{65F}' | '\u{670}' | '\u{6D6}'..='\u{6ED}' | '\u{300}'..='\u{36F}')
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit() || matches!(letter, '\u{660}'..='\u{669}' | '\u{6F0}'..='\u{6F9}')
}

/// The words of `letters`, each in the order in which it is read, line by line from the left.
pub(crate) fn words(mut letters: Vec<Letter>) -> Vec<Vec<Letter>> {
    letters.sort_by(|one, other| one.baseline.total_cmp(&other.baseline));
    let mut words = Vec::new();
    let mut line: Vec<Letter> = Vec::new();
    for letter in letters {
        let starts = line.last().is_some_and(|last| {
            letter.baseline - last.baseline > BASELINE * letter.size.max(last.size).max(1.0)
        });
        if starts {
            line_words(std::mem::take(&mut line), &mut words);
        }
        line.push(letter);
    }
    line_words(line, &mut words);
    words
}

fn line_words(letters: Vec<Letter>, words: &mut Vec<Vec<Letter>>) {
    let (marks, mut bases): (Vec<Letter>, Vec<Letter>) =
        letters.into_iter().partition(|letter| is_mark(letter.letter));
    bases.sort_by(|one, other| one.area.left.total_cmp(&other.area.left).then(one.index.cmp(&other.index)));
    for at in 1..bases.len() {
        // Behind a number it stands at its start.
        let (letter, space) = (&bases[at - 1], &bases[at]);
        let is_of_number = is_digit(letter.letter) || "+-−".contains(letter.letter);
        let is_behind = space.is_space && space.area.width() <= 0.0 && is_of_number;
        if is_behind && space.area.left - letter.area.left < ONE_PLACE * letter.size {
            bases.swap(at - 1, at);
        }
    }
    let mut segment: Vec<Letter> = Vec::new();
    for base in bases {
        let is_far = segment.last().is_some_and(|last| base.area.left - last.area.right > COLUMN * base.size);
        if is_far {
            segment_words(std::mem::take(&mut segment), &marks, words);
        }
        segment.push(base);
    }
    segment_words(segment, &marks, words);
}

/// The words of a piece of a line without a wide gap.
fn segment_words(letters: Vec<Letter>, marks: &[Letter], words: &mut Vec<Vec<Letter>>) {
    let count = |is: &dyn Fn(char) -> bool| letters.iter().filter(|letter| is(letter.letter)).count();
    let rtl = count(&is_rtl);
    let is_line_rtl = rtl > 0 && rtl >= count(&|letter| letter.is_alphabetic() && !is_rtl(letter));
    let has_spaces = letters.iter().any(|letter| letter.is_space);
    let gap = if has_spaces { GAP_BESIDE_SPACES } else { GAP };
    let begun = words.len();
    let mut word: Vec<Letter> = Vec::new();
    for letter in letters {
        let is_apart =
            word.last().is_some_and(|last: &Letter| letter.area.left - last.area.right > gap * letter.size);
        if (is_apart || letter.is_space) && !word.is_empty() {
            words.push(read_order(std::mem::take(&mut word), is_line_rtl));
        }
        if !letter.is_space {
            word.push(letter);
        }
    }
    if !word.is_empty() {
        words.push(read_order(word, is_line_rtl));
    }
    for mark in marks {
        attach(mark, &mut words[begun..]);
    }
    if is_line_rtl {
        mirror_brackets(&mut words[begun..]);
    }
}

/// Puts a point or vowel behind the letter that it belongs to.
fn attach(mark: &Letter, words: &mut [Vec<Letter>]) {
    let middle = (mark.area.left + mark.area.right) / 2.0;
    let holds = |letter: &Letter| letter.area.left <= middle && middle <= letter.area.right;
    for word in words {
        if let Some(base) = word.iter().position(|letter| !is_mark(letter.letter) && holds(letter)) {
            let behind = word[base + 1..].iter().take_while(|next| is_mark(next.letter)).count();
            word.insert(base + 1 + behind, mark.clone());
            return;
        }
    }
}

/// The letters of a word as they are read, given from left to right.
fn read_order(mut word: Vec<Letter>, is_line_rtl: bool) -> Vec<Letter> {
    if word.iter().any(|letter| is_rtl(letter.letter)) {
        word.reverse();
        turn_back_numbers(&mut word);
        split_ligatures(&mut word);
    } else if is_line_rtl {
        // Punctuation after such a word is at its left.
        let follows = word.iter().take_while(|letter| ".,;:!?،؛؟".contains(letter.letter)).count();
        if follows < word.len() {
            word.rotate_left(follows);
        }
    }
    word
}

/// Numbers and words of other scripts stand from left to right.
fn turn_back_numbers(word: &mut [Letter]) {
    let is_ltr = |letter: char| is_digit(letter) || (letter.is_alphabetic() && !is_rtl(letter));
    let mut at = 0;
    while at < word.len() {
        if !is_ltr(word[at].letter) {
            at += 1;
            continue;
        }
        let mut end = at + 1;
        while end < word.len() {
            let joins = ".,:/-".contains(word[end].letter)
                && word.get(end + 1).is_some_and(|next| is_ltr(next.letter));
            if !is_ltr(word[end].letter) && !joins {
                break;
            }
            end += 1;
        }
        word[at..end].reverse();
        at = end;
    }
}

/// Lam and alef share a shape, and so a place; lam is read first.
fn split_ligatures(word: &mut [Letter]) {
    for at in 1..word.len() {
        let is_alef = matches!(word[at - 1].letter, '\u{622}' | '\u{623}' | '\u{625}' | '\u{627}');
        let share = (word[at - 1].area.left - word[at].area.left).abs() < 0.01 * word[at].size;
        if is_alef && word[at].letter == '\u{644}' && share {
            word.swap(at - 1, at);
        }
    }
}

/// Makes the first bracket of a pair the one that opens. Files and PDFium both may have exchanged them, or not.
fn mirror_brackets(words: &mut [Vec<Letter>]) {
    for (opens, closes) in [('(', ')'), ('[', ']'), ('{', '}')] {
        let mut is_open = false;
        for letter in words.iter_mut().rev().flatten() {
            if letter.letter == opens || letter.letter == closes {
                letter.letter = if is_open { closes } else { opens };
                is_open = !is_open;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters from left to right, six points wide; a space is a space.
    fn line(text: &str) -> Vec<Letter> {
        let letter = |(index, letter): (usize, char)| Letter {
            letter,
            area: Area { left: 6.0 * index as f32, top: 0.0, right: 6.0 * index as f32 + 6.0, bottom: 10.0 },
            baseline: 8.0,
            size: 10.0,
            index: index as i32,
            is_space: letter == ' ',
        };
        text.chars().enumerate().map(letter).collect()
    }

    fn read(text: &str) -> Vec<String> {
        let words = words(line(text));
        words.iter().map(|word| word.iter().map(|letter| letter.letter).collect()).collect()
    }

    #[test]
    fn letters_are_read_from_right_to_left_and_numbers_are_not() {
        assert_eq!(read("םולש"), ["שלום"]);
        assert_eq!(read(".םולש 15.5%"), ["שלום.", "15.5%"]);
        assert_eq!(read("2023-ב"), ["ב-2023"]);
        assert_eq!(read("(ןויעב) ,Debian אורקל"), ["(בעיון)", "Debian,", "לקרוא"]);
        assert_eq!(read(")ןויעב( אורקל"), ["(בעיון)", "לקרוא"]);
        assert_eq!(read("GNU/Linux"), ["GNU/Linux"]);
    }

    #[test]
    fn spaces_without_a_width_part_no_numbers() {
        let mut letters = line("םולש -1.9");
        // It follows the number in the file, and stands at its start.
        let area = Area { right: letters[5].area.left, ..letters[5].area };
        letters.push(Letter { letter: ' ', is_space: true, index: 9, area, ..letters[5].clone() });
        let words = words(letters);
        let texts: Vec<String> =
            words.iter().map(|word| word.iter().map(|letter| letter.letter).collect()).collect();
        assert_eq!(texts, ["שלום", "-1.9"]);
    }

    #[test]
    fn marks_follow_their_letter_and_ligatures_are_split() {
        let mut letters = line("םולש");
        letters.push(Letter { letter: '\u{5B8}', index: 9, ..letters[2].clone() });
        let word = words(letters).remove(0);
        assert_eq!(word.iter().map(|letter| letter.letter).collect::<String>(), "שלָום");
        let mut letters = line("مال");
        letters[2].area = letters[1].area;
        let word = words(letters).remove(0);
        assert_eq!(word.iter().map(|letter| letter.letter).collect::<String>(), "لام");
    }
}
