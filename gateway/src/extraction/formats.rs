use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use signalbox_config::Config;
use signalbox_documents::{Documents, OutputFormat};
use utoipa::ToSchema;

/// Capabilities of this installation at present.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FormatsOut {
    /// `auto` and those that work: `pdfium`, `native`, `tika`.
    #[schema(value_type = Vec<crate::words::ExtractionEngine>)]
    extraction_engines: Vec<String>,
    /// `none` and those that work: `tesseract`, `google_vision`.
    #[schema(value_type = Vec<crate::words::OcrEngine>)]
    ocr_engines: Vec<String>,
    #[schema(value_type = Vec<crate::words::OutputFormat>)]
    output_formats: Vec<&'static str>,
    /// Further ways: `docling` is JSON of DoclingDocument; `hocr` and `alto` have each line and word with its place.
    #[schema(value_type = Vec<crate::words::OutputFormat>)]
    more_output_formats: Vec<&'static str>,
    /// In units of 1,048,576 bytes.
    max_file_size_mb: u64,
    /// ISO 639-3 codes of the languages that can be recognised.
    languages: Vec<String>,
    /// Those that work; `llm` in background jobs alone.
    #[schema(value_type = Vec<crate::words::TextProcessor>)]
    processors: Vec<String>,
    /// Types of documents that are read.
    mime_types: Vec<String>,
    /// Missing parts, each with its remedy.
    notes: Vec<String>,
}

/// Engines, formats, languages and types that work on this installation.
#[utoipa::path(get, path = "/api/v1/formats", tag = "documents", operation_id = "formats",
    responses((status = 200, body = FormatsOut)))]
pub(super) async fn formats(
    State(config): State<Arc<Config>>,
    State(documents): State<Option<Documents>>,
) -> Json<FormatsOut> {
    let offer = match &documents {
        Some(documents) => documents.offer().await,
        None => signalbox_documents::Offer::default(),
    };
    Json(FormatsOut {
        extraction_engines: offer.engines.into_iter().map(str::to_owned).collect(),
        ocr_engines: offer.ocr_engines.into_iter().map(str::to_owned).collect(),
        output_formats: OutputFormat::ALL.map(OutputFormat::as_str).to_vec(),
        more_output_formats: OutputFormat::MORE.map(OutputFormat::as_str).to_vec(),
        max_file_size_mb: config.extraction.max_file_bytes >> 20,
        languages: offer.languages,
        processors: offer.processors.into_iter().map(str::to_owned).collect(),
        mime_types: offer.mime_types,
        notes: offer.notes,
    })
}
