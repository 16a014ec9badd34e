use signalbox_domain::{
    extraction::{
        Callback, ExtractionFailure, ExtractionJobEvent, ExtractionOptions, ExtractionResult,
        NewExtractionJob,
    },
    kernel::{UserId, WebhookId},
};

use super::{id, sha256, time};

fn new() -> NewExtractionJob {
    let options = ExtractionOptions {
        output_format: "markdown".to_owned(),
        engine: "auto".to_owned(),
        ocr_engine: "tesseract".to_owned(),
        language: "deu".to_owned(),
        processors: vec!["cleanup".to_owned(), "structure".to_owned()],
        front_matter: false,
        words: false,
        chunks: false,
        chunk_words: None,
        keep_input: false,
        keep: false,
    };
    let url = "https://example.org/hook".to_owned();
    NewExtractionJob {
        owner: Some(UserId(id(7))),
        filename: "Prüfbericht.pdf".to_owned(),
        size: 17,
        sha256: sha256(),
        input: id(1),
        options,
        callback: Some(Callback {
            receiver: WebhookId(id(4)),
            url,
            sealed_secret: "v1.key.bm9uY2U".to_owned(),
            no_loopback: false,
        }),
    }
}

fn result() -> ExtractionResult {
    ExtractionResult {
        mime_type: "application/pdf".to_owned(),
        size: 1234,
        sha256: sha256(),
        extractor_used: "pdfium".to_owned(),
        ocr_engine_used: Some("tesseract".to_owned()),
        page_count: Some(9),
        confidence: 0.5,
        cached: true,
        milliseconds: 250,
        warnings: Vec::new(),
    }
}

pub(super) fn after_job(event: Option<&ExtractionJobEvent>) -> Option<ExtractionJobEvent> {
    let (claim, at) = (id(2), time());
    let failure =
        || ExtractionFailure { code: "unavailable".to_owned(), message: "try again later".to_owned() };
    let Some(event) = event else { return Some(ExtractionJobEvent::ExtractionSubmitted(new())) };
    match event {
        ExtractionJobEvent::ExtractionSubmitted(_) => {
            Some(ExtractionJobEvent::ExtractionBegun { claim, at, attempt: 1 })
        }
        ExtractionJobEvent::ExtractionBegun { .. } => {
            Some(ExtractionJobEvent::ExtractionAdvanced { claim, at, pages_done: 3, page_count: Some(9) })
        }
        ExtractionJobEvent::ExtractionAdvanced { .. } => {
            Some(ExtractionJobEvent::ExtractionGivenBack { claim })
        }
        ExtractionJobEvent::ExtractionGivenBack { .. } => {
            Some(ExtractionJobEvent::ExtractionReleased { claim, due_at: at, failure: failure() })
        }
        ExtractionJobEvent::ExtractionReleased { .. } => {
            Some(ExtractionJobEvent::ExtractionCompleted { claim, result: result() })
        }
        ExtractionJobEvent::ExtractionCompleted { .. } => Some(ExtractionJobEvent::ExtractionResultExpired),
        ExtractionJobEvent::ExtractionResultExpired => {
            Some(ExtractionJobEvent::ExtractionFailed { failure: failure() })
        }
        ExtractionJobEvent::ExtractionFailed { .. } => Some(ExtractionJobEvent::ExtractionRetried),
        ExtractionJobEvent::ExtractionRetried => Some(ExtractionJobEvent::ExtractionCancelled),
        ExtractionJobEvent::ExtractionCancelled => Some(ExtractionJobEvent::ExtractionInputRemoved),
        ExtractionJobEvent::ExtractionInputRemoved => Some(ExtractionJobEvent::ExtractionDiscarded),
        ExtractionJobEvent::ExtractionDiscarded => Some(ExtractionJobEvent::ExtractionDeleted),
        ExtractionJobEvent::ExtractionDeleted => None,
    }
}
