//! Extraction jobs in a history.

use chrono::TimeDelta;
use signalbox_domain::{
    automation::{CallbackDelivery, DeliveryBatch, DeliveryBatchCommand, NewDelivery},
    extraction::{
        Callback, ExtractionFailure, ExtractionJob, ExtractionJobCommand, ExtractionOptions,
        ExtractionResult, NewExtractionJob,
    },
    kernel::{DeliveryId, WebhookId},
};
use uuid::Uuid;

use crate::world::{OWNER, Writer, digest};

/// One of each outcome: completed and expired, failed and retried, cancelled, and one in progress.
pub(crate) async fn jobs(writer: &Writer, number: i64) {
    let [completed, failed, cancelled, open] = [(); 4].map(|()| writer.clock.new_id());
    keep(writer, number).await;
    for id in [completed, failed, cancelled, open] {
        run(writer, id, ExtractionJobCommand::Submit(new(number))).await;
    }
    let claim = begin(writer, completed, 0).await;
    run(writer, completed, ExtractionJobCommand::GiveBack { claim }).await;
    let claim = begin(writer, completed, 0).await;
    let at = writer.clock.now() + TimeDelta::seconds(5);
    let advance = ExtractionJobCommand::Advance { claim, at, pages_done: 2, page_count: Some(4) };
    run(writer, completed, advance).await;
    let release = ExtractionJobCommand::Release { claim, due_at: at, failure: failure() };
    run(writer, completed, release).await;
    let claim = begin(writer, completed, 10).await;
    run(writer, completed, ExtractionJobCommand::Complete { claim, result: result(number) }).await;
    run(writer, completed, ExtractionJobCommand::RecordInputRemoved).await;
    let claim = begin(writer, failed, 0).await;
    run(writer, failed, ExtractionJobCommand::Fail { claim, failure: failure() }).await;
    run(writer, failed, ExtractionJobCommand::Retry).await;
    begin(writer, failed, 1).await;
    run(writer, cancelled, ExtractionJobCommand::Cancel).await;
    begin(writer, open, 0).await;
    call_back(writer).await;
    if number % 2 == 0 {
        run(writer, completed, ExtractionJobCommand::RecordResultExpired).await;
        run(writer, cancelled, ExtractionJobCommand::RecordInputRemoved).await;
        begin(writer, open, 20).await;
        begin(writer, open, 40).await;
        let at = writer.clock.now() + TimeDelta::seconds(60);
        run(writer, open, ExtractionJobCommand::GiveUp { at }).await;
    }
}

/// Two kept texts, of which one is deleted.
async fn keep(writer: &Writer, number: i64) {
    for is_deleted in [true, false] {
        let (id, mut kept) = (writer.clock.new_id(), new(number));
        (kept.owner, kept.options.keep) = (Some(OWNER), true);
        run(writer, id, ExtractionJobCommand::Submit(kept)).await;
        let claim = begin(writer, id, 0).await;
        run(writer, id, ExtractionJobCommand::Complete { claim, result: result(number) }).await;
        if is_deleted {
            run(writer, id, ExtractionJobCommand::Discard).await;
        }
    }
}

/// A callback without a subscription, whose first attempt fails.
async fn call_back(writer: &Writer) {
    let (batch, claim) = (writer.clock.new_id(), writer.clock.new_id());
    let id = DeliveryId(writer.clock.new_id());
    let event_type = "extraction.completed".to_owned();
    let callback = CallbackDelivery {
        receiver: WebhookId(Uuid::nil()),
        url: "https://example.org/hook".to_owned(),
        sealed_secret: "sealed".to_owned(),
        no_loopback: true,
        delivery: NewDelivery { id, event_id: id.0, event_type, body: "{}".to_owned() },
    };
    writer.run::<DeliveryBatch>(batch, DeliveryBatchCommand::QueueCallback(callback)).await;
    let begin = DeliveryBatchCommand::Begin { claim, at: writer.clock.now(), ids: vec![id] };
    writer.run::<DeliveryBatch>(batch, begin).await;
}

async fn run(writer: &Writer, id: Uuid, command: ExtractionJobCommand) {
    writer.run::<ExtractionJob>(id, command).await;
}

async fn begin(writer: &Writer, id: Uuid, seconds: i64) -> Uuid {
    let (claim, at) = (writer.clock.new_id(), writer.clock.now() + TimeDelta::seconds(seconds));
    run(writer, id, ExtractionJobCommand::Begin { claim, at }).await;
    claim
}

fn new(number: i64) -> NewExtractionJob {
    let words = |text: &str| text.to_owned();
    let url = words("https://example.org/hook");
    let callback = Callback {
        receiver: WebhookId(Uuid::nil()),
        url,
        sealed_secret: words("sealed"),
        no_loopback: number % 4 == 0,
    };
    NewExtractionJob {
        owner: (number % 3 > 0).then_some(OWNER),
        filename: format!("Bericht {number}\\.pdf"),
        size: 5,
        sha256: digest(number as u8),
        input: Uuid::from_u128(8),
        options: ExtractionOptions {
            output_format: words("json"),
            engine: words("auto"),
            ocr_engine: words("none"),
            language: words("deu"),
            processors: vec![words("cleanup")],
            front_matter: true,
            words: false,
            chunks: false,
            chunk_words: None,
            keep_input: false,
            keep: false,
        },
        callback: (number % 2 == 0).then_some(callback),
    }
}

fn result(number: i64) -> ExtractionResult {
    ExtractionResult {
        mime_type: "application/pdf".to_owned(),
        size: 17,
        sha256: digest(1),
        extractor_used: "pdfium".to_owned(),
        ocr_engine_used: (number % 2 == 0).then(|| "tesseract".to_owned()),
        page_count: Some(4),
        confidence: 0.87,
        cached: number % 2 == 0,
        milliseconds: 7,
        warnings: Vec::new(),
    }
}

fn failure() -> ExtractionFailure {
    ExtractionFailure { code: "corrupt_file".to_owned(), message: "the file is \"damaged\"".to_owned() }
}
