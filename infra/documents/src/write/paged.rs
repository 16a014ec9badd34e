//! Pages with the place of every line and word: hOCR 1.2 and ALTO 4.

use std::fmt::Write;

use signalbox_pdf::Area;

use crate::layout::{Line, LinedPage};

/// Pixels per inch of hOCR, whose places are whole pixels.
const HOCR_DPI: f32 = 300.0;
/// Units per inch of ALTO.
const ALTO_DPI: f32 = 1200.0;
const POINTS: f32 = 72.0;

const HOCR_HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml">
<head>
<title></title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content="signalbox"/>
<meta name="ocr-capabilities" content="ocr_page ocr_carea ocr_line ocrx_word"/>
</head>
<body>
"#;

const ALTO_HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.loc.gov/standards/alto/ns-v4# http://www.loc.gov/standards/alto/v4/alto-4-2.xsd">
<Description><MeasurementUnit>inch1200</MeasurementUnit></Description>
<Layout>
"#;

/// Left, top, right and bottom in whole units.
fn units(area: &Area, dpi: f32) -> [i64; 4] {
    [area.left, area.top, area.right, area.bottom].map(|points| (points * dpi / POINTS).round() as i64)
}

fn union(lines: &[Line]) -> Area {
    lines.iter().map(|line| line.area).reduce(|one, other| one.union(&other)).unwrap_or_default()
}

/// `text` for XML, without the characters that it does not allow.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{FFFE}' | '\u{FFFF}' => {}
            _ if letter < ' ' => {}
            _ => escaped.push(letter),
        }
    }
    escaped
}

// Writing to a string does not fail.

pub(crate) fn hocr(pages: &[LinedPage]) -> String {
    let bbox = |area: &Area| {
        let [left, top, right, bottom] = units(area, HOCR_DPI);
        format!("bbox {left} {top} {right} {bottom}")
    };
    let mut text = HOCR_HEAD.to_owned();
    for page in pages {
        let (number, whole) = (page.number, bbox(&page.area()));
        let _ = writeln!(
            text,
            "<div class=\"ocr_page\" id=\"page_{number}\" title=\"{whole}; ppageno {}; scan_res {HOCR_DPI} {HOCR_DPI}\">",
            number.saturating_sub(1)
        );
        let (mut line_number, mut word_number) = (0, 0);
        for (block, lines) in page.blocks.iter().enumerate() {
            let _ = writeln!(
                text,
                "<div class=\"ocr_carea\" id=\"block_{number}_{}\" title=\"{}\">",
                block + 1,
                bbox(&union(lines))
            );
            for line in lines {
                line_number += 1;
                let place = bbox(&line.area);
                let _ = write!(
                    text,
                    "<span class=\"ocr_line\" id=\"line_{number}_{line_number}\" title=\"{place}\">"
                );
                for (index, word) in line.words.iter().enumerate() {
                    word_number += 1;
                    let (space, place) = (if index > 0 { " " } else { "" }, bbox(&word.area));
                    let _ = write!(
                        text,
                        "{space}<span class=\"ocrx_word\" id=\"word_{number}_{word_number}\" title=\"{place}\">{}</span>",
                        escaped(&word.text)
                    );
                }
                text.push_str("</span><br/>\n");
            }
            text.push_str("</div>\n");
        }
        text.push_str("</div>\n");
    }
    text.push_str("</body>\n</html>\n");
    text
}

pub(crate) fn alto(pages: &[LinedPage]) -> String {
    let place = |area: &Area| {
        let [left, top, right, bottom] = units(area, ALTO_DPI);
        let (width, height) = ((right - left).max(0), (bottom - top).max(0));
        format!("HPOS=\"{left}\" VPOS=\"{top}\" WIDTH=\"{width}\" HEIGHT=\"{height}\"")
    };
    let mut text = ALTO_HEAD.to_owned();
    for page in pages {
        let (number, area) = (page.number, page.area());
        let [_, _, width, height] = units(&area, ALTO_DPI);
        let _ = write!(
            text,
            "<Page ID=\"page_{number}\" PHYSICAL_IMG_NR=\"{number}\" WIDTH=\"{width}\" HEIGHT=\"{height}\""
        );
        if let Some(sure) = page.confidence {
            let _ = write!(text, " PC=\"{:.3}\"", sure.clamp(0.0, 1.0));
        }
        let _ = writeln!(text, ">\n<PrintSpace {}>", place(&area));
        let (mut line_number, mut word_number) = (0, 0);
        for (block, lines) in page.blocks.iter().enumerate() {
            let around = place(&union(lines));
            let _ = writeln!(text, "<TextBlock ID=\"block_{number}_{}\" {around}>", block + 1);
            for line in lines {
                line_number += 1;
                let around = place(&line.area);
                let _ = write!(text, "<TextLine ID=\"line_{number}_{line_number}\" {around}>");
                for (index, word) in line.words.iter().enumerate() {
                    word_number += 1;
                    let (space, content) = (if index > 0 { "<SP/>" } else { "" }, escaped(&word.text));
                    let around = place(&word.area);
                    let _ = write!(
                        text,
                        "{space}<String ID=\"word_{number}_{word_number}\" CONTENT=\"{content}\" {around}/>"
                    );
                }
                text.push_str("</TextLine>\n");
            }
            text.push_str("</TextBlock>\n");
        }
        text.push_str("</PrintSpace>\n</Page>\n");
    }
    text.push_str("</Layout>\n</alto>\n");
    text
}

#[cfg(test)]
mod tests {
    use quick_xml::{Reader, events::Event};
    use signalbox_pdf::{Style, Word};

    use super::*;
    use crate::layout::{self, PageContent};

    fn pages() -> Vec<LinedPage> {
        let word = |text: &str, left: f32, baseline: f32| Word {
            text: text.to_owned(),
            area: Area { left, top: baseline - 8.0, right: left + 24.0, bottom: baseline + 2.0 },
            baseline,
            style: Style { size: 10.0, ..Style::default() },
            confidence: None,
        };
        let words = vec![word("R&D", 72.0, 80.0), word("<x>", 99.0, 80.0), word("end\u{2}", 72.0, 92.0)];
        let page = PageContent { number: 3, width: 144.0, height: 288.0, words, ..PageContent::default() };
        layout::lined(vec![PageContent { confidence: Some(0.875), ..page }])
    }

    /// The elements of `xml`; fails if it is not well-formed.
    fn count(xml: &str) -> usize {
        let (mut reader, mut elements) = (Reader::from_str(xml), 0);
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => return elements,
                Event::Start(_) | Event::Empty(_) => elements += 1,
                _ => {}
            }
        }
    }

    #[test]
    fn hocr_has_lines_and_words_in_pixels() {
        let xml = hocr(&pages());
        assert!(count(&xml) > 10);
        for part in [
            "id=\"page_3\" title=\"bbox 0 0 600 1200; ppageno 2; scan_res 300 300\"",
            "id=\"word_3_1\" title=\"bbox 300 300 400 342\">R&amp;D</span> <span",
            "title=\"bbox 413 300 513 342\">&lt;x&gt;</span></span>",
            "id=\"line_3_2\"",
            ">end</span>",
        ] {
            assert!(xml.contains(part), "{part} is not in {xml}");
        }
    }

    #[test]
    fn alto_has_lines_and_words_in_its_units() {
        let xml = alto(&pages());
        assert!(count(&xml) > 10);
        for part in [
            "<Page ID=\"page_3\" PHYSICAL_IMG_NR=\"3\" WIDTH=\"2400\" HEIGHT=\"4800\" PC=\"0.875\">",
            "CONTENT=\"R&amp;D\" HPOS=\"1200\" VPOS=\"1200\" WIDTH=\"400\" HEIGHT=\"167\"/><SP/><String",
            "CONTENT=\"end\"",
        ] {
            assert!(xml.contains(part), "{part} is not in {xml}");
        }
    }
}
