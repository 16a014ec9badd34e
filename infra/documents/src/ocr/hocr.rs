//! Tesseract's answer in hOCR, <https://kba.github.io/hocr-spec/1.2/>: words with places, lines with slope and size.

use signalbox_pdf::GrayImage;

use super::RecognisedWord;

/// A line that is being read.
#[derive(Clone, Copy, Default)]
struct Line {
    left: f32,
    bottom: f32,
    slope: f32,
    offset: f32,
    size: f32,
}

/// The words of `hocr`, straightened, in points at `dpi`.
pub(super) fn words(hocr: &str, dpi: u32, image: Option<&GrayImage>) -> Vec<RecognisedWord> {
    let scale = 72.0 / dpi.max(1) as f32;
    let slope = mean_slope(hocr);
    let mut line = Line::default();
    let mut words = Vec::new();
    for tag in hocr.split("<span ").skip(1) {
        let Some(title) = title_of(tag) else { continue };
        if !tag.contains("'ocrx_word'") {
            line = parse_line(title);
            continue;
        }
        let text =
            tag.split_once('>').map_or("", |(_, rest)| rest.split("</span>").next().unwrap_or_default());
        let text = plain(text);
        let Some([left, top, right, bottom]) = numbers::<4>(title, "bbox ") else { continue };
        if text.is_empty() {
            continue;
        }
        let confidence = numbers::<1>(title, "x_wconf ").map_or(0.0, |[percent]| percent / 100.0);
        let bounds = [left, top, right, bottom];
        // Turned back by the slope of the page.
        let on_line = line.bottom + line.offset + line.slope * (left - line.left);
        let straight = |x: f32, y: f32| (x + slope * y, y - slope * x);
        let (_, baseline) = straight(left, on_line);
        let (left, _) = straight(left, (top + bottom) / 2.0);
        let (right, _) = straight(right, (top + bottom) / 2.0);
        let size = if line.size > 0.0 { line.size } else { bottom - top };
        let area = (left, baseline - 0.8 * size, right, baseline + 0.2 * size);
        words.push(RecognisedWord {
            text,
            confidence: confidence.clamp(0.0, 1.0),
            area: (area.0 * scale, area.1 * scale, area.2 * scale, area.3 * scale),
            baseline: baseline * scale,
            size: size * scale,
            ink: image.map_or(0.0, |image| ink(image, bounds)),
        });
    }
    words
}

fn parse_line(title: &str) -> Line {
    let [left, _, _, bottom] = numbers::<4>(title, "bbox ").unwrap_or_default();
    let [slope, offset] = numbers::<2>(title, "baseline ").unwrap_or_default();
    let [size] = numbers::<1>(title, "x_size ").unwrap_or_default();
    Line { left, bottom, slope, offset, size }
}

/// The slope of the page: that of its lines, the long ones counting more.
pub(super) fn mean_slope(hocr: &str) -> f32 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for title in line_titles(hocr) {
        if let (Some([left, _, right, _]), Some([slope, _])) =
            (numbers::<4>(title, "bbox "), numbers::<2>(title, "baseline "))
        {
            sum += slope * (right - left);
            weight += right - left;
        }
    }
    if weight > 0.0 { sum / weight } else { 0.0 }
}

/// Whether most lines do not go from left to right: they rise steeply, or have no baseline at all.
pub(super) fn is_sideways(hocr: &str) -> bool {
    let (mut lines, mut sideways) = (0, 0);
    for title in line_titles(hocr) {
        let is_level = numbers::<1>(title, "baseline ").is_some_and(|[slope]| slope.abs() < 1.0);
        lines += 1;
        sideways += usize::from(!is_level);
    }
    2 * sideways > lines
}

/// The titles of the lines.
fn line_titles(hocr: &str) -> impl Iterator<Item = &str> {
    hocr.split("<span ").skip(1).filter(|tag| !tag.contains("'ocrx_word'")).filter_map(title_of)
}

/// A pixel darker than this is ink.
const INK: u8 = 128;

/// How much of a part of the picture is ink. Every second row says enough.
fn ink(image: &GrayImage, [left, top, right, bottom]: [f32; 4]) -> f32 {
    let clamp = |value: f32, most: u32| (value.max(0.0) as usize).min(most as usize);
    let (left, right) = (clamp(left, image.width), clamp(right, image.width));
    let (top, bottom) = (clamp(top, image.height), clamp(bottom, image.height));
    let (mut dark, mut all) = (0_usize, 0_usize);
    for y in (top..bottom).step_by(2) {
        let start = y * image.width as usize;
        let row = image.pixels.get(start + left..start + right).unwrap_or_default();
        dark += row.iter().filter(|pixel| **pixel < INK).count();
        all += row.len();
    }
    dark as f32 / all.max(1) as f32
}

/// The title of the element whose start tag is `tag`; Tesseract uses both kinds of quotation marks.
fn title_of(tag: &str) -> Option<&str> {
    let rest = &tag[tag.find("title=")? + "title=".len()..];
    let quote = rest.chars().next()?;
    rest[1..].split(quote).next()
}

/// The numbers that follow `name` in `title`.
fn numbers<const N: usize>(title: &str, name: &str) -> Option<[f32; N]> {
    let rest = &title[title.find(name)? + name.len()..];
    let rest = rest.split(';').next().unwrap_or_default();
    let mut found = [0.0; N];
    let mut given = rest.split_whitespace();
    for number in &mut found {
        *number = given.next()?.parse().ok()?;
    }
    Some(found)
}

/// Text without tags and entities.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        match letter {
            '<' => inside = true,
            '>' if inside => inside = false,
            _ if !inside => plain.push(letter),
            _ => {}
        }
    }
    for (entity, letter) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")] {
        if plain.contains(entity) {
            plain = plain.replace(entity, letter);
        }
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOCR: &str = "<div class='ocr_page'><span class='ocr_line' id='line_1_1' title=\"bbox 100 100 1100 150; \
        baseline 0.01 -10; x_size 40; x_descenders 8\"><span class='ocrx_word' id='w' title='bbox 100 100 300 150; \
        x_wconf 96'><strong>R&amp;D</strong></span> <span class='ocrx_word' title='bbox 1000 110 1100 160; x_wconf 50'>x\
        </span></span></div>";

    #[test]
    fn lines_that_go_down_are_sideways() {
        assert!(!is_sideways(HOCR) && !is_sideways(""));
        assert!(is_sideways(&HOCR.replace("0.01 -10", "-855 0")));
        assert!(is_sideways(&HOCR.replace("baseline 0.01 -10; ", "")));
    }

    #[test]
    fn words_of_a_sloping_line_stand_on_one_baseline() {
        let words = words(HOCR, 72, None);
        assert_eq!(words[0].text, "R&D");
        assert!((words[0].confidence - 0.96).abs() < 0.001 && (words[0].size - 40.0).abs() < 0.001);
        assert!((words[0].baseline - words[1].baseline).abs() < 0.1, "{words:?}");
    }
}
