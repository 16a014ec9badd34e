//! Documents to be read, and the settings of those that read them.

use std::{path::PathBuf, time::Duration};

use super::{FairPlaces, Share};
use crate::{
    engines::Places,
    extraction::{Parsed, Searchable},
    options::{OcrEngine, Options},
    reader::Limits,
    services::GoogleVision,
};

/// The settings of a pool.
#[derive(Debug, Clone)]
pub(crate) struct PoolOptions {
    /// The program that parses.
    pub(crate) program: PathBuf,
    /// The arguments that make the program a parser.
    pub(crate) arguments: Vec<String>,
    /// Where its libraries are.
    pub(crate) places: Places,
    /// Limits of one document.
    pub(crate) limits: Limits,
    /// Children, and so documents, at the same time.
    pub(crate) children: usize,
    /// How long a document may wait for a child.
    pub(crate) queue_timeout: Duration,
}

/// Called with the number of pages done and of all pages.
pub type Progress<'a> = &'a mut (dyn FnMut(usize, usize) + Send);

/// The reason why a document is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Its text.
    Text,
    /// A PDF whose recognised words can be found.
    Searchable,
    /// A picture of a page.
    Picture {
        /// From 1.
        page: usize,
        /// Pixels.
        width: u32,
    },
}

/// The result of parsing.
pub(crate) enum Output {
    Text(Box<Parsed>),
    Searchable(Searchable),
    /// A PNG; none if there is no such page.
    Picture(Option<Vec<u8>>),
}

impl Purpose {
    /// How to send a document that takes too long with `options`.
    pub(super) fn advice(self, options: &Options) -> &'static str {
        match self {
            Self::Text if options.ocr_engine != OcrEngine::None => {
                "split the document, or leave recognition out with ocr_engine=none"
            }
            Self::Text | Self::Searchable => "split the document",
            Self::Picture { .. } => "ask for a narrower picture, or split the document",
        }
    }
}

/// A document to be read.
pub(crate) struct Job<'a, R> {
    pub(crate) purpose: Purpose,
    /// Its bytes.
    pub(crate) bytes: R,
    /// How many.
    pub(crate) length: u64,
    /// Name of the file.
    pub(crate) name: &'a str,
    /// The type of the bytes, if it cannot be detected.
    pub(crate) mime_type: Option<&'static str>,
    pub(crate) options: &'a Options,
    /// The service that recognises, if the options name one.
    pub(crate) recognise: Option<&'a GoogleVision>,
    /// The principal that holds the place.
    pub(crate) share: &'a Share,
    pub(crate) progress: Progress<'a>,
}

/// The places of documents whose pages are recognised: seconds a page.
pub(super) struct Recognition {
    pub(super) places: FairPlaces,
    /// For those that wait for one. Each keeps its process and its bytes meanwhile; when these are taken too, a document
    /// waits at its place for reading.
    pub(super) waiting: FairPlaces,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_nothing_that_is_refused() {
        let with = |ocr_engine| Options { ocr_engine, ..Options::default() };
        let recognising = with(OcrEngine::Tesseract);
        assert!(Purpose::Text.advice(&recognising).contains("ocr_engine=none"));
        let picture = Purpose::Picture { page: 1, width: 100 };
        for (purpose, options) in [
            (Purpose::Text, &with(OcrEngine::None)),
            (Purpose::Searchable, &recognising),
            (picture, &recognising),
        ] {
            let advice = purpose.advice(options);
            assert!(
                advice.contains("split the document") && !advice.contains("recognition"),
                "{purpose:?}: {advice}"
            );
        }
    }
}
