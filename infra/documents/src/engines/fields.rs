//! Values of form fields become words of their page, where the page does not show them already.

use std::collections::HashSet;

use signalbox_pdf::{Area, Field, FieldValue, Style, Word};

const TICKED: &str = "☒";
const EMPTY: &str = "☐";
/// Size of a value that is not shown: of the field's height, and in points.
const HEIGHT: f32 = 0.7;
const SIZE: f32 = 10.0;
/// Width of a letter, and distance of lines, in sizes.
const LETTER: f32 = 0.5;
const LEADING: f32 = 1.2;

/// Adds the values of `fields` to the words that a page shows, as long as these are not more than `most`.
pub(super) fn add(fields: &[Field], words: &mut Vec<Word>, most: usize) {
    for field in fields {
        if words.len() > most {
            return;
        }
        match &field.value {
            FieldValue::Ticked(ticked) => {
                // A box shows a mark of its font: a cross, a check, a bullet.
                words.retain(|word| !is_inside(word, field.area) || word.text.chars().count() > 1);
                words.push(mark(*ticked, field.area));
            }
            FieldValue::Text(value) => {
                let letters =
                    |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
                let inside: Vec<&str> = words
                    .iter()
                    .filter(|word| is_inside(word, field.area))
                    .map(|word| word.text.as_str())
                    .collect();
                let shown: String = inside.iter().map(|text| letters(text)).collect();
                let inside: HashSet<&str> = inside.into_iter().collect();
                let is_whole = value.split_whitespace().all(|one| inside.contains(one));
                // A value may be shown letter by letter, each in a box of its own.
                if !is_whole && shown == letters(value) {
                    words.retain(|word| !is_inside(word, field.area));
                    words.extend(typed(value, field.area));
                } else if shown.is_empty() {
                    words.extend(typed(value, field.area));
                }
            }
        }
    }
}

/// The mark of a box or button, which is as large as its field; a wide field has it at its left.
fn mark(is_ticked: bool, area: Area) -> Word {
    Word {
        text: (if is_ticked { TICKED } else { EMPTY }).to_owned(),
        area: Area { right: area.right.min(area.left + area.height()), ..area },
        baseline: area.bottom - 0.2 * area.height(),
        style: Style { size: area.height().clamp(1.0, SIZE), ..Style::default() },
        confidence: None,
    }
}

fn is_inside(word: &Word, area: Area) -> bool {
    let (x, y) = ((word.area.left + word.area.right) / 2.0, (word.area.top + word.area.bottom) / 2.0);
    area.left <= x && x <= area.right && area.top <= y && y <= area.bottom
}

/// The words of `value` as they would be typed into `area`.
fn typed(value: &str, area: Area) -> Vec<Word> {
    let size = (HEIGHT * area.height()).clamp(1.0, SIZE);
    let style = Style { size, ..Style::default() };
    let is_one_line = !value.contains('\n');
    let mut words = Vec::new();
    for (number, line) in value.lines().enumerate() {
        let top = area.top + number as f32 * LEADING * size;
        // A single line stands in the middle.
        let top = if is_one_line { (area.top + area.bottom - size) / 2.0 } else { top };
        let mut left = area.left;
        for text in line.split_whitespace() {
            let right = left + LETTER * size * text.chars().count() as f32;
            let area = Area { left, top, right, bottom: top + size };
            words.push(Word {
                text: text.to_owned(),
                area,
                baseline: top + 0.8 * size,
                style,
                confidence: None,
            });
            left = right + LETTER * size;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 100.0, top: 100.0, right: 200.0, bottom: 114.0 };

    fn shown(texts: &[&str]) -> Vec<Word> {
        let place = |index: usize| Area {
            left: 102.0 + 12.0 * index as f32,
            top: 102.0,
            right: 110.0 + 12.0 * index as f32,
            bottom: 112.0,
        };
        let word = |(index, text): (usize, &&str)| Word {
            text: (*text).to_owned(),
            area: place(index),
            baseline: 110.0,
            style: Style::default(),
            confidence: None,
        };
        texts.iter().enumerate().map(word).collect()
    }

    #[test]
    fn values_are_added_where_the_page_does_not_show_them() {
        let text = |value: &str| FieldValue::Text(value.to_owned());
        for (value, before, after) in [
            (text("Anna Muster"), &[][..], &["Anna", "Muster"][..]),
            (text("Anna Muster"), &["Anna", "Muster"], &["Anna", "Muster"]),
            (text("12345"), &["1", "2", "3", "4", "5"], &["12345"]),
            (text("de"), &["Germany"], &["Germany"]),
            (FieldValue::Ticked(true), &["✔"], &["☒"]),
            (FieldValue::Ticked(false), &[], &["☐"]),
        ] {
            let mut words = shown(before);
            add(&[Field { area: AREA, value }], &mut words, 9);
            assert_eq!(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), after);
        }
    }

    #[test]
    fn a_mark_is_as_large_as_its_box() {
        let mut words = Vec::new();
        add(&[Field { area: AREA, value: FieldValue::Ticked(true) }], &mut words, 9);
        assert_eq!(words[0].area, Area { right: 114.0, ..AREA });
    }

    #[test]
    fn values_are_added_until_a_page_has_too_many_words() {
        let field = Field { area: AREA, value: FieldValue::Text("one two".to_owned()) };
        let elsewhere = |nth: f32| Area { top: 100.0 + 20.0 * nth, bottom: 114.0 + 20.0 * nth, ..AREA };
        let fields: Vec<Field> =
            (0..9_u8).map(|nth| Field { area: elsewhere(f32::from(nth)), ..field.clone() }).collect();
        let mut words = Vec::new();
        add(&fields, &mut words, 5);
        assert_eq!(words.len(), 6, "one more says that some are left out");
    }
}
