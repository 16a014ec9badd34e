use std::cell::LazyCell;

use signalbox_pdf::{Layer, Library, MAX_WORDS, Page, PdfError, RgbImage, UNREADABLE, Word};

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
/// How far baselines of one line are apart, in points, how wide a space is, and how far lines of a text that runs over the edge of
/// its page are apart, the first of them and the others, in sizes of the font; by how much their size may differ.
const LEVEL: f32 = 2.0;
const SPACE: f32 = 0.7;
const NEXT_LINE: f32 = 1.0;
const LINES: f32 = 3.0;
const SAME_SIZE: f32 = 0.2;

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
        let is_damaged = LazyCell::new(|| document.has_damaged_streams());
        for index in 0..count {
            match document.page(index) {
                Ok(page) => {
                    let mut content = content(&page, index, recognition.is_enabled())?;
                    if content.is_empty && *is_damaged {
                        content.page.is_left_out = true;
                        warnings.push(format!(
                            "page {} shows nothing, and the file is damaged: its content may be lost",
                            index + 1
                        ));
                    }
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
                    warnings.extend(warning_of_unreadable(&content, recognition.is_enabled()));
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
        if pages.iter().all(|page| page.is_left_out && page.words.is_empty()) && *is_damaged {
            return Err(Failure::corrupt("the PDF is damaged: none of its pages can be read"));
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
    /// Whether the page has nothing to see, and nothing is beside it.
    is_empty: bool,
    /// Pixels per inch of the finest image.
    finest_dpi: f32,
    /// Whether words were left out.
    is_cut: bool,
    /// Letters whose fonts do not say which ones they are.
    unreadable: usize,
}

fn content(page: &Page<'_>, index: usize, may_recognise: bool) -> Result<PageReading, Failure> {
    let mut words = page.words()?;
    let annotations = page.annotations();
    fields::add(&annotations.fields, &mut words, MAX_WORDS);
    let is_cut = words.len() > MAX_WORDS;
    words.truncate(MAX_WORDS);
    let beside = take_beside(&mut words, page.width(), page.height());
    let objects = page.objects();
    let letters: usize = words.iter().map(readable_letters).sum();
    let unreadable: usize = words.iter().map(unreadable_letters).sum();
    let is_read = letters >= FEW_LETTERS && letters >= unreadable;
    let needs_recognition = may_recognise && !is_read && objects.is_visible;
    if needs_recognition {
        // The picture says what they mean.
        words.retain(|word| readable_letters(word) > 0 && unreadable_letters(word) == 0);
    }
    let is_empty = !objects.is_visible && words.is_empty() && beside.is_empty();
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
        runs: Vec::new(),
    };
    // Words that are drawn are no figure: they are recognised.
    if !needs_recognition {
        page.find_figures(&objects.shapes);
    }
    Ok(PageReading { page, needs_recognition, is_empty, finest_dpi: objects.finest_dpi, is_cut, unreadable })
}

/// Takes out words beside the page, which are not seen: a printer's notes, and numbers of lines. Text that runs over an edge of the
/// page stays. If most words stand there, the page is a cutting of text that is meant.
fn take_beside(words: &mut Vec<Word>, width: f32, height: f32) -> Vec<Word> {
    let is_on_page = |word: &Word| {
        let area = word.area;
        area.right > 0.0 && area.left < width && area.bottom > 0.0 && area.top < height
    };
    let mut is_seen: Vec<bool> = words.iter().map(is_on_page).collect();
    let beside = is_seen.iter().filter(|is_seen| !**is_seen).count();
    if beside == 0 || beside > words.len() / 2 {
        return Vec::new();
    }
    continue_lines(words, &mut is_seen);
    continue_down(words, &mut is_seen, width, height);
    let mut is_seen = is_seen.into_iter();
    let (seen, beside) = std::mem::take(words).into_iter().partition(|_| is_seen.next().unwrap_or_default());
    *words = seen;
    beside
}

/// Takes words for seen that follow those that are on their line.
fn continue_lines(words: &[Word], is_seen: &mut [bool]) {
    let line = |index: &usize| (words[*index].baseline / LEVEL).round() as i64;
    let mut order: Vec<usize> = (0..words.len()).collect();
    order.sort_by(|one, other| {
        line(one).cmp(&line(other)).then(words[*one].area.left.total_cmp(&words[*other].area.left))
    });
    for pair in order.windows(2) {
        let (word, next) = (&words[pair[0]], &words[pair[1]]);
        let space = (next.area.left - word.area.right) / word.style.size.max(1.0);
        is_seen[pair[1]] |=
            is_seen[pair[0]] && line(&pair[0]) == line(&pair[1]) && (0.0..SPACE).contains(&space);
    }
}

/// Takes lines for seen that follow the last line of the page below its edge.
fn continue_down(words: &[Word], is_seen: &mut [bool], width: f32, height: f32) {
    let seen = words.iter().zip(&*is_seen).filter(|(_, is_seen)| **is_seen).map(|(word, _)| word);
    let Some(last) = seen.max_by(|one, other| one.area.bottom.total_cmp(&other.area.bottom)) else { return };
    let (mut bottom, mut most) = (last.area.bottom, NEXT_LINE);
    let is_below = |word: &Word| word.area.top >= height && word.area.right > 0.0 && word.area.left < width;
    let mut below: Vec<usize> =
        (0..words.len()).filter(|index| !is_seen[*index] && is_below(&words[*index])).collect();
    below.sort_by(|one, other| words[*one].area.top.total_cmp(&words[*other].area.top));
    for index in below {
        let (word, size) = (&words[index], last.style.size.max(1.0));
        let is_first = most == NEXT_LINE;
        if word.area.top - bottom > most * size
            || (is_first && (word.style.size - size).abs() > SAME_SIZE * size)
        {
            return;
        }
        is_seen[index] = true;
        (bottom, most) = (bottom.max(word.area.bottom), LINES);
    }
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

fn unreadable_letters(word: &Word) -> usize {
    word.text.chars().filter(|letter| *letter == UNREADABLE).count()
}

/// A warning about letters that are in the text as [`UNREADABLE`].
fn warning_of_unreadable(content: &PageReading, may_recognise: bool) -> Option<String> {
    if content.unreadable == 0 || content.needs_recognition {
        return None;
    }
    let advice = if may_recognise { "" } else { "; with recognition the page may be read" };
    Some(format!(
        "page {} has {} letters whose font does not say which ones they are: each is written as {UNREADABLE}{advice}",
        content.page.number, content.unreadable
    ))
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

    #[test]
    fn text_that_runs_over_an_edge_of_its_page_stays() {
        let mut words: Vec<Word> = (0..8).map(|line| word("text", 10.0, 10.0 + 12.0 * line as f32)).collect();
        words.extend((0..4).map(|line| word("more", 10.0, 106.0 + 12.0 * line as f32)));
        words.push(word("caption", 30.0, 176.0));
        words.extend([word("long", 70.0, 34.0), word("line", 95.0, 34.0), word("runs", 119.0, 34.0)]);
        // Notes of a printer.
        words.extend([word("proof", 150.0, 34.0), word("2.indd", 10.0, 230.0)]);
        words.iter_mut().for_each(|word| word.style.size = 10.0);
        let all = words.len();
        let beside = take_beside(&mut words, 100.0, 100.0);
        let texts: Vec<&str> = beside.iter().map(|word| word.text.as_str()).collect();
        assert_eq!((texts, words.len()), (vec!["proof", "2.indd"], all - 2));
    }
}
