use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::kernel::{Decider, ErrorKind, Sha256Hex};

const FIRST: Uuid = Uuid::from_u128(1);
const SECOND: Uuid = Uuid::from_u128(2);

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn new() -> NewExtractionJob {
    NewExtractionJob {
        owner: None,
        filename: "a.pdf".to_owned(),
        size: 3,
        sha256: Sha256Hex::from_bytes(&[1; 32]),
        input: Uuid::from_u128(9),
        options: ExtractionOptions {
            output_format: "markdown".to_owned(),
            engine: "auto".to_owned(),
            ocr_engine: "tesseract".to_owned(),
            language: "deu".to_owned(),
            processors: vec!["cleanup".to_owned()],
            front_matter: false,
            words: false,
            chunks: false,
            chunk_words: None,
            keep_input: false,
            keep: false,
        },
        callback: None,
    }
}

fn result() -> ExtractionResult {
    ExtractionResult {
        mime_type: "application/pdf".to_owned(),
        size: 0,
        sha256: Sha256Hex::from_bytes(&[2; 32]),
        extractor_used: "pdfium".to_owned(),
        ocr_engine_used: None,
        page_count: Some(1),
        confidence: 1.0,
        cached: false,
        milliseconds: 5,
        warnings: Vec::new(),
    }
}

#[test]
fn warnings_of_an_event_are_bounded() {
    let warnings = |count: usize| vec!["ä".repeat(400); count];
    assert_eq!(bounded_warnings(&warnings(20)), vec!["ä".repeat(300); 20]);
    let many = bounded_warnings(&warnings(1000));
    assert_eq!((many.len(), many[19].as_str()), (20, "981 others like these"));
}

fn failure() -> ExtractionFailure {
    ExtractionFailure { code: "corrupt_file".to_owned(), message: "it is damaged".to_owned() }
}

/// Events of the command, which are folded; or the rejection's code.
fn run(job: &mut ExtractionJob, command: ExtractionJobCommand) -> Result<usize, String> {
    let events = job.decide(command).map_err(|rejection| rejection.code)?;
    let count = events.len();
    events.into_iter().for_each(|event| job.evolve(event));
    Ok(count)
}

fn begin(job: &mut ExtractionJob, claim: Uuid, seconds: i64) -> Result<usize, String> {
    run(job, ExtractionJobCommand::Begin { claim, at: at(seconds) })
}

fn submitted() -> ExtractionJob {
    let mut job = ExtractionJob::default();
    run(&mut job, ExtractionJobCommand::Submit(new())).unwrap();
    job
}

#[test]
fn one_worker_has_a_job_while_it_is_heard_of() {
    let mut job = submitted();
    assert_eq!(begin(&mut job, FIRST, 0), Ok(1));
    assert_eq!(begin(&mut job, SECOND, LEASE_SECONDS - 1), Err("not_due".to_owned()));
    let advance =
        ExtractionJobCommand::Advance { claim: FIRST, at: at(10), pages_done: 1, page_count: Some(2) };
    assert_eq!(run(&mut job, advance), Ok(1));
    assert_eq!(begin(&mut job, SECOND, LEASE_SECONDS), Err("not_due".to_owned()));
    assert_eq!(begin(&mut job, SECOND, 10 + LEASE_SECONDS), Ok(1));
    let late = ExtractionJobCommand::Complete { claim: FIRST, result: result() };
    assert_eq!(run(&mut job, late), Err("claim_ended".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::Complete { claim: SECOND, result: result() }), Ok(1));
    let again = ExtractionJobCommand::Complete { claim: SECOND, result: result() };
    assert_eq!(run(&mut job, again), Err("claim_ended".to_owned()));
}

#[test]
fn a_job_whose_workers_crash_is_started_three_times_then_failed() {
    let mut job = submitted();
    let lost = |attempt: i64| attempt * LEASE_SECONDS;
    for attempt in 0..3 {
        assert_eq!(
            run(&mut job, ExtractionJobCommand::GiveUp { at: at(lost(9)) }),
            Err("not_lost".to_owned())
        );
        assert_eq!(begin(&mut job, FIRST, lost(attempt)), Ok(1));
    }
    assert_eq!(begin(&mut job, SECOND, lost(9)), Err("not_due".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::GiveUp { at: at(lost(2)) }), Err("not_lost".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::GiveUp { at: at(lost(9)) }), Ok(1));
    assert_eq!(run(&mut job, ExtractionJobCommand::Retry), Err("attempts_exhausted".to_owned()));
}

#[test]
fn what_says_nothing_of_the_document_is_tried_again_later() {
    let mut job = submitted();
    for attempt in 0..3 {
        let begun_at = attempt * 10;
        assert_eq!(begin(&mut job, FIRST, begun_at), Ok(1));
        let due_at = at(begun_at + 10);
        let release = ExtractionJobCommand::Release { claim: FIRST, due_at, failure: failure() };
        assert_eq!(run(&mut job, release), Ok(1));
        assert_eq!(begin(&mut job, SECOND, begun_at + 9), Err("not_due".to_owned()));
    }
    assert_eq!(job.phase, state::Phase::Failed);
}

#[test]
fn a_worker_that_stops_uses_up_no_attempt() {
    let mut job = submitted();
    for _ in 0..5 {
        assert_eq!(begin(&mut job, FIRST, 0), Ok(1));
        assert_eq!(run(&mut job, ExtractionJobCommand::GiveBack { claim: FIRST }), Ok(1));
    }
    let late = ExtractionJobCommand::GiveBack { claim: FIRST };
    assert_eq!(run(&mut job, late), Err("claim_ended".to_owned()));
    assert_eq!(job.attempts, 0);
}

#[test]
fn a_failed_job_is_retried_while_its_document_is_kept() {
    let mut job = submitted();
    assert_eq!(run(&mut job, ExtractionJobCommand::Retry), Ok(0), "it is queued");
    begin(&mut job, FIRST, 0).unwrap();
    run(&mut job, ExtractionJobCommand::Fail { claim: FIRST, failure: failure() }).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::Retry), Ok(1));
    begin(&mut job, FIRST, 0).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordInputRemoved), Err("job_under_way".to_owned()));
    run(&mut job, ExtractionJobCommand::Fail { claim: FIRST, failure: failure() }).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordInputRemoved), Ok(1));
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordInputRemoved), Ok(0));
    assert_eq!(run(&mut job, ExtractionJobCommand::Retry), Err("input_removed".to_owned()));
}

#[test]
fn a_cancelled_job_stays_cancelled() {
    let mut job = submitted();
    begin(&mut job, FIRST, 0).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::Cancel), Ok(1));
    assert_eq!(run(&mut job, ExtractionJobCommand::Cancel), Ok(0));
    let late = ExtractionJobCommand::Complete { claim: FIRST, result: result() };
    assert_eq!(run(&mut job, late), Err("claim_ended".to_owned()));
    assert_eq!(begin(&mut job, SECOND, 1000), Err("not_due".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::Retry), Ok(0));
}

#[test]
fn a_kept_text_expires_only_after_it_was_deleted() {
    let mut job = ExtractionJob::default();
    let mut kept = new();
    kept.options.keep = true;
    run(&mut job, ExtractionJobCommand::Submit(kept)).unwrap();
    begin(&mut job, FIRST, 0).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::Discard), Err("not_found".to_owned()), "there is no text");
    run(&mut job, ExtractionJobCommand::Complete { claim: FIRST, result: result() }).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordResultExpired), Err("text_kept".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::Discard), Ok(1));
    assert_eq!(run(&mut job, ExtractionJobCommand::Discard), Err("not_found".to_owned()));
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordResultExpired), Ok(1));
    assert_eq!(run(&mut job, ExtractionJobCommand::RecordResultExpired), Ok(0));
}

#[test]
fn a_job_that_has_ended_is_deleted_once_and_its_files_after_it() {
    let mut job = submitted();
    assert_eq!(run(&mut job, ExtractionJobCommand::Delete), Err("job_under_way".to_owned()));
    begin(&mut job, FIRST, 0).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::Delete), Err("job_under_way".to_owned()));
    run(&mut job, ExtractionJobCommand::Fail { claim: FIRST, failure: failure() }).unwrap();
    assert_eq!(run(&mut job, ExtractionJobCommand::Delete), Ok(1));
    for late in [ExtractionJobCommand::Delete, ExtractionJobCommand::Retry, ExtractionJobCommand::Cancel] {
        assert_eq!(run(&mut job, late), Err("not_found".to_owned()));
    }
    for recorded in [ExtractionJobCommand::RecordInputRemoved, ExtractionJobCommand::RecordResultExpired] {
        assert_eq!(run(&mut job, recorded.clone()), Ok(1));
        assert_eq!(run(&mut job, recorded), Ok(0));
    }
}

#[test]
fn nothing_can_be_asked_of_a_job_that_is_none() {
    let rejection = ExtractionJob::default().decide(ExtractionJobCommand::Cancel).unwrap_err();
    assert_eq!(rejection.kind, ErrorKind::NotFound);
    let mut job = submitted();
    assert_eq!(run(&mut job, ExtractionJobCommand::Submit(new())), Err("job_exists".to_owned()));
}
