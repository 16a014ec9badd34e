//! Documents become PDFs whose recognised words can be found, selected and copied.

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use serde::Deserialize;
use signalbox_config::Config;
use signalbox_documents::{FairPlaces, OcrEngine, Searchable, Share, Source};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio_util::io::ReaderStream;
use utoipa::{IntoParams, ToSchema};

use super::{
    Caller,
    extract::receive,
    sandbox,
    services::DocumentServices,
    upload::{self, Upload},
    upload_place,
};
use crate::{
    answer::attachment,
    problem::{Problem, ProblemOut},
};

/// To how many pages words were added.
const PAGES: HeaderName = HeaderName::from_static("x-recognised-pages");
/// Notes for the reader, if there are any.
const WARNINGS: HeaderName = HeaderName::from_static("x-warnings");
/// Letters of it: clients take a few thousand bytes of headers.
const MAX_WARNINGS: usize = 1000;

/// How words are recognised; either may also be sent as a form field.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the parameters; their values are read by name")]
pub(super) struct RecognitionIn {
    /// `tesseract` if absent, or `google_vision`.
    #[param(value_type = Option<crate::words::OcrEngine>)]
    ocr_engine: Option<String>,
    /// Language of the text, two or three letters of ISO 639; `deu` if absent.
    language: Option<String>,
}

/// A PDF or a picture.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the body, whose fields are read by name")]
pub(super) struct PagesIn {
    /// The document.
    #[schema(format = Binary, value_type = String)]
    file: Vec<u8>,
    /// As in the query, like the other field.
    #[schema(value_type = Option<crate::words::OcrEngine>)]
    ocr_engine: Option<String>,
    language: Option<String>,
}

/// A PDF with the words that are recognised on its pages as unseen text at their places, so that they can be found, selected and copied. What
/// pages show stays as it is, and so do pages that have text of their own. A picture becomes a PDF with a page for each frame. The header
/// `X-Recognised-Pages` says to how many pages words were added, `X-Warnings` what was left out.
#[utoipa::path(post, path = "/api/v1/extract/searchable-pdf", tag = "documents", security((), ("jwt" = [])), params(RecognitionIn), operation_id = "make_searchable_pdf",
    request_body(content = PagesIn, content_type = "multipart/form-data"),
    responses((status = 200, body = Vec<u8>, content_type = "application/pdf"),
        (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 413, body = ProblemOut),
        (status = 415, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut),
        (status = 504, body = ProblemOut)))]
pub(super) async fn searchable_pdf(
    State(services): State<DocumentServices>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let DocumentServices { config, documents, making, uploads, .. } = services;
    let documents = sandbox(&documents)?.clone();
    let (upload, options) = receive(&config, &uploads, &caller, request).await?;
    if options.ocr_engine == OcrEngine::None {
        return Err(Problem::field(
            "ocr_engine",
            "must not be none here: without recognition no word is added",
        ));
    }
    let Upload { mut bytes, length, filename, sha256, form: _ } = upload;
    let (key, share) = (caller.cache_key(&sha256, &filename, &options)?, caller.share());
    let (name, holder) = (filename.clone(), share.clone());
    let work = move || async move {
        let source = Source { bytes: &mut bytes, length, name: &name, share: holder };
        documents.make_searchable(source, &options).await
    };
    let made = making.run((share.clone(), key), work).await?;
    respond(&config, &uploads, &share, &filename, &made).await
}

async fn respond(
    config: &Config,
    uploads: &FairPlaces,
    share: &Share,
    filename: &str,
    made: &Searchable,
) -> Result<Response, Problem> {
    let Searchable { pdf, pages_ocred, warnings, .. } = made;
    let length = pdf.len();
    let mut response = body(config, uploads, share, pdf).await?.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/pdf"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(PAGES, HeaderValue::from(pages_ocred.len()));
    let stem = filename.rsplit_once('.').map_or(filename, |(stem, _)| stem);
    let warnings: String = warnings.join("; ").chars().take(MAX_WARNINGS).collect();
    let texts = [(header::CONTENT_DISPOSITION, attachment(&format!("{stem}.pdf"))), (WARNINGS, warnings)];
    for (name, text) in texts {
        if let Some(value) = HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty()) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// A large PDF lies on disk while the client takes it, which may be slow, and holds a place like a file that is received.
async fn body(config: &Config, uploads: &FairPlaces, share: &Share, pdf: &[u8]) -> Result<Body, Problem> {
    if pdf.len() <= upload::SMALL {
        return Ok(Body::from(pdf.to_vec()));
    }
    let place = upload_place(config, uploads, share).await?;
    let mut file = upload::open(config).await?;
    let written = async {
        file.write_all(pdf).await?;
        file.flush().await?;
        file.rewind().await
    };
    written.await.map_err(|error| Problem::file(&error))?;
    Ok(Body::from_stream(ReaderStream::new(file).map(move |piece| {
        let _held = &place;
        piece
    })))
}
