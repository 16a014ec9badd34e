//! From bytes to text, in one process: type, engine, recognition, processors, writer.

use image::{
    ExtendedColorType, ImageEncoder,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};
use serde_json::Value;
use signalbox_confinement::Protection;
use signalbox_pdf::{Library, RgbImage};

use crate::{
    block::{self, Block},
    cleanup::cleanup,
    crooked::{self, Crooked},
    detect,
    engines::{
        Body, Engine as _, Input, NativeEngine, PdfEngine, Places, Reading, TikaPageEngine, draw_picture,
        picture_pdf,
    },
    extraction::{Extraction, Parsed, Searchable},
    failure::Failure,
    layout::{self, PageContent},
    ocr::{Admitted, Link, Recogniser, Recognition, Remote, Tesseract},
    options::{Engine, OcrEngine, Options, Processor},
    placing, searchable,
    write::{self, Document, PageNote},
};

/// The limits of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Address space of the process, in bytes.
    pub memory_bytes: u64,
    /// Time on the processor, in seconds.
    pub cpu_seconds: u64,
    /// Time on the clock, in seconds.
    pub wall_seconds: u64,
    /// Pages of a document.
    pub max_pages: usize,
    /// Pixels of a picture.
    pub max_pixels: u32,
    /// Pages that are recognised at the same time.
    pub threads: usize,
}

/// The abilities of this installation, found by trying.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Abilities {
    /// Whether PDFs can be read; else why not.
    pub pdfium: Result<(), String>,
    /// ISO 639-3 codes of languages that can be recognised here.
    pub languages: Vec<String>,
    /// Types that are read in-process.
    pub mime_types: Vec<String>,
    /// The kernel's mechanisms that confine the process.
    pub protection: Protection,
}

/// A document to be read.
pub(crate) struct Request<'a> {
    pub(crate) bytes: Vec<u8>,
    /// Name of the file; distinguishes kinds of plain text.
    pub(crate) name: &'a str,
    /// The type of the bytes, if it is known.
    pub(crate) mime_type: Option<&'static str>,
    pub(crate) options: &'a Options,
    /// Languages that the outside recognises, if it is the one to do it.
    pub(crate) remote_languages: &'a [String],
}

/// The most bytes of a PDF that is made.
pub(crate) const MAX_PDF_BYTES: usize = 1 << 28;

const NO_TESSERACT: &str = "Tesseract or its language data are not installed";

/// The output of an engine.
struct Content {
    reading: Reading,
    mime_type: &'static str,
    /// Its name.
    engine: &'static str,
    /// Whether recognition was asked for, and is not installed.
    lacks_recogniser: bool,
}

/// Reads documents.
pub(crate) struct Reader {
    pdf: Result<PdfEngine, String>,
    native: NativeEngine,
    tesseract: Option<Tesseract>,
    limits: Limits,
}

impl Reader {
    pub(crate) fn new(places: &Places, limits: Limits) -> Self {
        let pdf = match &places.pdfium {
            Some(path) => Library::load(path).map(PdfEngine::new).map_err(|error| error.to_string()),
            None => {
                Err("libpdfium.so was not found: run tools/bootstrap, or name it in extraction.pdfium"
                    .to_owned())
            }
        };
        let tesseract = places.tessdata.as_ref().and_then(|folder| Tesseract::new(folder, limits.threads));
        Self { pdf, native: NativeEngine, tesseract, limits }
    }

    pub(crate) fn abilities(&self) -> Abilities {
        let mut mime_types: Vec<String> = Vec::new();
        if let Ok(pdf) = &self.pdf {
            mime_types.extend(pdf.mime_types().iter().map(|known| (*known).to_owned()));
        }
        mime_types.extend(self.native.mime_types().iter().map(|known| (*known).to_owned()));
        Abilities {
            pdfium: self.pdf.as_ref().map(|_| ()).map_err(Clone::clone),
            languages: self
                .tesseract
                .as_ref()
                .map_or_else(Vec::new, |tesseract| tesseract.languages().to_vec()),
            mime_types,
            protection: Protection::default(),
        }
    }

    /// Loads the files that reading with `options` may need.
    pub(crate) fn prepare(&mut self, options: &Options) {
        if options.ocr_engine == OcrEngine::Tesseract
            && let Some(tesseract) = &mut self.tesseract
        {
            tesseract.prepare(&options.language);
        }
    }

    /// Page `page`, from 1, of a PDF or a picture as a PNG, about `width` pixels wide; none if there is no such page.
    pub(crate) fn draw(
        &self,
        bytes: Vec<u8>,
        name: &str,
        page: usize,
        width: u32,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let mime_type = detect::detect(&bytes, name);
        let (max_pages, max_pixels) = (self.limits.max_pages, self.limits.max_pixels);
        let input = Input { bytes, mime_type, max_pages, max_pixels };
        let image = match mime_type {
            detect::PDF => match &self.pdf {
                Ok(pdf) => pdf.draw(input, page, width)?,
                Err(_) => None,
            },
            _ if mime_type.starts_with("image/") => draw_picture(input, page, width)?,
            _ => None,
        };
        image.map(|image| png(&image)).transpose()
    }

    /// Reads one document.
    pub(crate) fn read(
        &mut self,
        request: Request<'_>,
        link: &mut dyn Link,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Parsed, Failure> {
        let options = request.options;
        let Content { mut reading, mime_type, engine, lacks_recogniser } =
            self.content(request, link, progress)?;
        if lacks_recogniser && has_unread_pages(&reading) {
            reading.warnings.push(format!("pages without text were not recognised: {NO_TESSERACT}"));
        }
        Ok(finish(reading, options, mime_type, engine))
    }

    /// The document, a PDF or a picture, as a PDF whose recognised words can be found. Without any it is as it came.
    pub(crate) fn make_searchable(
        &mut self,
        request: Request<'_>,
        link: &mut dyn Link,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Searchable, Failure> {
        let mime_type = detect::detect(&request.bytes, request.name);
        let is_picture = mime_type.starts_with("image/");
        if mime_type != detect::PDF && !is_picture && self.native.mime_types().contains(&mime_type) {
            return Err(Failure::NoPages { mime_type: mime_type.to_owned() });
        }
        // Reading makes annotations part of the pages.
        let mut bytes = request.bytes.clone();
        let Content { reading, lacks_recogniser, .. } = self.content(request, link, progress)?;
        if lacks_recogniser && has_unread_pages(&reading) {
            return Err(Failure::unavailable(format!("pages cannot be recognised: {NO_TESSERACT}")));
        }
        let Body::Pages(pages) = &reading.body else {
            return Err(Failure::NoPages { mime_type: mime_type.to_owned() });
        };
        let layers = searchable::layers(pages);
        if is_picture {
            let (max_pages, max_pixels) = (self.limits.max_pages, self.limits.max_pixels);
            bytes = picture_pdf(Input { bytes, mime_type, max_pages, max_pixels }, MAX_PDF_BYTES)?;
        }
        let pdf = if layers.is_empty() { bytes } else { self.pdf()?.lay(bytes, &layers, MAX_PDF_BYTES)? };
        let pages_ocred = layers.iter().map(|layer| layer.page + 1).collect();
        Ok(Searchable { pdf, page_count: pages.len(), pages_ocred, warnings: reading.warnings })
    }

    fn pdf(&self) -> Result<&PdfEngine, Failure> {
        pdf_engine(&self.pdf)
    }

    fn content(
        &mut self,
        request: Request<'_>,
        link: &mut dyn Link,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Content, Failure> {
        if request.bytes.is_empty() {
            return Err(Failure::Empty);
        }
        let mime_type = request.mime_type.unwrap_or_else(|| detect::detect(&request.bytes, request.name));
        let options = request.options;
        let (mut remote, mut admitted);
        let recogniser: Option<&mut dyn Recogniser> = match options.ocr_engine {
            OcrEngine::None => None,
            OcrEngine::Tesseract => match &mut self.tesseract {
                Some(tesseract) => {
                    admitted = Admitted::new(link, tesseract);
                    Some(&mut admitted)
                }
                None => None,
            },
            OcrEngine::GoogleVision => {
                remote = Remote::new(link, OcrEngine::GoogleVision.as_str(), request.remote_languages);
                Some(&mut remote)
            }
        };
        let lacks_recogniser = recogniser.is_none() && options.ocr_engine != OcrEngine::None;
        let mut recognition = Recognition::new(recogniser, &options.language, progress)?;
        let input = Input {
            bytes: request.bytes,
            mime_type,
            max_pages: self.limits.max_pages,
            max_pixels: self.limits.max_pixels,
        };
        let engine = choose(&self.pdf, &self.native, mime_type, options.engine)?;
        let engine_name = engine.name();
        let read = engine.read(input, &mut recognition);
        if read.is_err()
            && let Some(tesseract) = &mut self.tesseract
        {
            tesseract.abandon();
        }
        Ok(Content { reading: read?, mime_type, engine: engine_name, lacks_recogniser })
    }
}

/// Compressed as little as is quick: it is looked at once.
fn png(image: &RgbImage) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Adaptive);
    let written = encoder.write_image(&image.pixels, image.width, image.height, ExtendedColorType::Rgb8);
    written.map_err(|_| Failure::too_much("the picture of the page is too large: ask for a smaller one"))?;
    Ok(bytes)
}

fn choose<'a>(
    pdf: &'a Result<PdfEngine, String>,
    native: &'a NativeEngine,
    mime_type: &str,
    requested: Engine,
) -> Result<&'a dyn crate::engines::Engine, Failure> {
    let mime_type = mime_type.to_owned();
    let reads = |engine: &dyn crate::engines::Engine| engine.mime_types().contains(&mime_type.as_str());
    let wrong =
        || Failure::WrongEngine { engine: requested.as_str().to_owned(), mime_type: mime_type.clone() };
    match requested {
        _ if mime_type == detect::TIKA_PAGE => Ok(&TikaPageEngine),
        Engine::Pdfium | Engine::Pymupdf if mime_type != detect::PDF => Err(wrong()),
        Engine::Native if !reads(native) => Err(wrong()),
        _ if mime_type == detect::PDF => Ok(pdf_engine(pdf)?),
        _ if reads(native) => Ok(native),
        _ if mime_type == detect::ENCRYPTED_OFFICE => Err(Failure::Encrypted),
        _ => Err(Failure::Unsupported { mime_type }),
    }
}

fn pdf_engine(pdf: &Result<PdfEngine, String>) -> Result<&PdfEngine, Failure> {
    pdf.as_ref().map_err(|_| {
        Failure::unavailable("PDFs cannot be read here: libpdfium.so is not installed or not found")
    })
}

fn has_unread_pages(reading: &Reading) -> bool {
    match &reading.body {
        Body::Pages(pages) => pages.iter().any(|page| page.words.is_empty() && !page.images.is_empty()),
        Body::Blocks(_) => false,
    }
}

/// Applies the processors and writes.
fn finish(mut reading: Reading, options: &Options, mime_type: &str, engine: &str) -> Parsed {
    let wants = |processor| options.processors.contains(&processor);
    let mut pages_ocred = Vec::new();
    let mut confidence = 1.0;
    let mut is_partial = false;
    let mut notes = Vec::new();
    let page_count;
    let write_pages = write::of_pages(options.output_format);
    let mut paged = String::new();
    let mut blocks = match reading.body {
        Body::Pages(pages) => {
            page_count = Some(pages.len());
            let sure =
                |page: &PageContent| if page.is_left_out { 0.0 } else { page.confidence.unwrap_or(1.0) };
            let sure: f32 = pages.iter().map(sure).sum();
            is_partial = pages.iter().any(|page| page.is_left_out);
            confidence = sure / pages.len().max(1) as f32;
            pages_ocred.extend(pages.iter().filter(|page| page.confidence.is_some()).map(|page| page.number));
            notes.extend(pages.iter().map(|page| PageNote {
                number: page.number,
                width: page.width,
                height: page.height,
                rotation: 90 * page.turns,
                ocr_confidence: page.confidence,
                header: Vec::new(),
                // Layout analysis finds the others.
                footer: layout::beside(page),
            }));
            let crooked = pages.iter().filter(|page| page.slope != 0.0);
            let crooked: Vec<Crooked> =
                crooked.map(|page| Crooked { page: page.number, slope: page.slope }).collect();
            if let Some(write_pages) = write_pages {
                let mut lined = layout::lined(pages.clone());
                for page in &mut lined {
                    let known = crooked.iter().find(|crooked| crooked.page == page.number);
                    known.into_iter().for_each(|crooked| crooked.restore_lines(page));
                }
                paged = write_pages(&lined);
            }
            // Before layout analysis takes the words.
            let lined = options.words.then(|| layout::lined(pages.clone()));
            let mut blocks = if wants(Processor::Structure) {
                let layout = layout::analyse(pages);
                for (note, (header, footer)) in notes.iter_mut().zip(layout.margins) {
                    (note.header, note.footer) = (header, footer);
                }
                layout.blocks
            } else {
                layout::plain(pages)
            };
            if let Some(lined) = lined {
                placing::place(&mut blocks, &lined);
            }
            crooked::restore(&mut blocks, &crooked);
            blocks
        }
        Body::Blocks(blocks) => {
            let found = reading.metadata.get("page_count").and_then(Value::as_u64);
            page_count = found.and_then(|count| usize::try_from(count).ok());
            if let Some(write_pages) = write_pages {
                paged = write_pages(&[]);
                let format = options.output_format.as_str();
                reading.warnings.push(format!("{format} shows pages, and this type of document has none"));
            }
            let is_structured = wants(Processor::Structure);
            if is_structured { blocks } else { blocks.into_iter().map(flat).collect() }
        }
    };
    if wants(Processor::Cleanup) {
        blocks.iter_mut().for_each(|block| block.change_texts(cleanup));
    }
    let applied = options.processors.iter().filter(|processor| **processor != Processor::Llm);
    let processors_applied = applied.map(|processor| processor.as_str().to_owned()).collect();
    let chunk_words = options.chunks.then_some(options.chunk_words);
    let document = Document { blocks, metadata: reading.metadata, pages: notes, paged, chunk_words };
    let waits = wants(Processor::Llm);
    // Tika knows what it read.
    let found = document.metadata.get("content_type").and_then(Value::as_str);
    let mime_type = found.filter(|_| mime_type == detect::TIKA_PAGE).unwrap_or(mime_type).to_owned();
    let extraction = Extraction {
        content: if waits {
            String::new()
        } else {
            document.write(options.output_format, options.front_matter)
        },
        mime_type,
        extractor_used: engine.to_owned(),
        ocr_engine_used: reading.recognised_by.map(str::to_owned),
        page_count,
        pages_ocred,
        confidence,
        is_partial,
        processors_applied,
        warnings: reading.warnings,
        passages: if options.passages { document.passages() } else { Vec::new() },
    };
    Parsed { extraction, document: waits.then_some(document) }
}

/// A block without its structure: its text.
fn flat(block: Block) -> Block {
    let text = match &block.content {
        block::Content::ImageRef(_) => String::new(),
        _ => block.text(),
    };
    Block { content: block::Content::Paragraph(text), ..block }
}
