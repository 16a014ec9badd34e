//! Text recognition in images.

mod admitted;
mod hocr;
mod page_watch;
mod paper;
mod remote;
mod tesseract;
pub(crate) mod vision;

use serde::{Deserialize, Serialize};
use signalbox_pdf::{Area, GrayImage, Style, Word};

pub(crate) use admitted::Admitted;
pub(crate) use remote::{AT_ONCE, Link, Remote};
pub(crate) use tesseract::{Tesseract, installed_languages};

use crate::{failure::Failure, layout::PageContent};

/// Pixels per inch at which pages are drawn to be recognised.
const DPI: u32 = 300;
/// Pixels of the largest picture of a page: a sheet of A1.
const LARGE: f32 = 70e6;
/// Pixels of a sheet of A4, the least limit: a page that claims to be larger may be a scan of one.
const SHEET: f32 = 8.7e6;
/// Pictures are drawn so many times finer than they are.
const FINER: f32 = 2.0;

/// A picture of a page.
#[derive(Debug)]
pub(crate) struct Task {
    /// From 1.
    pub(crate) page: usize,
    pub(crate) image: GrayImage,
}

/// A picture of a page on its way to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// From 1.
    pub page: usize,
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Pixels per inch.
    pub dpi: u32,
    /// From 0, black, to 255, white.
    pub pixels: Vec<u8>,
}

/// The recognised content of a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recognised {
    /// From 1.
    pub page: usize,
    /// Width of the picture in points.
    pub width: f32,
    /// Height of the picture in points.
    pub height: f32,
    /// Quarter turns clockwise by which the picture was turned to be read.
    pub turns: u32,
    /// By which its lines fell to the right, before its words were made to stand on level ones.
    #[serde(default)]
    pub slope: f32,
    /// In reading order as far as the recogniser knows it.
    pub words: Vec<RecognisedWord>,
}

/// A word that was recognised.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecognisedWord {
    /// Its letters.
    pub text: String,
    /// 0 to 1.
    pub confidence: f32,
    /// Left, top, right, bottom, in points.
    pub area: (f32, f32, f32, f32),
    /// Where its letters stand, in points from the top.
    pub baseline: f32,
    /// Size of its letters in points.
    pub size: f32,
    /// How much of its area is ink, 0 to 1; 0 if that is not known.
    pub ink: f32,
}

/// Recognises text in pictures.
pub(crate) trait Recogniser {
    /// The word for it in requests and answers.
    fn name(&self) -> &'static str;
    /// ISO 639-3 codes of the languages that it knows.
    fn languages(&self) -> &[String];
    /// Takes a picture; may return before it is recognised.
    fn begin(&mut self, task: Task, language: &str) -> Result<(), Failure>;
    /// returns all that was recognised since the last call.
    fn finish(&mut self) -> Result<Vec<Recognised>, Failure>;
    /// Numbers of the pages that took too long since the last call.
    fn left_out(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// Forgets what has begun.
    fn abandon(&mut self);
}

/// How one document is recognised.
pub(crate) struct Recognition<'a> {
    recogniser: Option<&'a mut dyn Recogniser>,
    language: String,
    begun: usize,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl<'a> Recognition<'a> {
    /// `engine` is `None`, or the language is known.
    pub(crate) fn new(
        recogniser: Option<&'a mut dyn Recogniser>,
        language: &str,
        progress: &'a mut dyn FnMut(usize, usize),
    ) -> Result<Self, Failure> {
        if let Some(recogniser) = &recogniser {
            let supported = recogniser.languages();
            if !language.split('+').all(|one| supported.iter().any(|known| known == one)) {
                return Err(Failure::Language {
                    language: language.to_owned(),
                    supported: supported.to_vec(),
                });
            }
        }
        Ok(Self { recogniser, language: language.to_owned(), begun: 0, progress })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.recogniser.is_some()
    }

    pub(crate) fn dpi(&self) -> u32 {
        DPI
    }

    /// Pixels of a page of so many points that are looked at; `finest_dpi` is that of its images. A page may say that it is as
    /// large as a house: more than its images have say nothing, and letters of a hundred pixels are taken for drawings.
    pub(crate) fn pixels(&self, width: f32, height: f32, finest_dpi: f32) -> u32 {
        let inches = width * height / (72.0 * 72.0);
        let at = |dpi: f32| inches * dpi * dpi;
        if at(DPI as f32) <= LARGE || finest_dpi <= 0.0 {
            return LARGE as u32;
        }
        at(FINER * finest_dpi).clamp(SHEET, LARGE) as u32
    }

    pub(crate) fn begin(&mut self, task: Task) -> Result<(), Failure> {
        let Some(recogniser) = &mut self.recogniser else { return Ok(()) };
        self.begun += 1;
        recogniser.begin(task, &self.language)
    }

    pub(crate) fn progress(&mut self, done: usize, all: usize) {
        (self.progress)(done, all);
    }

    /// Waits for all pages that have begun and puts their words in; says who recognised them.
    pub(crate) fn finish_into(
        &mut self,
        pages: &mut [PageContent],
        warnings: &mut Vec<String>,
    ) -> Result<Option<&'static str>, Failure> {
        let Some(recogniser) = self.recogniser.as_mut().filter(|_| self.begun > 0) else { return Ok(None) };
        for recognised in recogniser.finish()? {
            let Some(page) = recognised.page.checked_sub(1).and_then(|index| pages.get_mut(index)) else {
                continue;
            };
            if recognised.words.is_empty() {
                warnings.push(format!("no text was recognised on page {}", page.number));
            }
            add(recognised, page);
        }
        for page in recogniser.left_out() {
            warnings.push(tesseract::left_out(page));
            if let Some(page) = page.checked_sub(1).and_then(|index| pages.get_mut(index)) {
                page.is_left_out = true;
            }
        }
        self.begun = 0;
        Ok(Some(recogniser.name()))
    }
}

/// Adds what was recognised to the text that `page` has.
fn add(recognised: Recognised, page: &mut PageContent) {
    page.confidence = Some(confidence(&recognised.words));
    // A page that lay on its side has been turned.
    page.turn(recognised.turns);
    (page.turns, page.slope) = (recognised.turns % 4, recognised.slope);
    (page.width, page.height) = (recognised.width, recognised.height);
    let bold = bold_lines(&recognised.words);
    let words = recognised.words.into_iter().zip(bold).map(|(recognised, bold)| word(recognised, bold));
    let mut words: Vec<Word> = words.collect();
    restore_bullets(&mut words);
    words.retain(|word| !page.words.iter().any(|own| is_same_place(own, word)));
    page.words.append(&mut words);
}

/// How much of the smaller of two words both cover to be the same letters, and how much larger one of them can be.
const COVERED: f32 = 0.5;
const LARGER: f32 = 4.0;

/// Whether both show the same letters. Text of no size, or over half a page, hides nothing.
fn is_same_place(own: &Word, recognised: &Word) -> bool {
    let (one, other) = (own.area, recognised.area);
    let both = Area {
        left: one.left.max(other.left),
        top: one.top.max(other.top),
        right: one.right.min(other.right),
        bottom: one.bottom.min(other.bottom),
    };
    let size = |area: Area| area.width().max(0.0) * area.height().max(0.0);
    let (least, most) = (size(one).min(size(other)), size(one).max(size(other)));
    both.width() > 0.0 && size(both) > COVERED * least && most < LARGER * least
}

/// The mean, weighted by letters; 0 where nothing was recognised.
fn confidence(words: &[RecognisedWord]) -> f32 {
    let letters = |word: &RecognisedWord| word.text.chars().count() as f32;
    let all: f32 = words.iter().map(letters).sum();
    if all > 0.0 { words.iter().map(|word| word.confidence * letters(word)).sum::<f32>() / all } else { 0.0 }
}

fn word(word: RecognisedWord, bold: bool) -> Word {
    let (left, top, right, bottom) = word.area;
    Word {
        text: word.text,
        area: Area { left, top, right, bottom },
        baseline: word.baseline,
        style: Style { size: word.size, bold, ..Style::default() },
        confidence: Some(word.confidence),
    }
}

/// Lines with so much more ink than the usual are bold.
const BOLD: f32 = 1.22;

/// By word: whether its line is bold, by how much ink there is compared to the page.
fn bold_lines(words: &[RecognisedWord]) -> Vec<bool> {
    let is_same_line =
        |one: &RecognisedWord, other: &RecognisedWord| (one.baseline - other.baseline).abs() < 0.3 * one.size;
    let mut inks = Vec::with_capacity(words.len());
    for line in words.chunk_by(is_same_line) {
        let width = |word: &RecognisedWord| word.area.2 - word.area.0;
        let all: f32 = line.iter().map(width).sum();
        let ink = line.iter().map(|word| word.ink * width(word)).sum::<f32>() / all.max(1.0);
        inks.extend(std::iter::repeat_n(ink, line.len()));
    }
    let mut sorted = inks.clone();
    sorted.sort_by(f32::total_cmp);
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    inks.into_iter().map(|ink| usual > 0.0 && ink > BOLD * usual).collect()
}

/// How recognition sees bullets.
const BULLETS: [&str; 13] = ["e", "o", "¢", "«", "»", "°", "©", "®", "*", "+", "·", "«e", "e."];
/// Between a bullet and its text there is more than a space, in sizes of the font.
const BULLET_GAP: f32 = 0.6;

/// Makes a bullet of what stands alone before a line and looks like one.
fn restore_bullets(words: &mut [Word]) {
    for index in 0..words.len().saturating_sub(1) {
        let is_level =
            |one: &Word, other: &Word| (one.baseline - other.baseline).abs() < 0.3 * one.style.size;
        let is_first = index == 0 || !is_level(&words[index - 1], &words[index]);
        let (word, next) = (&words[index], &words[index + 1]);
        let gap = next.area.left - word.area.right;
        let is_apart = is_level(word, next) && gap > BULLET_GAP * word.style.size;
        if is_first && is_apart && BULLETS.contains(&word.text.as_str()) {
            words[index].text = "•".to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_as_large_as_a_house_is_looked_at_as_a_sheet() {
        let mut progress = |_: usize, _: usize| {};
        let recognition = Recognition::new(None, "eng", &mut progress).unwrap();
        // A4 and A1, whatever is on them.
        for (width, height, dpi) in [(595.0, 842.0, 20.0), (595.0, 842.0, 1200.0), (1684.0, 2384.0, 50.0)] {
            assert_eq!(recognition.pixels(width, height, dpi), LARGE as u32);
        }
        // 200 inches each way: the scan of a sheet, a picture as fine as that, and drawings.
        let house = |dpi| recognition.pixels(14_400.0, 14_400.0, dpi);
        assert_eq!((house(6.2), house(300.0), house(0.0)), (SHEET as u32, LARGE as u32, LARGE as u32));
        assert_eq!(house(10.0), 16_000_000);
    }

    fn own(text: &str, left: f32, top: f32) -> Word {
        Word {
            text: text.to_owned(),
            area: Area { left, top, right: left + 50.0, bottom: top + 10.0 },
            baseline: top + 8.0,
            style: Style { size: 10.0, ..Style::default() },
            confidence: None,
        }
    }

    fn seen(text: &str, left: f32, top: f32) -> RecognisedWord {
        let area = (left, top, left + 50.0, top + 10.0);
        let text = text.to_owned();
        RecognisedWord { text, confidence: 0.9, area, baseline: top + 8.0, size: 10.0, ink: 0.2 }
    }

    fn added(page: &mut PageContent, turns: u32, words: Vec<RecognisedWord>) -> Vec<&str> {
        let (width, height) = if turns.is_multiple_of(2) { (600.0, 800.0) } else { (800.0, 600.0) };
        add(Recognised { page: 1, width, height, turns, words, ..Recognised::default() }, page);
        page.words.iter().map(|word| word.text.as_str()).collect()
    }

    #[test]
    fn recognition_adds_to_the_text_of_a_page() {
        let mut page = PageContent { width: 600.0, height: 800.0, ..PageContent::default() };
        page.words = vec![own("Received", 400.0, 20.0), own("12.3.", 460.0, 20.0)];
        let words =
            vec![seen("Recelved", 401.0, 21.0), seen("12.8.", 459.0, 19.0), seen("Letter", 50.0, 100.0)];
        assert_eq!(added(&mut page, 0, words), ["Received", "12.3.", "Letter"]);
        assert!(page.confidence.is_some_and(|sure| (sure - 0.9).abs() < 0.001));
    }

    #[test]
    fn text_of_a_turned_page_turns_with_it() {
        let mut page = PageContent { width: 600.0, height: 800.0, ..PageContent::default() };
        page.words = vec![own("Stamp", 100.0, 20.0)];
        assert_eq!(added(&mut page, 1, vec![seen("Letter", 50.0, 100.0)]), ["Stamp", "Letter"]);
        assert_eq!(page.words[0].area, Area { left: 770.0, top: 100.0, right: 780.0, bottom: 150.0 });
        assert!(page.words[0].style.turned && !page.words[1].style.turned);
    }

    #[test]
    fn text_without_a_place_hides_nothing() {
        let mut page = PageContent { width: 600.0, height: 800.0, ..PageContent::default() };
        page.words = vec![own("", 50.0, 100.0), own("page", 0.0, 0.0)];
        page.words[0].area = Area { left: 60.0, top: 105.0, right: 60.0, bottom: 105.0 };
        page.words[1].area = Area { left: 0.0, top: 0.0, right: 600.0, bottom: 800.0 };
        assert_eq!(added(&mut page, 0, vec![seen("Letter", 50.0, 100.0)]), ["", "page", "Letter"]);
    }
}
