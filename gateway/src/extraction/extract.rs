use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Query, Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_documents::{Extraction, Failure, FairPlaces, Options, OutputFormat, Processor, Source};
use signalbox_texts::{CacheKey, Origin, TextError, Texts};
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::{
    Caller,
    options::{self, DocumentIn, OptionsIn, Pairs},
    quota, sandbox,
    upload::{self, Upload},
};
use crate::{
    extraction::services::DocumentServices,
    network::Network,
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// How long an answer waits for its text to be remembered.
const REMEMBER_TIMEOUT: Duration = Duration::from_secs(5);

/// The text of a document and how it was got.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExtractOut {
    id: String,
    /// `completed`.
    #[schema(value_type = crate::words::Extracted)]
    status: &'static str,
    filename: String,
    /// Found from the bytes.
    mime_type: String,
    size_bytes: u64,
    #[schema(value_type = crate::words::OutputFormat)]
    output_format: &'static str,
    /// The text; for `json` a JSON document `{content, metadata, blocks, pages}`.
    content: String,
    /// Always null with 200.
    error: Option<String>,
    processing_time_ms: u64,
    created_at: DateTime<Utc>,
    /// That was asked for.
    #[schema(value_type = crate::words::ExtractionEngine)]
    extraction_engine: &'static str,
    extractor_used: String,
    /// Null when no page had to be recognised.
    ocr_engine_used: Option<String>,
    language: String,
    /// Null for what has no pages.
    page_count: Option<usize>,
    /// 0 to 1; 1 for text that was in the file.
    confidence: f32,
    /// Numbers of the pages that were recognised.
    pages_ocred: Vec<usize>,
    #[schema(value_type = Vec<crate::words::TextProcessor>)]
    processors_applied: Vec<String>,
    warnings: Vec<String>,
    /// Of the document, in hexadecimal.
    sha256: String,
    /// Whether the same document was read a while ago, and this is what it gave then.
    cached: bool,
}

/// A document that was read.
struct Read {
    filename: String,
    length: u64,
    sha256: String,
    options: Options,
    extraction: Extraction,
    cached: bool,
    milliseconds: u64,
}

/// The text of a document.
#[utoipa::path(post, path = "/api/v1/extract", tag = "documents", security((), ("jwt" = [])), params(OptionsIn), operation_id = "extract",
    request_body(content = DocumentIn, content_type = "multipart/form-data"),
    responses((status = 200, body = ExtractOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut),
        (status = 413, body = ProblemOut), (status = 415, body = ProblemOut), (status = 422, body = ProblemOut),
        (status = 503, body = ProblemOut), (status = 504, body = ProblemOut)))]
pub(super) async fn extract(
    State(services): State<DocumentServices>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let created_at = services.server_clock.now();
    Ok(Json(out(&services.clock, created_at, read(&services, &caller, request).await?)).into_response())
}

/// The same as extract; the name that goes with background jobs for documents.
#[utoipa::path(post, path = "/api/v1/documents/sync", tag = "documents", security((), ("jwt" = [])), params(OptionsIn), operation_id = "extract_document",
    request_body(content = DocumentIn, content_type = "multipart/form-data"),
    responses((status = 200, body = ExtractOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut),
        (status = 413, body = ProblemOut), (status = 415, body = ProblemOut), (status = 422, body = ProblemOut),
        (status = 503, body = ProblemOut), (status = 504, body = ProblemOut)))]
pub(super) async fn document(
    services: State<DocumentServices>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    extract(services, caller, request).await
}

/// The text of a document alone.
#[utoipa::path(post, path = "/api/v1/extract/raw", tag = "documents", security((), ("jwt" = [])), params(OptionsIn), operation_id = "extract_raw",
    request_body(content = DocumentIn, content_type = "multipart/form-data"),
    responses((status = 200, content((String = "text/markdown"), (String = "text/plain"), (serde_json::Value = "application/json"),
        (String = "application/xhtml+xml"), (String = "application/xml"))),
        (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 413, body = ProblemOut),
        (status = 415, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut),
        (status = 504, body = ProblemOut)))]
pub(super) async fn raw(
    State(services): State<DocumentServices>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let read = read(&services, &caller, request).await?;
    Ok(bare(read.options.output_format, read.extraction.content))
}

/// A text as the whole body.
pub(super) fn bare(format: OutputFormat, content: String) -> Response {
    let kind = match format {
        OutputFormat::Markdown => "text/markdown; charset=utf-8",
        OutputFormat::Json | OutputFormat::Docling => "application/json",
        OutputFormat::Hocr => "application/xhtml+xml",
        OutputFormat::Alto => "application/xml",
        OutputFormat::Plaintext => "text/plain; charset=utf-8",
    };
    let mut response = content.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn read(services: &DocumentServices, caller: &Caller, request: Request) -> Result<Read, Problem> {
    let documents = sandbox(&services.documents)?;
    let (upload, options) = receive(&services.config, &services.uploads, caller, request).await?;
    if options.processors.contains(&Processor::Llm) {
        return Err(Problem::field("processors", "must not contain llm here: submit a job instead"));
    }
    let begun = Instant::now();
    documents.check(&options)?;
    let Upload { mut bytes, length, filename, sha256, form: _ } = upload;
    let key = caller.cache_key(&sha256, &filename, &options)?;
    let known = services.texts.recall(&key).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "a remembered text was not read");
        None
    });
    let milliseconds = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (cached, extraction) = match known {
        Some(extraction) => (true, extraction),
        None => {
            let (documents, services) = (documents.clone(), services.clone());
            let (name, share, network) = (filename.clone(), caller.share(), caller.stranger);
            let (shared, work_key, options) = (services.reading.clone(), key.clone(), options.clone());
            let work = move || async move {
                let source = Source { bytes: &mut bytes, length, name: &name, share };
                let extraction = documents.extract(source, &options, &mut |_, _| {}).await?;
                remember(&services, network, key, &options, &extraction).await;
                Ok::<_, Failure>(extraction)
            };
            (false, Arc::unwrap_or_clone(shared.run((caller.share(), work_key), work).await?))
        }
    };
    Ok(Read { filename, length, sha256, options, extraction, cached, milliseconds: milliseconds() })
}

/// A document, and what is asked for.
pub(super) async fn receive(
    config: &Config,
    uploads: &FairPlaces,
    caller: &Caller,
    request: Request,
) -> Result<(Upload, Options), Problem> {
    let query = query(&request)?;
    // Invalid options in the query are reported before the document is sent.
    options::read(&query, &Pairs::new())?;
    options::refuse_to_keep(&query, &Pairs::new())?;
    let place = caller.begin_upload(config, uploads, &request).await?;
    let upload = upload::receive(config, request).await?;
    drop(place);
    let options = options::read(&query, &upload.form)?;
    options::refuse_to_keep(&query, &upload.form)?;
    Ok((upload, options))
}

/// The parameters of the query.
pub(super) fn query(request: &Request) -> Result<Pairs, Problem> {
    let query = Query::<Pairs>::try_from_uri(request.uri());
    query.map(|Query(query)| query).map_err(|_| Problem::invalid("query parameters are not valid"))
}

/// Remembers the text before it is answered, so that the next identical request finds it. The answer waits at most for
/// `REMEMBER_TIMEOUT`: then the text is stored in the background, or not at all if too many others are being stored.
async fn remember(
    services: &DocumentServices,
    network: Option<Network>,
    key: CacheKey,
    options: &Options,
    extraction: &Extraction,
) {
    let deadline = Instant::now() + REMEMBER_TIMEOUT;
    let places = services.remembering.clone();
    let Ok(Ok(place)) = timeout_at(deadline, places.acquire_owned()).await else {
        tracing::warn!("a text was not remembered: too many are being stored");
        return;
    };
    let (services, options, extraction) = (services.clone(), options.clone(), extraction.clone());
    // A caller that hangs up does not undo it.
    let stored = tokio::spawn(async move {
        if let Err(error) =
            store(&services.database, &services.config, &services.texts, network, &key, &options, &extraction)
                .await
        {
            tracing::warn!(%error, "a text was not remembered");
        }
        drop(place);
    });
    if timeout_at(deadline, stored).await.is_err() {
        tracing::warn!("a text is remembered late: the blob store or the database is slow");
    }
}

async fn store(
    database: &Database,
    config: &Config,
    texts: &Texts,
    network: Option<Network>,
    key: &CacheKey,
    options: &Options,
    extraction: &Extraction,
) -> Result<(), TextError> {
    let origin = match network {
        None => Origin::User,
        Some(network) => {
            match quota::has_room(database, config, network, Texts::encode(extraction)?.len()).await {
                Ok(true) => Origin::Network(network.to_string()),
                Ok(false) => return Ok(()),
                Err(problem) => {
                    tracing::warn!(?problem, "a text was not remembered");
                    return Ok(());
                }
            }
        }
    };
    texts.remember(key, options, extraction, &origin).await
}

fn out(clock: &Clock, created_at: DateTime<Utc>, read: Read) -> ExtractOut {
    let Read { filename, length, sha256, options, extraction, cached, milliseconds } = read;
    ExtractOut {
        id: clock.new_id().to_string(),
        status: "completed",
        filename,
        mime_type: extraction.mime_type,
        size_bytes: length,
        output_format: options.output_format.as_str(),
        content: extraction.content,
        error: None,
        processing_time_ms: milliseconds,
        created_at,
        extraction_engine: options.engine.as_str(),
        extractor_used: extraction.extractor_used,
        ocr_engine_used: extraction.ocr_engine_used,
        language: options.language,
        page_count: extraction.page_count,
        confidence: extraction.confidence,
        pages_ocred: extraction.pages_ocred,
        processors_applied: extraction.processors_applied,
        warnings: extraction.warnings,
        sha256,
        cached,
    }
}
