use signalbox_pdf::{Layer, Library, MAX_WORDS, Page, PdfError, RgbImage, Word};

use super::{Body, Engine, Input, Reading, fields};
use crate::{
    detect,
    failure::Failure,
    layout::PageContent,
    ocr::{Recognition, Task},
    write::Metadata,
};

/// A page with fewer letters of text and something to see is recognised.
const FEW_LETTERS: usize = 16;

/// Reads PDFs with PDFium.
pub(crate) struct PdfEngine {
    library: Library,
}

impl PdfEngine {
    pub(crate) fn new(library: Library) -> Self {
        Self { library }
    }
}

impl PdfEngine {
    /// Page `number`, from 1, `width` pixels wide; none if there is none.
    pub(crate) fn draw(&self, input: Input, number: usize, width: u32) -> Result<Option<RgbImage>, Failure> {
        let document = self.library.open(input.bytes)?;
        let Some(index) = number.checked_sub(1).filter(|index| *index < document.page_count()) else {
            return Ok(None);
        };
        Ok(Some(document.page(index)?.draw_in_colour(width)?))
    }
}

impl PdfEngine {
    /// The PDF with `layers` of unseen words; at most `most` bytes.
    pub(crate) fn lay(&self, bytes: Vec<u8>, layers: &[Layer], most: usize) -> Result<Vec<u8>, Failure> {
        Ok(self.library.lay(bytes, layers, most)?)
    }
}

impl Engine for PdfEngine {
    fn name(&self) -> &'static str {
        "pdfium"
    }

    fn mime_types(&self) -> &'static [&'static str] {
        &[detect::PDF]
    }

    fn read(&self, input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure> {
        let document = self.library.open(input.bytes)?;
        let count = document.page_count();
        if count == 0 {
            return Err(Failure::corrupt("the PDF has no pages"));
        }
        if count > input.max_pages {
            return Err(Failure::too_much(format!(
                "the PDF has {count} pages, but at most {} are read: split it",
                input.max_pages
            )));
        }
        let mut pages = Vec::with_capacity(count);
        let mut warnings = Vec::new();
        for index in 0..count {
            match document.page(index) {
                Ok(page) => {
                    let mut content = content(&page, index, recognition.is_enabled())?;
                    if content.needs_recognition {
                        let pixels = recognition.pixels(page.width(), page.height(), content.finest_dpi);
                        match page.draw(recognition.dpi(), pixels.min(input.max_pixels)) {
                            Ok(image) => recognition.begin(Task { page: index + 1, image })?,
                            // The others may be read.
                            Err(error) => {
                                content.page.is_left_out = true;
                                warnings.push(error.to_string());
                            }
                        }
                    }
                    if content.is_cut {
                        warnings.push(format!(
                            "page {} has more than {MAX_WORDS} words: the others were left out",
                            index + 1
                        ));
                    }
                    pages.push(content.page);
                }
                Err(error) => {
                    warnings.push(error.to_string());
                    pages.push(PageContent {
                        number: index + 1,
                        is_left_out: true,
                        ..PageContent::default()
                    });
                }
            }
            recognition.progress(index + 1, count);
        }
        let recognised_by = recognition.finish_into(&mut pages, &mut warnings)?;
        let found = document.metadata();
        let mut metadata = Metadata::new();
        for (name, value) in [("title", found.title), ("author", found.author), ("subject", found.subject)] {
            metadata.insert(name.to_owned(), value.into());
        }
        metadata.insert("page_count".to_owned(), count.into());
        metadata.insert("pages".to_owned(), count.into());
        Ok(Reading { body: Body::Pages(pages), metadata, warnings, recognised_by })
    }
}

struct PageReading {
    page: PageContent,
    needs_recognition: bool,
    /// Pixels per inch of the finest image.
    finest_dpi: f32,
    /// Whether words were left out.
    is_cut: bool,
}

fn content(page: &Page<'_>, index: usize, may_recognise: bool) -> Result<PageReading, Failure> {
    let mut words = page.words()?;
    let is_cut = words.len() > MAX_WORDS;
    words.truncate(MAX_WORDS);
    let annotations = page.annotations();
    fields::add(&annotations.fields, &mut words);
    let beside = take_beside(&mut words, page.width(), page.height());
    let objects = page.objects();
    let letters: usize = words.iter().map(readable_letters).sum();
    let needs_recognition = may_recognise && letters < FEW_LETTERS && objects.is_visible;
    if needs_recognition {
        // The picture says what they mean.
        words.retain(|word| readable_letters(word) > 0);
    }
    let notes = unshown(&annotations.notes, &words);
    let mut page = PageContent {
        number: index + 1,
        width: page.width(),
        height: page.height(),
        words,
        beside,
        rules: objects.rules,
        images: objects.images,
        figures: Vec::new(),
        notes,
        is_left_out: false,
        confidence: None,
        turns: 0,
        slope: 0.0,
        is_mirrored: false,
    };
    // Words that are drawn are no figure: they are recognised.
    if !needs_recognition {
        page.find_figures(&objects.shapes);
    }
    Ok(PageReading { page, needs_recognition, finest_dpi: objects.finest_dpi, is_cut })
}

/// Takes out words beside the page, which are not seen: a printer's notes, and numbers of lines. If most words stand there,
/// the page is a cutting of text that is meant.
fn take_beside(words: &mut Vec<Word>, width: f32, height: f32) -> Vec<Word> {
    let is_seen = |word: &Word| {
        let area = word.area;
        area.right > 0.0 && area.left < width && area.bottom > 0.0 && area.top < height
    };
    if words.iter().filter(|word| !is_seen(word)).count() > words.len() / 2 {
        return Vec::new();
    }
    let (seen, beside) = std::mem::take(words).into_iter().partition(is_seen);
    *words = seen;
    beside
}

/// Comments that the page does not show: many repeat what they mark.
fn unshown(notes: &[String], words: &[Word]) -> Vec<String> {
    if notes.is_empty() {
        return Vec::new();
    }
    let letters = |text: &str| text.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>();
    let shown: String = words.iter().map(|word| letters(&word.text)).collect();
    notes.iter().filter(|note| !shown.contains(&letters(note))).cloned().collect()
}

/// Letters that mean something outside of the font that shows them.
fn readable_letters(word: &Word) -> usize {
    let is_private = |letter: &char| matches!(letter, '\u{E000}'..='\u{F8FF}' | '\u{FFFD}');
    word.text.chars().filter(|letter| !is_private(letter)).count()
}

impl From<PdfError> for Failure {
    fn from(error: PdfError) -> Self {
        match error {
            PdfError::Encrypted => Self::Encrypted,
            PdfError::Large => Self::too_much(error.to_string()),
            PdfError::Library { .. } => Self::unavailable("the PDF engine is not installed"),
            other => Self::corrupt(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use signalbox_pdf::{Area, Style};

    use super::*;

    fn word(text: &str, left: f32, top: f32) -> Word {
        let area = Area { left, top, right: left + 20.0, bottom: top + 10.0 };
        Word { text: text.to_owned(), area, baseline: top + 8.0, style: Style::default(), confidence: None }
    }

    #[test]
    fn words_beside_the_page_are_taken_out_unless_they_are_most_of_it() {
        let all = vec![
            word("Seen", 10.0, 10.0),
            word("31", 110.0, 10.0),
            word("too", 90.0, 30.0),
            word("Proof", 10.0, 101.0),
        ];
        let mut words = all.clone();
        let beside = take_beside(&mut words, 100.0, 100.0);
        assert_eq!(
            (words, beside),
            (vec![all[0].clone(), all[2].clone()], vec![all[1].clone(), all[3].clone()])
        );
        let mut words = all[1..].to_vec();
        assert_eq!(take_beside(&mut words, 100.0, 100.0), []);
        assert_eq!(words.len(), 3);
    }
}
