//! Justified lines: spaces of one width, however wide, between words of many widths. Cells stand below each other instead.

use signalbox_pdf::Word;

/// Words of such a line at least, and its spaces that are not behind a sign, where some programs set wider ones.
const WORDS: usize = 5;
const SPACES: usize = 3;
/// By how much its spaces differ, in sizes of the font, and how much wider one behind a sign is.
const SAME: f32 = 0.03;
const BEHIND_SIGN: f32 = 2.0;

/// Whether `words` of one line, from left to right, in a font of `size`, are a justified line of text.
pub(super) fn is_line<'a>(words: impl Iterator<Item = &'a Word> + Clone, size: f32) -> bool {
    let count = words.clone().count();
    let of_letters = words.clone().filter(|word| word.text.contains(char::is_alphabetic)).count();
    if count < WORDS || 2 * of_letters < count {
        return false;
    }
    let spaces = words.clone().zip(words.clone().skip(1)).map(|(word, next)| {
        let is_behind_sign = word.text.ends_with(|letter: char| ".,;:!?)”\"".contains(letter));
        (next.area.left - word.area.right, is_behind_sign)
    });
    let mut plain: Vec<f32> =
        spaces.clone().filter(|(_, is_behind_sign)| !is_behind_sign).map(|(space, _)| space).collect();
    plain.sort_by(f32::total_cmp);
    let Some(usual) = plain.get(plain.len() / 2).copied().filter(|_| plain.len() >= SPACES) else {
        return false;
    };
    let is_usual = |(space, is_behind_sign): (f32, bool)| {
        (space - usual).abs() <= SAME * size
            || (is_behind_sign && (usual..=BEHIND_SIGN * usual).contains(&space))
    };
    let widths = words.map(|word| word.area.width());
    let (narrowest, widest) = widths
        .fold((f32::MAX, 0.0_f32), |(narrowest, widest), width| (narrowest.min(width), widest.max(width)));
    // Columns of one width have spaces of one width, too.
    widest - narrowest > size && spaces.into_iter().all(is_usual)
}
