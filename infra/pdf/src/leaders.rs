//! Leaders: dots that lead from a text to its number. They are one word, however far they are apart, so that no column of a table
//! is seen in them.

use crate::Word;

/// Dots of a leader at least, how far apart they are at most, and how level they stand, in sizes of the font.
const DOTS: usize = 3;
const APART: f32 = 2.0;
const LEVEL: f32 = 0.1;

/// Makes the dots of a leader one word.
pub(crate) fn join(words: &mut Vec<Word>) {
    if !words.windows(DOTS).any(|run| run.iter().all(is_dot)) {
        return;
    }
    let mut joined: Vec<Word> = Vec::with_capacity(words.len());
    for run in std::mem::take(words).chunk_by(|one, other| is_dot(one) && is_dot(other) && leads(one, other))
    {
        match run {
            [first, .., last] if run.len() >= DOTS => {
                let text = run.iter().map(|word| word.text.as_str()).collect();
                joined.push(Word { text, area: first.area.union(&last.area), ..first.clone() });
            }
            _ => joined.extend_from_slice(run),
        }
    }
    *words = joined;
}

/// Several dots in one word have no places of their own.
fn is_dot(word: &Word) -> bool {
    !word.style.turned && word.text == "."
}

fn leads(one: &Word, other: &Word) -> bool {
    let size = one.style.size.max(1.0);
    let gap = other.area.left - one.area.right;
    (0.0..APART * size).contains(&gap) && (other.baseline - one.baseline).abs() < LEVEL * size
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, words};

    #[test]
    fn dots_that_lead_to_a_number_are_one_word() {
        let text = "BT /F 10 Tf 50 700 Td (Total) Tj 36 0 Td (.) Tj 12 0 Td (.) Tj 12 0 Td (.) Tj 12 0 Td (.) Tj 20 0 Td (14) Tj ET \
            BT /F 10 Tf 50 680 Td (so) Tj 30 0 Td (.) Tj 12 0 Td (.) Tj ET";
        let words = words(pdf(text, "", "", &[]));
        let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["Total", "....", "14", "so", ".", "."]);
        assert!(words[1].area.left < 87.0 && words[1].area.right > 122.0, "{:?}", words[1].area);
    }
}
