//! Documents, as the rest of the system uses them: chooses the engine or service for each document.

use signalbox_boxed::boxed;
use std::{path::PathBuf, sync::Arc};

use signalbox_config::Extraction as Config;
use signalbox_confinement::Protection;
use tokio::io::{AsyncRead, AsyncSeek, AsyncSeekExt};

use crate::{
    cleanup::cleanup,
    detect,
    engines::Places,
    extraction::{Extraction, Parsed, Searchable},
    failure::Failure,
    locate,
    options::{Engine, OcrEngine, Options, Processor},
    probe::TypeProbe,
    reader::Limits,
    sandbox::{Job, Output, Pool, PoolError, PoolOptions, Progress, Purpose, Share},
    services::{GoogleVision, Llm, Page, ServiceError, Tika},
};

/// The argument that makes the program a parser.
const PARSE: &str = "parse-documents";

/// Reads documents, by children of this process or by services.
#[derive(Clone)]
pub struct Documents {
    pool: Pool,
    services: Arc<Services>,
    /// Whether documents of anonymous callers are read without a seccomp filter.
    allow_unconfined: bool,
}

/// Those that are configured.
struct Services {
    tika: Option<Tika>,
    google_vision: Option<GoogleVision>,
    llm: Option<Llm>,
}

/// Why documents cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No process that parses.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A service that cannot be called as it is configured.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// The engines that work on this installation.
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
    /// The missing parts, and what to do about each.
    pub notes: Vec<String>,
}

/// The bytes of a document.
pub struct Source<'a, R> {
    /// From the beginning, to which they are turned back when a second engine has to read them.
    pub bytes: R,
    /// How many.
    pub length: u64,
    /// Name of the file; distinguishes kinds of plain text.
    pub name: &'a str,
    /// The principal that holds the place.
    pub share: Share,
}

impl Documents {
    /// Starts the processes that parse: `program` is the one that has the subcommand for it.
    ///
    /// # Errors
    /// [`StartError`].
    #[boxed]
    pub async fn start(config: &Config, program: PathBuf) -> Result<Self, StartError> {
        let services = Arc::new(Services::of(config)?);
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
            queue_timeout: config.queue_timeout(),
        };
        Ok(Self { pool: Pool::start(options).await?, services, allow_unconfined: false })
    }

    /// Reads documents of anonymous callers on a kernel without seccomp filters too, if `allowed` (`sandbox.allow_unconfined`).
    #[must_use]
    pub fn allow_unconfined(self, allowed: bool) -> Self {
        Self { allow_unconfined: allowed, ..self }
    }

    /// The kernel's mechanisms that confine the processes that parse.
    pub fn protection(&self) -> Protection {
        self.pool.abilities().protection
    }

    /// Refuses documents of anonymous callers, if the processes that parse them can make any system call.
    ///
    /// # Errors
    /// [`Failure::Unavailable`].
    pub fn check_anonymous(&self) -> Result<(), Failure> {
        if self.protection().seccomp || self.allow_unconfined {
            return Ok(());
        }
        Err(Failure::unavailable(
            "documents of anonymous callers are not read here, because this kernel does not offer seccomp filters: log in, or set \
             sandbox.allow_unconfined = true",
        ))
    }

    /// How many documents are read at the same time.
    pub fn capacity(&self) -> usize {
        self.pool.capacity()
    }

    /// The engines that work now.
    #[boxed]
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
        if let Some(missing) = self.protection().missing() {
            offer.notes.push(format!("documents are read with less protection: {missing}"));
        }
        self.services.add_to(&mut offer).await;
        offer
    }

    /// Checks what `options` ask for against what is there, before anything is read.
    ///
    /// # Errors
    /// [`Failure::Unavailable`] and [`Failure::Language`].
    pub fn check(&self, options: &Options) -> Result<(), Failure> {
        let (abilities, services) = (self.pool.abilities(), &self.services);
        let missing =
            |part: &str| Err(Failure::unavailable(format!("{part} is not installed or not configured here")));
        match options.engine {
            Engine::Pdfium | Engine::Pymupdf if abilities.pdfium.is_err() => {
                return missing("the extraction engine pdfium");
            }
            Engine::Tika if services.tika.is_none() => return missing("the extraction engine tika"),
            _ => {}
        }
        if options.processors.contains(&Processor::Llm) && services.llm.is_none() {
            return missing("the processor llm");
        }
        let supported = match options.ocr_engine {
            OcrEngine::GoogleVision if services.google_vision.is_none() => {
                return missing("the OCR engine google_vision");
            }
            OcrEngine::GoogleVision => GoogleVision::languages(),
            OcrEngine::Tesseract => abilities.languages.clone(),
            OcrEngine::None => return Ok(()),
        };
        // Without Tesseract, digital documents are read all the same.
        if supported.is_empty() || supported.contains(&options.language) {
            return Ok(());
        }
        Err(Failure::Language { language: options.language.clone(), supported })
    }

    /// Refuses a file that nothing here reads with `options`, by its `probe` alone.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] and [`Failure::WrongEngine`].
    pub fn check_type(&self, probe: &TypeProbe, options: &Options) -> Result<(), Failure> {
        let asks_tika = matches!(options.engine, Engine::Auto | Engine::Tika);
        // Tika knows more types.
        if asks_tika && self.services.tika.is_some() {
            return Ok(());
        }
        let Some(mime_type) = probe.unreadable() else { return Ok(()) };
        let mime_type = mime_type.to_owned();
        if asks_tika {
            return Err(Failure::Unsupported { mime_type });
        }
        Err(Failure::WrongEngine { engine: options.engine.as_str().to_owned(), mime_type })
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn extract<R: AsyncRead + AsyncSeek + Unpin>(
        &self,
        source: Source<'_, R>,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Extraction, Failure> {
        self.check(options)?;
        let Parsed { mut extraction, document } = self.parse(source, options, progress).await?;
        let (Some(mut document), Some(llm)) = (document, &self.services.llm) else { return Ok(extraction) };
        match llm.rewrite(&mut document).await {
            Ok(()) => {
                let applied = options.processors.iter().map(|processor| processor.as_str().to_owned());
                extraction.processors_applied = applied.collect();
            }
            Err(warning) => extraction.warnings.push(warning),
        }
        let later = options.processors.iter().skip_while(|processor| **processor != Processor::Llm);
        if later.copied().any(|processor| processor == Processor::Cleanup) {
            document.blocks.iter_mut().for_each(|block| block.change_texts(cleanup));
        }
        extraction.content = document.write(options.output_format, options.front_matter);
        if options.passages {
            extraction.passages = document.passages();
        }
        Ok(extraction)
    }

    /// Page `page`, from 1, of a PDF or a picture as a PNG, about `width` pixels wide; none if there is no such page.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn draw<R: AsyncRead + AsyncSeek + Unpin>(
        &self,
        source: Source<'_, R>,
        page: usize,
        width: u32,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Source { bytes, length, name, share } = source;
        let job = Job {
            purpose: Purpose::Picture { page, width },
            bytes,
            length,
            name,
            mime_type: None,
            options: &Options::default(),
            recognise: None,
            share: &share,
            progress: &mut |_, _| {},
        };
        match self.pool.extract(job).await? {
            Output::Picture(picture) => Ok(picture),
            Output::Text(_) | Output::Searchable(_) => Err(Failure::Crash),
        }
    }

    /// A PDF, or a picture as one, whose recognised words can be found, selected and copied.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn make_searchable<R: AsyncRead + AsyncSeek + Unpin>(
        &self,
        source: Source<'_, R>,
        options: &Options,
    ) -> Result<Searchable, Failure> {
        self.check(options)?;
        let Source { bytes, length, name, share } = source;
        let job = Job {
            purpose: Purpose::Searchable,
            bytes,
            length,
            name,
            mime_type: None,
            options: &Options { engine: Engine::Auto, ..options.clone() },
            recognise: self.recogniser(options),
            share: &share,
            progress: &mut |_, _| {},
        };
        match self.pool.extract(job).await? {
            Output::Searchable(made) => Ok(made),
            Output::Text(_) | Output::Picture(_) => Err(Failure::Crash),
        }
    }

    /// The service that recognises, if `options` ask for one.
    fn recogniser(&self, options: &Options) -> Option<&GoogleVision> {
        self.services.google_vision.as_ref().filter(|_| options.ocr_engine == OcrEngine::GoogleVision)
    }

    /// Has a child read it, or Tika: on request, or if no other engine reads the type.
    async fn parse<R: AsyncRead + AsyncSeek + Unpin>(
        &self,
        source: Source<'_, R>,
        options: &Options,
        progress: Progress<'_>,
    ) -> Result<Parsed, Failure> {
        let Source { mut bytes, length, name, share } = source;
        let tika =
            self.services.tika.as_ref().filter(|_| matches!(options.engine, Engine::Auto | Engine::Tika));
        let mut unknown = Failure::Unsupported { mime_type: detect::UNKNOWN.to_owned() };
        if options.engine != Engine::Tika {
            let job = Job {
                purpose: Purpose::Text,
                bytes: &mut bytes,
                length,
                name,
                mime_type: None,
                options,
                recognise: self.recogniser(options),
                share: &share,
                progress,
            };
            match self.read(job).await {
                Err(failure @ Failure::Unsupported { .. }) if tika.is_some() => unknown = failure,
                parsed => return parsed,
            }
            bytes.rewind().await.map_err(|_| Failure::unreadable())?;
        }
        let Some(tika) = tika else { return Err(unknown) };
        if length == 0 {
            return Err(Failure::Empty);
        }
        let Page::Read(page) = tika.read(&mut bytes, length, options).await? else { return Err(unknown) };
        // Tika's answer is parsed in the sandbox too, like any other input.
        let options = &Options { ocr_engine: OcrEngine::None, ..options.clone() };
        let job = Job {
            purpose: Purpose::Text,
            length: page.len() as u64,
            bytes: page.as_slice(),
            name,
            mime_type: Some(detect::TIKA_PAGE),
            options,
            recognise: None,
            share: &share,
            progress: &mut |_, _| {},
        };
        self.read(job).await
    }

    async fn read<R: AsyncRead + Unpin>(&self, job: Job<'_, R>) -> Result<Parsed, Failure> {
        match self.pool.extract(job).await? {
            Output::Text(parsed) => Ok(*parsed),
            Output::Picture(_) | Output::Searchable(_) => Err(Failure::Crash),
        }
    }
}

impl Services {
    fn of(config: &Config) -> Result<Self, ServiceError> {
        let tika = (!config.tika_url.is_empty()).then(|| Tika::new(&config.tika_url, config.tika_seconds));
        let google_vision = (!config.google_vision_key.is_empty()).then(|| {
            let (address, key) = (&config.google_vision_url, &config.google_vision_key);
            GoogleVision::new(address, key, config.google_vision_seconds)
        });
        let llm = (!config.llm_url.is_empty()).then(|| {
            let (address, key, model) = (&config.llm_url, &config.llm_key, &config.llm_model);
            Llm::new(address, key, model, config.llm_seconds, config.llm_piece_letters)
        });
        Ok(Self { tika: tika.transpose()?, google_vision: google_vision.transpose()?, llm: llm.transpose()? })
    }

    /// Adds what they do to `offer`.
    async fn add_to(&self, offer: &mut Offer) {
        if let Some(tika) = &self.tika {
            if tika.is_reachable().await {
                offer.engines.push(Engine::Tika.as_str());
                offer.mime_types.extend(detect::FOR_TIKA.map(str::to_owned));
            } else {
                let note = "the Tika server of extraction.tika_url does not answer: types that only it reads are refused";
                offer.notes.push(note.to_owned());
            }
        }
        if self.google_vision.is_some() {
            offer.ocr_engines.push(OcrEngine::GoogleVision.as_str());
            if offer.languages.is_empty() {
                offer.languages = GoogleVision::languages();
            }
        }
        if self.llm.is_some() {
            offer.processors.push(Processor::Llm.as_str());
        }
    }
}
