//! Boxes of words: as high as a line of text, whatever a font says of its letters.

use crate::Area;

/// A box that is lower than this is that of the ink; a line of text reaches so far above and below the baseline. In sizes of
/// the font.
const LOW: f32 = 0.6;
const ABOVE: f32 = 0.75;
const BELOW: f32 = 0.25;
/// A box that is higher than this is that of all signs of the font, and reaches into other lines; it is cut to so much above and
/// below the baseline.
const HIGH: f32 = 1.6;
const MOST_ABOVE: f32 = 1.0;
const MOST_BELOW: f32 = 0.3;

/// Whether the box of a word in a font of `size` is lower than a line of text.
pub(crate) fn is_low(area: Area, size: f32) -> bool {
    area.height() < LOW * size
}

/// Whether it is higher than one.
pub(crate) fn is_high(area: Area, size: f32) -> bool {
    area.height() > HIGH * size
}

/// The box of a level word.
pub(crate) fn as_high_as_line(area: Area, baseline: f32, size: f32) -> Area {
    if is_low(area, size) {
        let (top, bottom) = (baseline - ABOVE * size, baseline + BELOW * size);
        Area { top: area.top.min(top), bottom: area.bottom.max(bottom), ..area }
    } else if is_high(area, size) {
        let (top, bottom) = (baseline - MOST_ABOVE * size, baseline + MOST_BELOW * size);
        Area { top: area.top.max(top), bottom: area.bottom.min(bottom), ..area }
    } else {
        area
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, words};

    #[test]
    fn words_of_a_font_with_high_signs_do_not_reach_into_other_lines() {
        let font = "<</Type/Font/Subtype/TrueType/BaseFont/Odd/Encoding/WinAnsiEncoding/FirstChar 97/LastChar 122/Widths[\
            500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500 500]\
            /FontDescriptor<</Type/FontDescriptor/FontName/Odd/Flags 32/FontBBox[-500 -2000 1500 3000]\
            /Ascent 3000/Descent -2000/ItalicAngle 0/StemV 80/CapHeight 700>>>>";
        let form = "<</Type/XObject/Subtype/Form/BBox[0 0 1 1]/Length 0>>stream\n\nendstream";
        let file = pdf("BT /F 10 Tf 50 700 Td (one) Tj 0 -12 Td (two) Tj ET", "", "", &[form, font]);
        let file = String::from_utf8(file)
            .unwrap()
            .replace("/Font<</F 4 0 R>>/XObject", "/Font<</F 7 0 R>>/XObject");
        let words = words(file.into_bytes());
        let places: Vec<(f32, f32)> = words.iter().map(|word| (word.area.top, word.area.bottom)).collect();
        assert_eq!(places, [(90.0, 103.0), (102.0, 115.0)]);
    }
}
