//! Documents, as the rest of the system uses them: who reads a document is decided here.

use std::{path::PathBuf, time::Duration};

use signalbox_config::Extraction as Config;
use tokio::io::AsyncRead;

use crate::{
    engines::Places,
    extraction::Extraction,
    failure::Failure,
    locate,
    options::{Engine, OcrEngine, Options, Processor},
    reader::Limits,
    sandbox::{Job, Pool, PoolError, PoolOptions, Progress},
};

/// What makes the program a parser.
const PARSE: &str = "parse-documents";

/// Reads documents, by children of this process or by services.
#[derive(Clone)]
pub struct Documents {
    pool: Pool,
}

/// What works on this installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Extraction engines.
    pub engines: Vec<&'static str>,
    /// Recognising engines.
    pub ocr_engines: Vec<&'static str>,
    /// Processors.
    pub processors: Vec<&'static str>,
    /// ISO 639-3 codes of the languages that can be recognised.
    pub languages: Vec<String>,
    /// Types that are read.
    pub mime_types: Vec<String>,
    /// What is missing, and what to do about it.
    pub notes: Vec<String>,
}

/// The bytes of a document.
pub struct Source<'a, R> {
    /// From the beginning.
    pub bytes: R,
    /// How many.
    pub length: u64,
    /// What it is called; tells kinds of plain text apart.
    pub name: &'a str,
}

impl Documents {
    /// Starts the processes that parse: `program` is the one that has the subcommand for it.
    ///
    /// # Errors
    /// [`PoolError`].
    pub async fn start(config: &Config, program: PathBuf) -> Result<Self, PoolError> {
        let configured = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        let places = Places {
            pdfium: locate::pdfium(configured(&config.pdfium).as_deref()),
            tessdata: locate::tessdata(configured(&config.tessdata).as_deref()),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits {
            memory_bytes: config.memory_mb << 20,
            cpu_seconds: config.cpu_seconds,
            wall_seconds: config.wall_seconds,
            max_pages: config.max_pages,
            max_pixels: config.max_megapixels.saturating_mul(1_000_000),
            threads: cores,
        };
        let options = PoolOptions {
            program,
            arguments: vec![PARSE.to_owned()],
            places,
            limits,
            children: if config.parsers == 0 { cores } else { config.parsers },
            patience: Duration::from_secs(config.patience_seconds),
        };
        Ok(Self { pool: Pool::start(options).await? })
    }

    /// How many documents are read at the same time.
    pub fn capacity(&self) -> usize {
        self.pool.capacity()
    }

    /// What works now.
    pub async fn offer(&self) -> Offer {
        let abilities = self.pool.abilities();
        let mut offer = Offer {
            engines: vec![Engine::Auto.as_str()],
            ocr_engines: vec![OcrEngine::None.as_str()],
            processors: vec![Processor::Cleanup.as_str(), Processor::Structure.as_str()],
            languages: abilities.languages.clone(),
            mime_types: abilities.mime_types.clone(),
            notes: Vec::new(),
        };
        match &abilities.pdfium {
            Ok(()) => offer.engines.push(Engine::Pdfium.as_str()),
            Err(reason) => offer.notes.push(format!("PDFs are not read: {reason}")),
        }
        offer.engines.push(Engine::Native.as_str());
        if abilities.languages.is_empty() {
            let note = "text in pictures is not recognised: Tesseract has no language data; install tesseract-ocr-deu and \
                tesseract-ocr-eng (tools/bootstrap does), or name their folder in extraction.tessdata";
            offer.notes.push(note.to_owned());
        } else {
            offer.ocr_engines.push(OcrEngine::Tesseract.as_str());
        }
        offer
    }

    /// Checks what `options` ask for against what is there, before anything is read.
    ///
    /// # Errors
    /// [`Failure::Unavailable`] and [`Failure::Language`].
    pub fn check(&self, options: &Options) -> Result<(), Failure> {
        let abilities = self.pool.abilities();
        let missing =
            |what: &str| Failure::unavailable(format!("{what} is not installed or not configured here"));
        match options.engine {
            Engine::Pdfium if abilities.pdfium.is_err() => {
                return Err(missing("the extraction engine pdfium"));
            }
            Engine::Tika => return Err(missing("the extraction engine tika")),
            _ => {}
        }
        let languages = &abilities.languages;
        match options.ocr_engine {
            OcrEngine::GoogleVision => Err(missing("the OCR engine google_vision")),
            // Without Tesseract, digital documents are read all the same.
            OcrEngine::Tesseract if !languages.is_empty() && !languages.contains(&options.language) => {
                Err(Failure::Language { language: options.language.clone(), supported: languages.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn extract<R: AsyncRead + Unpin>(
        &self,
        source: Source<'_, R>,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Extraction, Failure> {
        self.check(options)?;
        let Source { bytes, length, name } = source;
        let job = Job { bytes, length, name, mime_type: None, options, recognise: None, progress };
        self.pool.extract(job).await
    }
}
