//! Small PDFs made of lines at places.

use std::fmt::Write as _;

/// A line of text: points from the left edge and from the top of an A4 page, size, letters of Windows-1252.
pub type Line<'a> = (f32, f32, f32, &'a str);

/// Height of the pages.
const HEIGHT: f32 = 842.0;

/// A PDF with these lines on its pages, set in Helvetica.
pub fn pdf(pages: &[Vec<Line<'_>>]) -> Vec<u8> {
    let count = pages.len();
    let kids: String = (0..count).map(|index| format!("{} 0 R ", 4 + 2 * index)).collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Kids[{kids}]/Count {count}>>"),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>".to_owned(),
    ];
    for (index, lines) in pages.iter().enumerate() {
        let content = 5 + 2 * index;
        objects.push(format!(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 {HEIGHT}]/Resources<</Font<</F 3 0 R>>>>/Contents {content} 0 R>>"
        ));
        let mut text = String::new();
        for (left, top, size, letters) in lines {
            let letters = letters.replace(['(', ')', '\\'], "");
            let bottom = HEIGHT - top;
            writeln!(text, "BT /F {size} Tf {left} {bottom} Td ({letters}) Tj ET").unwrap();
        }
        objects.push(format!("<</Length {}>>stream\n{text}endstream", text.len()));
    }
    let mut file = "%PDF-1.4\n".to_owned();
    let mut places = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        places.push(file.len());
        writeln!(file, "{} 0 obj\n{object}\nendobj", index + 1).unwrap();
    }
    let table = file.len();
    let all = objects.len() + 1;
    writeln!(file, "xref\n0 {all}\n0000000000 65535 f ").unwrap();
    places.iter().for_each(|place| writeln!(file, "{place:010} 00000 n ").unwrap());
    write!(file, "trailer<</Size {all}/Root 1 0 R>>\nstartxref\n{table}\n%%EOF\n").unwrap();
    file.into_bytes()
}
