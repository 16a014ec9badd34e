//! Options by query and by form field; the query wins.

use std::ops::RangeInclusive;

use serde::Deserialize;
use signalbox_documents::{CHUNK_WORDS, Engine, OcrEngine, Options, OutputFormat, Processor, language};
use utoipa::{IntoParams, ToSchema};

use crate::{extract::digits, problem::Problem};

/// Words of a chunk.
const CHUNKS: RangeInclusive<usize> = 50..=4000;

/// Names and values, in the order in which they came.
pub(super) type Pairs = Vec<(String, String)>;

/// Options of an extraction; each may also be sent as a form field.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the parameters; their values are read by name")]
pub(super) struct OptionsIn {
    /// `markdown` if absent, `json`, `plaintext`, `docling`, `hocr` or `alto`.
    #[param(value_type = Option<crate::words::OutputFormat>)]
    output_format: Option<String>,
    /// `auto` if absent, or one of GET /api/v1/formats; `pymupdf` is `pdfium`.
    #[param(value_type = Option<crate::words::ExtractionEngine>)]
    extraction_engine: Option<String>,
    /// `tesseract` if absent, `google_vision` or `none`.
    #[param(value_type = Option<crate::words::OcrEngine>)]
    ocr_engine: Option<String>,
    /// `true` if absent; `false` leaves text in pictures alone.
    ocr_enabled: Option<bool>,
    /// Language of the text, two or three letters of ISO 639; `deu` if absent.
    language: Option<String>,
    /// Steps applied to the text, in this order, repeated or separated by commas; `cleanup,structure` if absent.
    processors: Option<String>,
    /// Whether markdown begins with title, author and number of pages; `false` if absent.
    front_matter: Option<bool>,
    /// Whether the blocks of `json` have their words, with places, and how sure recognition was of each; `false` if absent.
    words: Option<bool>,
    /// Whether `json` has `chunks`, too: the text in pieces that end at blocks, each with headings, pages and places; `false` if absent.
    chunks: Option<bool>,
    /// The most words of a chunk, 50 to 4000; 400 if absent. In scripts without spaces each character counts as a word.
    #[param(minimum = 50, maximum = 4000)]
    chunk_words: Option<i64>,
}

/// Further options of jobs; each may also be sent as a form field.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the parameters; their values are read by name")]
pub(super) struct JobOptionsIn {
    /// Where `extraction.completed` or `extraction.failed` is posted to: http or https, a public address.
    callback_url: Option<String>,
    /// Signs it, at most 255 characters; one is made and answered if absent. Better sent as a form field.
    #[param(max_length = 255)]
    callback_secret: Option<String>,
    /// Whether the document is kept as long as its text, so that its pages can be looked at; `false` if absent.
    keep_input: Option<bool>,
    /// Whether the text is kept until it is deleted by DELETE /api/v1/documents/{id}, and found by GET /api/v1/documents; needs a login
    /// or token. `false` if absent.
    keep: Option<bool>,
}

/// A form of documents and options, with `others` besides. It only describes the body, which is read as a stream.
macro_rules! form {
    (#[doc = $doc:literal] $name:ident { $(#[$about:meta])* $documents:ident: $type:ty } $($others:ident: $other:ty),*) => {
        #[doc = $doc]
        #[derive(Debug, ToSchema)]
        #[expect(dead_code, reason = "describes the body, which is read as a stream")]
        pub(super) struct $name {
            $(#[$about])*
            $documents: $type,
            /// As in the query, like the other fields.
            #[schema(value_type = Option<crate::words::OutputFormat>)]
            output_format: Option<String>,
            #[schema(value_type = Option<crate::words::ExtractionEngine>)]
            extraction_engine: Option<String>,
            #[schema(value_type = Option<crate::words::OcrEngine>)]
            ocr_engine: Option<String>,
            ocr_enabled: Option<bool>,
            language: Option<String>,
            processors: Option<String>,
            front_matter: Option<bool>,
            words: Option<bool>,
            chunks: Option<bool>,
            #[schema(minimum = 50, maximum = 4000)]
            chunk_words: Option<i64>,
            $($others: Option<$other>,)*
        }
    };
}

/// The same of jobs.
macro_rules! job_form {
    ($($form:tt)*) => {
        form! { $($form)* callback_url: String, callback_secret: String, keep_input: bool, keep: bool }
    };
}

form! {
    /// A document with options.
    DocumentIn {
        /// The document.
        #[schema(format = Binary, value_type = String)]
        file: Vec<u8>
    }
}

job_form! {
    /// A document with options of its job.
    ExtractionJobIn {
        /// The document.
        #[schema(format = Binary, value_type = String)]
        file: Vec<u8>
    }
}

job_form! {
    /// Documents with options of their jobs.
    ExtractionJobsIn {
        /// The documents, each in a part of this name.
        #[schema(format = Binary, value_type = Vec<String>)]
        files: Vec<Vec<u8>>
    }
}

/// The values of `name` in `query`, or else in `form`.
fn given(query: &Pairs, form: &Pairs, name: &str) -> Option<Vec<String>> {
    let of = |pairs: &Pairs| {
        let values: Vec<String> = pairs
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.trim().to_owned())
            .collect();
        (!values.is_empty()).then_some(values)
    };
    of(query).or_else(|| of(form))
}

/// The first that `query` says of `name`, or else `form`.
pub(super) fn one(query: &Pairs, form: &Pairs, name: &str) -> Option<String> {
    given(query, form, name).and_then(|values| values.into_iter().next())
}

/// The options in `query`, or else in `form`.
pub(super) fn read(query: &Pairs, form: &Pairs) -> Result<Options, Problem> {
    let one = |name: &str| one(query, form, name);
    let flag = |name: &str| flag(query, form, name);
    let mut options = Options::default();
    if let Some(name) = one("output_format") {
        options.output_format = OutputFormat::named(&name).ok_or_else(|| {
            Problem::field("output_format", "must be one of markdown, json, plaintext, docling, hocr, alto")
        })?;
    }
    if let Some(name) = one("extraction_engine") {
        options.engine = Engine::named(&name).ok_or_else(|| {
            Problem::field("extraction_engine", "must be one of auto, pdfium, native, tika")
        })?;
    }
    if let Some(name) = one("ocr_engine") {
        options.ocr_engine = OcrEngine::named(&name)
            .ok_or_else(|| Problem::field("ocr_engine", "must be one of tesseract, google_vision, none"))?;
    }
    if flag("ocr_enabled")? == Some(false) {
        options.ocr_engine = OcrEngine::None;
    }
    if let Some(code) = one("language").filter(|code| !code.is_empty()) {
        options.language = language(&code).ok_or_else(|| {
            Problem::field("language", "must be a code of two or three letters, such as deu or en")
        })?;
    }
    if let Some(lists) = given(query, form, "processors") {
        options.processors = processors(&lists)?;
    }
    options.front_matter = flag("front_matter")?.unwrap_or(false);
    options.words = flag("words")?.unwrap_or(false);
    options.chunks = flag("chunks")?.unwrap_or(false);
    if options.chunks && options.output_format != OutputFormat::Json {
        return Err(Problem::field("chunks", "needs output_format=json: other formats have no chunks"));
    }
    options.chunk_words = match one("chunk_words").filter(|text| !text.is_empty()) {
        None => CHUNK_WORDS,
        Some(text) => {
            let words = digits(&text).filter(|words| CHUNKS.contains(words));
            words.ok_or_else(|| Problem::field("chunk_words", "must be a whole number from 50 to 4000"))?
        }
    };
    Ok(options)
}

/// Whether a job keeps its document as long as its text.
pub(super) fn keeps_input(query: &Pairs, form: &Pairs) -> Result<bool, Problem> {
    Ok(flag(query, form, "keep_input")?.unwrap_or(false))
}

/// Whether a job's text is kept until its owner deletes it.
pub(super) fn keeps_text(query: &Pairs, form: &Pairs) -> Result<bool, Problem> {
    Ok(flag(query, form, "keep")?.unwrap_or(false))
}

/// Refuses `keep` of a quick call, which leaves nothing behind.
pub(super) fn refuse_to_keep(query: &Pairs, form: &Pairs) -> Result<(), Problem> {
    match keeps_text(query, form)? {
        true => Err(Problem::field("keep", "is for jobs: send the document to POST /api/v1/documents")),
        false => Ok(()),
    }
}

fn flag(query: &Pairs, form: &Pairs, name: &str) -> Result<Option<bool>, Problem> {
    match one(query, form, name).map(|value| value.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("true" | "1" | "yes" | "on") => Ok(Some(true)),
        Some("false" | "0" | "no" | "off") => Ok(Some(false)),
        Some(_) => Err(Problem::field(name, "must be true or false")),
    }
}

fn processors(lists: &[String]) -> Result<Vec<Processor>, Problem> {
    let names = lists.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let mut processors = Vec::new();
    for name in names {
        let processor = Processor::named(name)
            .ok_or_else(|| Problem::field("processors", "must be among cleanup, structure, llm"))?;
        if !processors.contains(&processor) {
            processors.push(processor);
        }
    }
    Ok(processors)
}

#[cfg(test)]
mod tests {
    use signalbox_domain::kernel::FieldPointer;

    use super::*;

    fn pairs(given: &[(&str, &str)]) -> Pairs {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_query_wins_over_the_form() {
        let query =
            pairs(&[("output_format", "json"), ("processors", "structure"), ("processors", "cleanup")]);
        let form = pairs(&[("output_format", "plaintext"), ("language", "de"), ("ocr_enabled", "false")]);
        let options = read(&query, &form).unwrap();
        assert_eq!(options.output_format, OutputFormat::Json);
        assert_eq!((options.language.as_str(), options.ocr_engine), ("deu", OcrEngine::None));
        assert_eq!(options.processors, [Processor::Structure, Processor::Cleanup]);
        let lists = read(&pairs(&[("processors", "cleanup, structure,cleanup")]), &Pairs::new()).unwrap();
        assert_eq!(lists.processors, [Processor::Cleanup, Processor::Structure]);
        assert_eq!(read(&pairs(&[("processors", "")]), &Pairs::new()).unwrap().processors, []);
        assert_eq!(read(&pairs(&[("language", "")]), &Pairs::new()).unwrap(), Options::default());
    }

    #[test]
    fn unknown_words_are_refused() {
        for (name, value) in [
            ("output_format", "Markdown"),
            ("output_format", ""),
            ("extraction_engine", "word"),
            ("ocr_engine", "azure"),
            ("ocr_enabled", "perhaps"),
            ("language", "german"),
            ("language", "d1"),
            ("processors", "cleanup,polish"),
            ("chunks", "true"),
            ("chunk_words", "49"),
            ("chunk_words", "4001"),
            ("chunk_words", "-1"),
            ("chunk_words", "4e2"),
        ] {
            let refused = read(&pairs(&[(name, value)]), &Pairs::new()).unwrap_err();
            assert_eq!(refused.pointer(), Some(&FieldPointer::to(name)), "{}", refused.detail());
        }
    }
}
