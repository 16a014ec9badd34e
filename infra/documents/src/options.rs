//! The options of an extraction.

use serde::{Deserialize, Serialize};

/// How the text is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// With headings, lists and tables.
    #[default]
    Markdown,
    /// `{content, metadata, blocks, pages}`.
    Json,
    /// Words alone.
    Plaintext,
    /// JSON after the schema of DoclingDocument.
    Docling,
    /// HTML with the places of lines and words.
    Hocr,
    /// XML with the places of lines and words.
    Alto,
}

/// The engine that reads the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The first engine that reads this type: in-process first, then Tika.
    #[default]
    Auto,
    /// Apache Tika, a server.
    Tika,
    /// PDF, in-process.
    Pdfium,
    /// The same under the name that other services give it; answers repeat what was asked for.
    Pymupdf,
    /// Office, web, mail, books and text, in-process; images through recognition.
    Native,
}

/// The engine that recognises text in images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OcrEngine {
    /// On this machine.
    #[default]
    Tesseract,
    /// Google's service.
    GoogleVision,
    /// No recognition.
    None,
}

/// The steps applied to the text, in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processor {
    /// Control characters, spaces, divided words.
    Cleanup,
    /// Headings, lists, tables, paragraphs.
    Structure,
    /// A language model.
    Llm,
}

/// All options of one extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How the text is written.
    pub output_format: OutputFormat,
    pub engine: Engine,
    pub ocr_engine: OcrEngine,
    /// ISO 639-3 code of the text's language.
    pub language: String,
    pub processors: Vec<Processor>,
    /// Whether Markdown starts with the document's metadata.
    pub front_matter: bool,
    /// Whether the blocks of JSON have their words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Whether JSON has the document in chunks, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chunks: bool,
    /// The most words of a chunk.
    #[serde(default = "default_chunk_words", skip_serializing_if = "is_default_chunk_words")]
    pub chunk_words: usize,
    /// Whether the text is given in passages, too, by which it is searched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passages: bool,
}

/// The most words of a chunk if nothing else is asked for.
pub const CHUNK_WORDS: usize = 400;

fn default_chunk_words() -> usize {
    CHUNK_WORDS
}

fn is_default_chunk_words(words: &usize) -> bool {
    *words == CHUNK_WORDS
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output_format: OutputFormat::default(),
            engine: Engine::default(),
            ocr_engine: OcrEngine::default(),
            language: "deu".to_owned(),
            processors: vec![Processor::Cleanup, Processor::Structure],
            front_matter: false,
            words: false,
            chunks: false,
            chunk_words: CHUNK_WORDS,
            passages: false,
        }
    }
}

impl OutputFormat {
    /// The formats of the specification.
    pub const ALL: [Self; 3] = [Self::Markdown, Self::Json, Self::Plaintext];
    /// Formats beyond it.
    pub const MORE: [Self; 3] = [Self::Docling, Self::Hocr, Self::Alto];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Plaintext => "plaintext",
            Self::Docling => "docling",
            Self::Hocr => "hocr",
            Self::Alto => "alto",
        }
    }

    /// The one called `word`.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::MORE).find(|known| known.as_str() == word)
    }
}

impl Engine {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tika => "tika",
            Self::Pdfium => "pdfium",
            Self::Pymupdf => "pymupdf",
            Self::Native => "native",
        }
    }

    /// The one called `word`.
    pub fn named(word: &str) -> Option<Self> {
        let known = [Self::Auto, Self::Tika, Self::Pdfium, Self::Pymupdf, Self::Native];
        known.into_iter().find(|known| known.as_str() == word)
    }
}

impl OcrEngine {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tesseract => "tesseract",
            Self::GoogleVision => "google_vision",
            Self::None => "none",
        }
    }

    /// The one called `word`.
    pub fn named(word: &str) -> Option<Self> {
        [Self::Tesseract, Self::GoogleVision, Self::None].into_iter().find(|known| known.as_str() == word)
    }
}

impl Processor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cleanup, Self::Structure, Self::Llm];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cleanup => "cleanup",
            Self::Structure => "structure",
            Self::Llm => "llm",
        }
    }

    /// The one called `word`.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// Languages with their codes of two letters and of three.
const LANGUAGES: [(&str, &str); 40] = [
    ("ar", "ara"),
    ("bg", "bul"),
    ("bs", "bos"),
    ("ca", "cat"),
    ("cs", "ces"),
    ("cy", "cym"),
    ("da", "dan"),
    ("de", "deu"),
    ("el", "ell"),
    ("en", "eng"),
    ("es", "spa"),
    ("et", "est"),
    ("eu", "eus"),
    ("fa", "fas"),
    ("fi", "fin"),
    ("fr", "fra"),
    ("ga", "gle"),
    ("he", "heb"),
    ("hi", "hin"),
    ("hr", "hrv"),
    ("hu", "hun"),
    ("is", "isl"),
    ("it", "ita"),
    ("ja", "jpn"),
    ("ko", "kor"),
    ("la", "lat"),
    ("lt", "lit"),
    ("lv", "lav"),
    ("nl", "nld"),
    ("no", "nor"),
    ("pl", "pol"),
    ("pt", "por"),
    ("ro", "ron"),
    ("ru", "rus"),
    ("sk", "slk"),
    ("sl", "slv"),
    ("sv", "swe"),
    ("tr", "tur"),
    ("uk", "ukr"),
    ("vi", "vie"),
];

/// The codes of three letters of all languages that are known here.
pub(crate) fn long_codes() -> impl Iterator<Item = &'static str> {
    LANGUAGES.iter().map(|(_, long)| *long)
}

/// The code of two letters of the language whose code of three letters is `long`.
pub(crate) fn short_code(long: &str) -> Option<&'static str> {
    LANGUAGES.iter().find(|(_, known)| *known == long).map(|(short, _)| *short)
}

/// The code of three letters that `code`, of two or three letters, means.
pub fn language(code: &str) -> Option<String> {
    let code = code.trim().to_ascii_lowercase();
    let is_code = code.bytes().all(|byte| byte.is_ascii_lowercase());
    match code.len() {
        3 if is_code => Some(code),
        // An unknown one stays, and is refused with those that are supported.
        2 if is_code => {
            let known = LANGUAGES.iter().find(|(short, _)| *short == code);
            Some(known.map_or(code, |(_, long)| (*long).to_owned()))
        }
        _ => None,
    }
}
