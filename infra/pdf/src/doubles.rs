//! Words that are drawn twice at one place, to look bold or because two layers of a page have them: they are read once.

use std::collections::HashMap;

use crate::Word;

/// How far apart the edges of such words are, at most, in sizes of the font.
const APART: f32 = 0.1;
/// Height of the strips of a page, in points, in which words are looked for that stand beside no other ones, and how many there are.
const STRIP: f32 = 4.0;
const STRIPS: usize = 1024;

/// Takes out each word that stands where the same one stands already.
pub(crate) fn take_out(words: &mut Vec<Word>) {
    if !may_have(words) {
        return;
    }
    let mut are_doubles = Vec::with_capacity(words.len());
    // The last word of each text at each place, in sizes of its font.
    let mut known: HashMap<(&str, i32, i32), usize> = HashMap::with_capacity(words.len());
    for (number, word) in words.iter().enumerate() {
        let size = word.style.size.max(1.0);
        let near = |at: f32| ((at / size - APART).floor() as i32)..=((at / size + APART).floor() as i32);
        let (columns, rows) = (near(word.area.left), near(word.area.top));
        let places = columns.flat_map(|column| rows.clone().map(move |row| (column, row)));
        let mut same = places.filter_map(|(column, row)| known.get(&(word.text.as_str(), column, row)));
        let is_double = same.any(|other| are_at_one_place(&words[*other], word, size));
        are_doubles.push(is_double);
        if !is_double {
            let (column, row) =
                ((word.area.left / size).floor() as i32, (word.area.top / size).floor() as i32);
            known.insert((word.text.as_str(), column, row), number);
        }
    }
    if are_doubles.contains(&true) {
        let mut are_doubles = are_doubles.into_iter();
        words.retain(|_| !are_doubles.next().unwrap_or_default());
    }
}

/// Whether a word stands between others that are written before it: on most pages none does.
fn may_have(words: &[Word]) -> bool {
    let mut extents = [(f32::MAX, f32::MIN); STRIPS];
    let strip = |top: f32| ((top / STRIP).max(0.0) as usize).min(STRIPS - 1);
    words.iter().any(|word| {
        let (area, apart) = (word.area, APART * word.style.size.max(1.0));
        let middle = (area.left + area.right) / 2.0;
        let is_between = |(left, right): (f32, f32)| left < middle && middle < right;
        let found =
            is_between(extents[strip(area.top - apart)]) || is_between(extents[strip(area.top + apart)]);
        let (left, right) = &mut extents[strip(area.top)];
        (*left, *right) = (left.min(area.left), right.max(area.right));
        found
    })
}

fn are_at_one_place(one: &Word, other: &Word, size: f32) -> bool {
    let near = |one: f32, other: f32| (one - other).abs() <= APART * size;
    near(one.style.size, other.style.size)
        && near(one.area.left, other.area.left)
        && near(one.area.top, other.area.top)
        && near(one.area.right, other.area.right)
        && near(one.area.bottom, other.area.bottom)
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts};

    #[test]
    fn words_that_are_drawn_twice_are_read_once() {
        // PDFium itself leaves out pieces of text that are drawn again as a whole.
        let text = "BT /F 10 Tf 50 700 Td (drawn twice) Tj 0 -20 Td (other line) Tj 0.4 20 Td (drawn) Tj ( twice) Tj \
            0 -8 Td (drawn) Tj ET";
        assert_eq!(texts(pdf(text, "", "", &[])), ["drawn", "twice", "other", "line", "drawn"]);
    }
}
