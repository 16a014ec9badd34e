use uuid::Uuid;

use super::*;
use crate::{
    kernel::{AgentId, Decider, Sha256Hex, UserId},
    transfer::{AgentRef, JobType, Retry},
};

const SOURCE: AgentId = AgentId(Uuid::from_u128(1));
const DESTINATION: AgentId = AgentId(Uuid::from_u128(2));

fn new(source: AgentId, destination: AgentId, source_path: &str) -> NewTransfer {
    NewTransfer {
        number: 7,
        owner: UserId(Uuid::nil()),
        job: None,
        kind: JobType::Push,
        source_agent: Some(AgentRef { id: source, number: 1 }),
        destination_agent: AgentRef { id: destination, number: 2 },
        source_path: source_path.into(),
        destination_path: "in".into(),
        filename: "a".into(),
        size: None,
        retry: Retry { max_attempts: 2, backoff_seconds: 5 },
        scheduled_for: None,
    }
}

#[test]
fn a_name_is_the_last_part_of_its_path() {
    for (path, name) in [
        ("/srv/a.txt", "a.txt"),
        ("/srv/tree/", "tree"),
        ("C:\\data\\a.txt", "a.txt"),
        ("tree/a\\b", "a\\b"),
        ("/", "root"),
        ("", "root"),
    ] {
        assert_eq!(base_name(path), name, "{path}");
    }
}

fn sha(digit: char) -> Sha256Hex {
    digit.to_string().repeat(64).parse().unwrap()
}

fn file(name: &str, digit: char) -> StagedFile {
    StagedFile { name: name.into(), size: 10, sha256: sha(digit) }
}

struct Run(Transfer);

impl Run {
    fn of(spec: NewTransfer) -> Self {
        let mut run = Self(Transfer::default());
        run.apply(TransferCommand::Request(spec));
        run
    }

    fn dispatched() -> Self {
        let mut run = Self::of(new(SOURCE, DESTINATION, "a"));
        run.apply(TransferCommand::Dispatch);
        run
    }

    fn downloading() -> Self {
        let mut run = Self::dispatched();
        run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
        run.complete(SOURCE, Arrival::default());
        run.apply(TransferCommand::Progress { leg: Leg::Download, bytes: 0, total: Some(10), attempt: None });
        run
    }

    fn apply(&mut self, command: TransferCommand) -> Vec<TransferEvent> {
        let events = self.0.decide(command).unwrap();
        for event in events.clone() {
            self.0.evolve(event);
        }
        events
    }

    fn complete(&mut self, agent: AgentId, arrival: Arrival) -> Vec<TransferEvent> {
        self.apply(TransferCommand::ReportComplete { agent, arrival })
    }

    fn error(&mut self, agent: AgentId, retryable: bool) -> Vec<TransferEvent> {
        self.apply(TransferCommand::ReportError {
            agent,
            attempt: None,
            error: "disk full".into(),
            retryable,
        })
    }
}

#[test]
fn a_file_travels() {
    let mut run = Run::downloading();
    assert_eq!(run.0.phase, Phase::Downloading);
    let proof = Arrival { sha256: Some(sha('a')), ..Default::default() };
    assert_eq!(run.complete(DESTINATION, proof), vec![TransferEvent::TransferCompleted { proven: true }]);
    assert_eq!((run.0.status, run.0.phase), (TransferStatus::Completed, Phase::Done));
}

#[test]
fn one_dispatcher_wins() {
    assert!(Run::dispatched().0.decide(TransferCommand::Dispatch).is_err());
}

#[test]
fn a_wrong_checksum_at_the_destination_repeats_the_download_only() {
    let mut run = Run::downloading();
    let wrong = Arrival { sha256: Some(sha('b')), ..Default::default() };
    assert!(matches!(
        run.complete(DESTINATION, wrong)[0],
        TransferEvent::TransferRequeued { attempt: 1, .. }
    ));
    let again = run.apply(TransferCommand::Dispatch);
    assert_eq!(again, vec![TransferEvent::TransferDispatched { attempt: 2, leg: Leg::Download }]);
}

#[test]
fn a_second_report_of_the_source_does_not_complete_the_transfer() {
    let mut run = Run::downloading();
    assert_eq!(run.complete(SOURCE, Arrival::default()), vec![]);
}

#[test]
fn the_right_digest_proves_a_leg_of_an_earlier_attempt() {
    let mut run = Run::dispatched();
    run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    run.error(SOURCE, true);
    run.apply(TransferCommand::Dispatch);
    let report =
        |leg, digit| Arrival { attempt: Some(1), leg: Some(leg), sha256: Some(sha(digit)), files: Some(1) };
    assert_eq!(run.complete(SOURCE, report(Leg::Upload, 'b')), vec![]);
    assert!(matches!(
        run.complete(SOURCE, report(Leg::Upload, 'a'))[0],
        TransferEvent::TransferStaged { .. }
    ));
    assert_eq!(run.complete(DESTINATION, report(Leg::Download, 'b')), vec![]);
    // The start of the download was never reported.
    let proven = run.complete(DESTINATION, report(Leg::Download, 'a'));
    assert_eq!(proven, vec![TransferEvent::TransferCompleted { proven: true }]);
}

#[test]
fn source_and_destination_may_be_one_agent() {
    let mut run = Run::of(new(SOURCE, SOURCE, "a"));
    run.apply(TransferCommand::Dispatch);
    run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    run.complete(SOURCE, Arrival::default());
    // A repeated report of the upload, before any byte went out.
    assert_eq!(run.complete(SOURCE, Arrival::default()), vec![]);
    run.apply(TransferCommand::Progress { leg: Leg::Download, bytes: 0, total: None, attempt: None });
    assert_eq!(
        run.complete(SOURCE, Arrival::default()),
        vec![TransferEvent::TransferCompleted { proven: true }]
    );
}

#[test]
fn a_late_report_of_a_concluded_upload_does_not_complete_the_download_of_the_same_agent() {
    let mut run = Run::of(new(SOURCE, SOURCE, "a"));
    run.apply(TransferCommand::Dispatch);
    run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    run.apply(TransferCommand::Conclude { attempt: 1, leg: Leg::Upload });
    run.apply(TransferCommand::Progress { leg: Leg::Download, bytes: 0, total: None, attempt: None });
    let late = vec![TransferEvent::LateReportReceived { agent: SOURCE, error: None }];
    assert_eq!(run.complete(SOURCE, Arrival::default()), late);
    assert_eq!(run.0.phase, Phase::Downloading);
    let completed = vec![TransferEvent::TransferCompleted { proven: true }];
    assert_eq!(run.complete(SOURCE, Arrival::default()), completed, "the next one is about the download");
}

#[test]
fn a_body_that_starts_again_from_nothing_moves() {
    let mut run = Run::downloading();
    let progress =
        |bytes| TransferCommand::Progress { leg: Leg::Download, bytes, total: Some(10), attempt: None };
    run.apply(progress(8));
    assert_eq!(run.apply(progress(5)), vec![], "a message that was overtaken");
    let again = run.apply(progress(0));
    assert_eq!(
        again,
        vec![TransferEvent::TransferProgressed { leg: Leg::Download, bytes: 0, total: Some(10) }]
    );
    assert_eq!(run.apply(progress(0)), vec![]);
    assert_eq!(run.apply(progress(5)).len(), 1);
}

#[test]
fn a_concluded_download_completes_without_proof() {
    let mut run = Run::downloading();
    let conclude = |attempt, leg| TransferCommand::Conclude { attempt, leg };
    assert_eq!(run.apply(conclude(2, Leg::Download)), vec![]);
    assert_eq!(run.apply(conclude(1, Leg::Upload)), vec![]);
    let concluded = run.apply(conclude(1, Leg::Download));
    assert_eq!(concluded, vec![TransferEvent::TransferCompleted { proven: false }]);
}

#[test]
fn a_concluded_upload_needs_a_staged_file() {
    let mut run = Run::dispatched();
    let conclude = TransferCommand::Conclude { attempt: 1, leg: Leg::Upload };
    assert_eq!(run.apply(conclude.clone()), vec![]);
    run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    assert!(matches!(run.apply(conclude)[0], TransferEvent::TransferStaged { .. }));
}

#[test]
fn a_proven_report_counts_between_two_attempts() {
    let report = |leg| Arrival { attempt: Some(1), leg: Some(leg), sha256: Some(sha('a')), files: Some(1) };
    let stall = |phase| TransferCommand::Stall { attempt: 1, phase, reason: "offline".into() };
    let mut run = Run::dispatched();
    run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    run.apply(stall(Phase::Uploading));
    assert_eq!(run.complete(SOURCE, Arrival::default()), vec![]);
    assert_eq!(run.error(SOURCE, true), vec![]);
    assert!(matches!(run.complete(SOURCE, report(Leg::Upload))[0], TransferEvent::TransferStaged { .. }));
    let mut run = Run::downloading();
    run.apply(stall(Phase::Downloading));
    assert_eq!(run.complete(DESTINATION, Arrival::default()), vec![]);
    let completed = run.complete(DESTINATION, report(Leg::Download));
    assert_eq!(completed, vec![TransferEvent::TransferCompleted { proven: true }]);
}

#[test]
fn names_beyond_the_limits_are_refused_but_recorded_ones_still_apply() {
    let long = "a".repeat(256);
    let spec = NewTransfer { destination_path: format!("in/{long}"), ..new(SOURCE, DESTINATION, "a") };
    assert!(Transfer::default().decide(TransferCommand::Request(spec.clone())).is_err());
    let mut recorded = Run(Transfer::default());
    recorded.0.evolve(TransferEvent::TransferRequested(spec));
    recorded.apply(TransferCommand::Dispatch);
    let staged = |name: &str| TransferCommand::Stage { files: vec![file(name, 'a')] };
    assert!(recorded.0.decide(staged(&long)).is_err());
    assert_eq!(recorded.apply(staged(&long[1..])).len(), 1);
}

#[test]
fn attempts_end_at_their_limit() {
    let mut run = Run::dispatched();
    assert!(matches!(run.error(SOURCE, true)[0], TransferEvent::TransferRequeued { .. }));
    run.apply(TransferCommand::Dispatch);
    assert!(matches!(run.error(SOURCE, true)[0], TransferEvent::TransferFailed { .. }));
}

#[test]
fn a_body_of_an_earlier_attempt_does_not_begin_the_next_one() {
    let mut run = Run::dispatched();
    run.error(SOURCE, true);
    run.apply(TransferCommand::Dispatch);
    let progress =
        |attempt| TransferCommand::Progress { leg: Leg::Upload, bytes: 5, total: Some(10), attempt };
    assert_eq!(run.apply(progress(Some(1))), vec![]);
    assert_eq!(run.0.phase, Phase::Dispatched);
    assert_eq!(run.apply(progress(Some(2))).len(), 1);
    assert_eq!(run.0.phase, Phase::Uploading);
}

#[test]
fn a_hopeless_error_fails_at_once() {
    assert!(matches!(Run::dispatched().error(SOURCE, false)[0], TransferEvent::TransferFailed { .. }));
}

#[test]
fn late_progress_does_not_revive_a_cancelled_transfer() {
    let mut run = Run::dispatched();
    run.apply(TransferCommand::Cancel);
    assert_eq!(
        run.apply(TransferCommand::Progress { leg: Leg::Upload, bytes: 5, total: None, attempt: None }),
        vec![]
    );
    let late = run.error(SOURCE, true);
    assert_eq!(
        late,
        vec![TransferEvent::LateReportReceived { agent: SOURCE, error: Some("disk full".into()) }]
    );
    assert_eq!(run.0.status, TransferStatus::Cancelled);
    assert!(run.0.decide(TransferCommand::Cancel).is_err());
}

#[test]
fn a_stall_that_was_seen_in_an_earlier_phase_changes_nothing() {
    let mut run = Run::downloading();
    let stall = TransferCommand::Stall { attempt: 1, phase: Phase::Dispatched, reason: "offline".into() };
    assert_eq!(run.apply(stall), vec![]);
}

#[test]
fn a_tree_is_complete_when_all_its_entries_are() {
    let mut run = Run::of(new(SOURCE, DESTINATION, "tree/"));
    run.apply(TransferCommand::Dispatch);
    run.apply(TransferCommand::Stage { files: vec![file("b", 'b'), file("a/x", 'a')] });
    let short = Arrival { files: Some(3), ..Default::default() };
    assert!(matches!(run.complete(SOURCE, short)[0], TransferEvent::TransferRequeued { .. }));
    run.apply(TransferCommand::Dispatch);
    // Files staged before are obsolete.
    run.apply(TransferCommand::Stage { files: vec![file("b", 'b'), file("a/x", 'a')] });
    let whole = run.complete(SOURCE, Arrival { files: Some(2), ..Default::default() });
    assert!(matches!(whole[0], TransferEvent::TransferStaged { files: 2, size: 20, .. }));
}

#[test]
fn a_stranger_reports_in_vain() {
    let mut run = Run::dispatched();
    let stranger = AgentId(Uuid::from_u128(9));
    assert_eq!(run.complete(stranger, Arrival::default()), vec![]);
    assert_eq!(run.error(stranger, false), vec![]);
}

#[test]
fn file_of_the_owner_is_staged_without_a_report() {
    let spec = NewTransfer { source_agent: None, ..new(SOURCE, DESTINATION, "a") };
    let mut run = Run(Transfer::default());
    let requested = run.apply(TransferCommand::Request(spec.clone()));
    let begun = TransferEvent::TransferDispatched { attempt: 1, leg: Leg::Upload };
    assert_eq!(requested, [TransferEvent::TransferRequested(spec), begun]);
    assert!(run.0.decide(TransferCommand::Dispatch).is_err(), "there is no agent to notify");
    run.apply(TransferCommand::Progress { leg: Leg::Upload, bytes: 4, total: Some(10), attempt: None });
    // An agent has no part in it.
    assert_eq!(run.complete(SOURCE, Arrival::default()), []);
    let staged = run.apply(TransferCommand::Stage { files: vec![file("a", 'a')] });
    let whole = TransferEvent::TransferStaged { files: 1, size: 10, sha256: sha('a'), unreported: false };
    assert_eq!(staged, [TransferEvent::FilesStaged { files: vec![file("a", 'a')] }, whole]);
    assert!(run.0.decide(TransferCommand::Stage { files: vec![file("a", 'b')] }).is_err(), "one file, once");
    let asked = run.apply(TransferCommand::Dispatch);
    assert_eq!(asked, [TransferEvent::TransferDispatched { attempt: 1, leg: Leg::Download }]);
    run.apply(TransferCommand::Progress { leg: Leg::Download, bytes: 0, total: Some(10), attempt: None });
    let arrival = Arrival { sha256: Some(sha('a')), ..Arrival::default() };
    assert_eq!(run.complete(DESTINATION, arrival), [TransferEvent::TransferCompleted { proven: true }]);
}

#[test]
fn owner_uploads_no_tree() {
    let spec = NewTransfer { source_agent: None, ..new(SOURCE, DESTINATION, "a/") };
    assert!(Transfer::default().decide(TransferCommand::Request(spec)).is_err());
}

#[test]
fn a_transfer_that_has_ended_is_deleted_once_and_its_bytes_after_it() {
    let mut run = Run::dispatched();
    let code = |run: &Run, command| run.0.decide(command).unwrap_err().code;
    assert_eq!(code(&run, TransferCommand::Delete), "transfer_under_way");
    run.apply(TransferCommand::Cancel);
    assert_eq!(run.apply(TransferCommand::Delete), [TransferEvent::TransferDeleted]);
    for late in [TransferCommand::Delete, TransferCommand::Cancel, TransferCommand::Dispatch] {
        assert_eq!(code(&run, late), "not_found");
    }
    assert_eq!(run.apply(TransferCommand::RecordCleanup), [TransferEvent::StagedBytesDeleted]);
    assert_eq!(run.apply(TransferCommand::RecordCleanup), []);
    let error = "disk full".to_owned();
    let late = TransferCommand::ReportError { agent: SOURCE, attempt: None, error, retryable: true };
    assert!(matches!(run.apply(late).as_slice(), [TransferEvent::LateReportReceived { .. }]));
}
