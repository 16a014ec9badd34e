//! Converts Google Vision's answer (`AnnotateImageResponse.fullTextAnnotation`) to words.
//!
//! Its words are pieces without punctuation; ours end where it saw a space. Places are turned upright and straightened
//! like those of hOCR.

use serde::Deserialize;

use super::{Recognised, RecognisedWord};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnnotateOut {
    responses: Vec<ResponseOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResponseOut {
    full_text_annotation: Option<TextOut>,
    error: Option<ErrorOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorOut {
    code: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TextOut {
    pages: Vec<PageOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageOut {
    blocks: Vec<BlockOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BlockOut {
    paragraphs: Vec<ParagraphOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ParagraphOut {
    words: Vec<WordOut>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WordOut {
    confidence: f32,
    bounding_box: BoxOut,
    symbols: Vec<SymbolOut>,
}

/// From the left upper corner of the letters, clockwise, as a reader of them sees it; zeros are left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BoxOut {
    vertices: Vec<VertexOut>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct VertexOut {
    x: f32,
    y: f32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SymbolOut {
    text: String,
    property: PropertyOut,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PropertyOut {
    detected_break: BreakOut,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BreakOut {
    #[serde(rename = "type")]
    kind: String,
}

/// Letters up to a space, and the start and end of each piece's box.
#[derive(Debug, Default)]
struct Piece {
    text: String,
    corners: Vec<VertexOut>,
    /// Sum over the letters.
    confidence: f32,
    letters: f32,
    ends_line: bool,
}

/// The words of `answer`, in points at `dpi`; else the code of its error, if it has one.
pub(crate) fn words(
    answer: &[u8],
    page: usize,
    size: (u32, u32),
    dpi: u32,
) -> Result<Recognised, Option<u16>> {
    let answer: AnnotateOut = serde_json::from_slice(answer).map_err(|_| None)?;
    let response = answer.responses.into_iter().next().ok_or(None)?;
    if let Some(error) = response.error {
        return Err(Some(error.code));
    }
    // A picture without text has no annotation.
    let pages = response.full_text_annotation.unwrap_or_default().pages;
    let paragraphs = pages.into_iter().flat_map(|page| page.blocks).flat_map(|block| block.paragraphs);
    let mut pieces: Vec<Piece> = paragraphs.flat_map(|paragraph| pieces(paragraph.words)).collect();
    let (turns, (width, height)) = turn_upright(&mut pieces, size);
    let slope = straighten(&mut pieces);
    let scale = 72.0 / dpi.max(1) as f32;
    let mut words = Vec::with_capacity(pieces.len());
    for line in pieces.chunk_by(|one, _| !one.ends_line) {
        line_words(line, scale, &mut words);
    }
    Ok(Recognised { page, width: width * scale, height: height * scale, turns, slope, words })
}

fn pieces(words: Vec<WordOut>) -> Vec<Piece> {
    let (mut pieces, mut open) = (Vec::new(), Piece::default());
    for word in words {
        open.corners.extend(word.bounding_box.vertices);
        for symbol in word.symbols {
            open.text.push_str(&symbol.text);
            open.confidence += word.confidence;
            open.letters += 1.0;
            let kind = symbol.property.detected_break.kind;
            if kind == "HYPHEN" {
                open.text.push('-');
            }
            open.ends_line = matches!(kind.as_str(), "HYPHEN" | "EOL_SURE_SPACE" | "LINE_BREAK");
            if open.ends_line || matches!(kind.as_str(), "SPACE" | "SURE_SPACE") {
                pieces.push(std::mem::take(&mut open));
            }
        }
    }
    open.ends_line = true;
    pieces.push(open);
    pieces.retain(|piece| !piece.text.trim().is_empty() && piece.corners.len() >= 4);
    if let Some(last) = pieces.last_mut() {
        last.ends_line = true;
    }
    pieces
}

/// Turns the picture by quarters until most letters are upright; returns how many, clockwise, and its width and height then.
fn turn_upright(pieces: &mut [Piece], (width, height): (u32, u32)) -> (u32, (f32, f32)) {
    let (width, height) = (width as f32, height as f32);
    let mut directions = [0.0_f32; 4];
    for piece in pieces.iter() {
        let (x, y) = (piece.corners[1].x - piece.corners[0].x, piece.corners[1].y - piece.corners[0].y);
        let direction =
            if x.abs() >= y.abs() { usize::from(x < 0.0) * 2 } else { 1 + usize::from(y < 0.0) * 2 };
        directions[direction] += piece.letters;
    }
    let most = (0..4).max_by(|one, other| directions[*one].total_cmp(&directions[*other])).unwrap_or(0);
    if directions[most] <= directions[0] {
        return (0, (width, height));
    }
    for corner in pieces.iter_mut().flat_map(|piece| &mut piece.corners) {
        let VertexOut { x, y } = *corner;
        (corner.x, corner.y) = match most {
            1 => (y, width - x),
            2 => (width - x, height - y),
            _ => (height - y, x),
        };
    }
    // Letters that go down have been turned clockwise once; the rest of the circle turns them back.
    (4 - most as u32, if most == 2 { (width, height) } else { (height, width) })
}

/// Turns the picture back by the mean slope of its words, and says it.
fn straighten(pieces: &mut [Piece]) -> f32 {
    let (mut rise, mut run) = (0.0, 0.0);
    for piece in pieces.iter() {
        rise += piece.corners[1].y - piece.corners[0].y;
        run += piece.corners[1].x - piece.corners[0].x;
    }
    let slope = if run > 0.0 { (rise / run).clamp(-0.5, 0.5) } else { 0.0 };
    for corner in pieces.iter_mut().flat_map(|piece| &mut piece.corners) {
        (corner.x, corner.y) = (corner.x + slope * corner.y, corner.y - slope * corner.x);
    }
    slope
}

/// How much of a line's height lies below its letters.
const BELOW: f32 = 0.22;

/// The words of one line, which stand on one baseline and are of one size.
fn line_words(line: &[Piece], scale: f32, words: &mut Vec<RecognisedWord>) {
    let bounds = |piece: &Piece| {
        let mut bounds = (f32::MAX, f32::MAX, f32::MIN, f32::MIN);
        for corner in &piece.corners {
            bounds = (
                bounds.0.min(corner.x),
                bounds.1.min(corner.y),
                bounds.2.max(corner.x),
                bounds.3.max(corner.y),
            );
        }
        bounds
    };
    let middle = |mut values: Vec<f32>| {
        values.sort_by(f32::total_cmp);
        values[values.len() / 2]
    };
    let bottom = middle(line.iter().map(|piece| bounds(piece).3).collect());
    let size = middle(line.iter().map(|piece| bounds(piece).3 - bounds(piece).1).collect());
    let baseline = bottom - BELOW * size;
    for piece in line {
        let (left, _, right, _) = bounds(piece);
        let area = (left * scale, (bottom - size) * scale, right * scale, bottom * scale);
        words.push(RecognisedWord {
            text: piece.text.trim().to_owned(),
            confidence: (piece.confidence / piece.letters).clamp(0.0, 1.0),
            area,
            baseline: baseline * scale,
            size: size * scale,
            ink: 0.0,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn word(text: &str, corners: [(f32, f32); 4], kind: &str) -> Value {
        let mut symbols: Vec<Value> = text.chars().map(|letter| json!({"text": letter})).collect();
        if let Some(last) = symbols.last_mut() {
            last["property"] = json!({"detectedBreak": {"type": kind}});
        }
        // As the service does, zeros are left out.
        let vertices = corners.map(|(x, y)| match (x == 0.0, y == 0.0) {
            (false, false) => json!({"x": x, "y": y}),
            (true, false) => json!({"y": y}),
            (false, true) => json!({"x": x}),
            (true, true) => json!({}),
        });
        json!({"confidence": 0.9, "boundingBox": {"vertices": vertices}, "symbols": symbols})
    }

    fn upright(left: f32, top: f32, width: f32) -> [(f32, f32); 4] {
        [(left, top), (left + width, top), (left + width, top + 40.0), (left, top + 40.0)]
    }

    fn answer(words: &[Value]) -> Vec<u8> {
        let pages = json!([{"blocks": [{"paragraphs": [{"words": words}]}]}]);
        json!({"responses": [{"fullTextAnnotation": {"pages": pages, "text": "x"}}]}).to_string().into_bytes()
    }

    #[test]
    fn pieces_between_spaces_are_words_with_places_in_points() {
        let answer = answer(&[
            word("Gleis", upright(0.0, 0.0, 200.0), ""),
            word(",", upright(200.0, 0.0, 10.0), "SPACE"),
            word("Prü", upright(300.0, 0.0, 90.0), "HYPHEN"),
            word("fung", upright(0.0, 60.0, 90.0), "LINE_BREAK"),
        ]);
        let found = words(&answer, 3, (600, 300), 144).unwrap();
        let texts: Vec<&str> = found.words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["Gleis,", "Prü-", "fung"]);
        assert_eq!((found.page, found.width, found.height), (3, 300.0, 150.0));
        assert_eq!(found.words[0].area, (0.0, 0.0, 105.0, 20.0));
        assert!((found.words[0].confidence - 0.9).abs() < 0.001);
        assert_eq!(found.words[0].baseline, found.words[1].baseline);
        assert!(found.words[2].baseline > found.words[1].baseline);
    }

    #[test]
    fn a_page_that_lies_on_its_side_is_turned_upright() {
        // Clockwise by a quarter: lines go down, the first one at the right edge of a picture of 300 × 600.
        let turned = |left: f32, top: f32, width: f32| upright(left, top, width).map(|(x, y)| (300.0 - y, x));
        let answer = answer(&[
            word("eins", turned(50.0, 20.0, 100.0), "SPACE"),
            word("zwei", turned(200.0, 20.0, 100.0), "LINE_BREAK"),
        ]);
        let found = words(&answer, 1, (300, 600), 72).unwrap();
        assert_eq!((found.width, found.height, found.turns), (600.0, 300.0, 3));
        assert_eq!(found.words[0].area, (50.0, 20.0, 150.0, 60.0));
        assert_eq!(found.words[1].area, (200.0, 20.0, 300.0, 60.0));
    }

    #[test]
    fn text_is_distinguished_from_other_marks() {
        assert_eq!(words(b"{\"responses\":[{}]}", 1, (10, 10), 72).unwrap().words, []);
        assert_eq!(words(b"{\"responses\":[{\"error\":{\"code\":7}}]}", 1, (10, 10), 72), Err(Some(7)));
        assert_eq!(words(b"<html>", 1, (10, 10), 72), Err(None));
        assert_eq!(words(b"{}", 1, (10, 10), 72), Err(None));
    }
}
