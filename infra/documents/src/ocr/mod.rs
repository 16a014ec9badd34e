//! Who recognises text in pictures.

mod hocr;
mod remote;
mod tesseract;
pub(crate) mod vision;

use serde::{Deserialize, Serialize};
use signalbox_pdf::{Area, GrayImage, Style, Word};

pub(crate) use remote::{AT_ONCE, Link, Remote};
pub(crate) use tesseract::{Tesseract, installed_languages};

use crate::{failure::Failure, layout::PageContent};

/// Pixels per inch at which pages are drawn to be recognised.
const DPI: u32 = 300;

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

/// What was recognised on a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recognised {
    /// From 1.
    pub page: usize,
    /// Width of the picture in points.
    pub width: f32,
    /// Height of the picture in points.
    pub height: f32,
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
    /// Gives back all that was recognised since the last call.
    fn finish(&mut self) -> Result<Vec<Recognised>, Failure>;
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
    /// With nobody, or in a language that is known.
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

    pub(crate) fn is_wanted(&self) -> bool {
        self.recogniser.is_some()
    }

    pub(crate) fn dpi(&self) -> u32 {
        DPI
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
            page.confidence = Some(confidence(&recognised.words));
            if recognised.words.is_empty() {
                warnings.push(format!("no text was recognised on page {}", page.number));
            }
            // A page that lay on its side has been turned.
            (page.width, page.height) = (recognised.width, recognised.height);
            let bold = bold_lines(&recognised.words);
            let words =
                recognised.words.into_iter().zip(bold).map(|(recognised, bold)| word(recognised, bold));
            page.words = words.collect();
            restore_bullets(&mut page.words);
        }
        self.begun = 0;
        Ok(Some(recogniser.name()))
    }
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
        let begins = index == 0 || !is_level(&words[index - 1], &words[index]);
        let (word, next) = (&words[index], &words[index + 1]);
        let gap = next.area.left - word.area.right;
        let is_apart = is_level(word, next) && gap > BULLET_GAP * word.style.size;
        if begins && is_apart && BULLETS.contains(&word.text.as_str()) {
            words[index].text = "•".to_owned();
        }
    }
}
