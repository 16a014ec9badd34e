use uuid::Uuid;

use super::{state::Work, *};
use crate::kernel::{ClaimOp, Decider, FirmwareUpdateId, ReleaseVersion, Sha256Hex, UserId};

const FIRST: Uuid = Uuid::from_u128(1);
const SECOND: Uuid = Uuid::from_u128(2);

fn version(text: &str) -> ReleaseVersion {
    text.parse().unwrap()
}

fn before() -> FirmwareRef {
    FirmwareRef { id: FirmwareUpdateId(Uuid::from_u128(8)), version: version("1.1.0") }
}

fn bundle() -> FirmwareBundle {
    FirmwareBundle { blob: Uuid::from_u128(9), size: 3, sha256: Sha256Hex::from_bytes(&[1; 32]) }
}

fn new(bundle: Option<FirmwareBundle>, download_url: Option<&str>) -> NewFirmware {
    NewFirmware {
        owner: UserId(Uuid::nil()),
        version: version("1.2.0"),
        changelog: Some(" better ".to_owned()),
        download_url: download_url.map(str::to_owned),
        sha256: None,
        signature: Some("  ".to_owned()),
        bundle,
    }
}

/// The words of the events of the command, which are folded; or the rejection's code.
fn run(firmware: &mut Firmware, command: FirmwareCommand) -> Result<Vec<String>, String> {
    use cqrs_es::DomainEvent;
    let events = firmware.decide(command).map_err(|rejection| rejection.code)?;
    let words = events.iter().map(DomainEvent::event_type).collect();
    events.into_iter().for_each(|event| firmware.evolve(event));
    Ok(words)
}

fn created(bundle: Option<FirmwareBundle>, download_url: Option<&str>) -> Firmware {
    let mut firmware = Firmware::default();
    run(&mut firmware, FirmwareCommand::Create(new(bundle, download_url))).unwrap();
    firmware
}

fn apply() -> FirmwareCommand {
    FirmwareCommand::Apply { download_url: None, sha256: None }
}

fn failure() -> FirmwareFailure {
    FirmwareFailure { code: "hook_failed".to_owned(), message: "it said no".to_owned() }
}

fn status(firmware: &Firmware) -> &'static str {
    firmware.known.as_ref().map_or("unknown", |known| known.status.as_str())
}

/// An update that a worker is about to bring into force.
fn applying(claim: Uuid) -> Firmware {
    let mut firmware = created(Some(bundle()), None);
    run(&mut firmware, apply()).unwrap();
    run(&mut firmware, FirmwareCommand::Begin { claim }).unwrap();
    run(&mut firmware, FirmwareCommand::RecordDownload { claim, bundle: bundle() }).unwrap();
    let previous = Some(before());
    run(&mut firmware, FirmwareCommand::RecordVerification { claim, previous }).unwrap();
    firmware
}

fn completed() -> Firmware {
    let mut firmware = applying(FIRST);
    run(&mut firmware, FirmwareCommand::Complete { claim: FIRST }).unwrap();
    firmware
}

#[test]
fn an_update_moves_through_its_states_and_back() {
    let mut firmware = created(Some(bundle()), None);
    assert_eq!(status(&firmware), "pending");
    run(&mut firmware, apply()).unwrap();
    assert_eq!(status(&firmware), "downloading");
    run(&mut firmware, FirmwareCommand::Begin { claim: FIRST }).unwrap();
    run(&mut firmware, FirmwareCommand::RecordDownload { claim: FIRST, bundle: bundle() }).unwrap();
    assert_eq!(status(&firmware), "verifying");
    let mut firmware = completed();
    assert_eq!(status(&firmware), "completed");
    assert_eq!(run(&mut firmware, apply()), Err("invalid_transition".to_owned()));
    run(&mut firmware, FirmwareCommand::Rollback).unwrap();
    assert_eq!(run(&mut firmware, FirmwareCommand::Rollback), Err("invalid_transition".to_owned()));
    run(&mut firmware, FirmwareCommand::Begin { claim: SECOND }).unwrap();
    let back = firmware.decide(FirmwareCommand::CompleteRollback { claim: SECOND }).unwrap();
    let expected = FirmwareEvent::FirmwareRolledBack { version: version("1.2.0"), to: Some(before()) };
    assert_eq!(back, [expected]);
    run(&mut firmware, FirmwareCommand::CompleteRollback { claim: SECOND }).unwrap();
    assert_eq!(status(&firmware), "rolled_back");
    run(&mut firmware, apply()).unwrap();
    assert_eq!(status(&firmware), "downloading");
}

#[test]
fn only_the_newest_claim_speaks_and_only_of_what_is_being_done() {
    let mut firmware = applying(FIRST);
    let taken_over = run(&mut firmware, FirmwareCommand::Begin { claim: SECOND }).unwrap();
    assert_eq!(taken_over, ["firmware_claimed"]);
    let work = firmware.known.as_ref().and_then(|known| known.work.clone());
    assert!(matches!(work, Some(Work { attempts: 2, .. })));
    for late in [
        FirmwareCommand::Complete { claim: FIRST },
        FirmwareCommand::Fail { claim: FIRST, failure: failure() },
        FirmwareCommand::RecordDownload { claim: SECOND, bundle: bundle() },
        FirmwareCommand::CompleteRollback { claim: SECOND },
    ] {
        assert_eq!(run(&mut firmware, late), Err("claim_ended".to_owned()));
    }
    run(&mut firmware, FirmwareCommand::Complete { claim: SECOND }).unwrap();
    assert_eq!(run(&mut firmware, FirmwareCommand::Begin { claim: FIRST }), Err("not_due".to_owned()));
}

#[test]
fn a_failed_update_may_be_applied_again_and_fetches_again_what_it_had_fetched() {
    let mut firmware = applying(FIRST);
    run(&mut firmware, FirmwareCommand::Fail { claim: FIRST, failure: failure() }).unwrap();
    assert_eq!(status(&firmware), "failed");
    assert!(firmware.known.as_ref().unwrap().bundle.is_some(), "the bundle can still be fetched");
    run(&mut firmware, apply()).unwrap();
    let mut fetched = created(None, Some("https://example.org/f.tar.gz"));
    run(&mut fetched, apply()).unwrap();
    run(&mut fetched, FirmwareCommand::Begin { claim: FIRST }).unwrap();
    run(&mut fetched, FirmwareCommand::RecordDownload { claim: FIRST, bundle: bundle() }).unwrap();
    run(&mut fetched, FirmwareCommand::Fail { claim: FIRST, failure: failure() }).unwrap();
    assert!(fetched.known.as_ref().unwrap().bundle.is_none());
}

#[test]
fn a_rollback_that_fails_leaves_the_version_in_force() {
    let mut firmware = completed();
    run(&mut firmware, FirmwareCommand::Rollback).unwrap();
    run(&mut firmware, FirmwareCommand::Begin { claim: SECOND }).unwrap();
    let failed = run(&mut firmware, FirmwareCommand::Fail { claim: SECOND, failure: failure() });
    assert_eq!(failed.unwrap(), ["firmware_rollback_failed"]);
    assert_eq!(status(&firmware), "completed");
    run(&mut firmware, FirmwareCommand::Rollback).unwrap();
}

#[test]
fn what_cannot_be_applied_is_refused_at_once() {
    let mut bare = created(None, None);
    assert_eq!(run(&mut bare, apply()), Err("no_bundle".to_owned()));
    let url = || Some("https://example.org/f.tar.gz".to_owned());
    let from_url = || FirmwareCommand::Apply { download_url: url(), sha256: None };
    assert_eq!(run(&mut created(Some(bundle()), None), from_url()), Err("bundle_present".to_owned()));
    run(&mut bare, from_url()).unwrap();
    assert_eq!(run(&mut bare, apply()), Err("invalid_transition".to_owned()));
    let add = || FirmwareCommand::AddBundle { bundle: bundle(), signature: None };
    assert_eq!(run(&mut bare, add()), Err("firmware_exists".to_owned()));
    let mut later = created(None, None);
    run(&mut later, add()).unwrap();
    assert_eq!(run(&mut later, add()), Err("firmware_exists".to_owned()));
    run(&mut later, apply()).unwrap();
}

#[test]
fn a_bundle_with_another_digest_than_announced_is_refused() {
    let sha256 = Some(Sha256Hex::from_bytes(&[2; 32]));
    let wrong = NewFirmware { sha256: sha256.clone(), ..new(Some(bundle()), None) };
    let refused = run(&mut Firmware::default(), FirmwareCommand::Create(wrong));
    assert_eq!(refused, Err("checksum_mismatch".to_owned()));
    let mut firmware = Firmware::default();
    run(&mut firmware, FirmwareCommand::Create(NewFirmware { sha256, ..new(None, None) })).unwrap();
    let add = FirmwareCommand::AddBundle { bundle: bundle(), signature: None };
    assert_eq!(run(&mut firmware, add), Err("checksum_mismatch".to_owned()));
}

#[test]
fn texts_are_trimmed_and_bounded() {
    let tidy = new(None, None).validate().unwrap();
    assert_eq!((tidy.changelog.as_deref(), tidy.signature), (Some("better"), None));
    for wrong in [
        NewFirmware { changelog: Some("x".repeat(10_001)), ..new(None, None) },
        NewFirmware { changelog: Some("\0".to_owned()), ..new(None, None) },
        NewFirmware { download_url: Some("x".repeat(2049)), ..new(None, None) },
        NewFirmware { signature: Some("x".repeat(2001)), ..new(None, None) },
    ] {
        assert_eq!(wrong.validate().unwrap_err().code, "invalid_field");
    }
}

#[test]
fn an_update_is_deleted_unless_something_is_done_with_it() {
    let mut firmware = applying(FIRST);
    assert_eq!(run(&mut firmware, FirmwareCommand::Delete), Err("update_under_way".to_owned()));
    run(&mut firmware, FirmwareCommand::Complete { claim: FIRST }).unwrap();
    run(&mut firmware, FirmwareCommand::Rollback).unwrap();
    assert_eq!(run(&mut firmware, FirmwareCommand::Delete), Err("update_under_way".to_owned()));
    let mut firmware = completed();
    run(&mut firmware, FirmwareCommand::Delete).unwrap();
    assert_eq!(run(&mut firmware, apply()), Err("not_found".to_owned()));
    assert_eq!(run(&mut firmware, FirmwareCommand::RecordFilesRemoved).unwrap().len(), 1);
    assert_eq!(run(&mut firmware, FirmwareCommand::RecordFilesRemoved).unwrap().len(), 0);
}

#[test]
fn one_update_at_a_time_is_under_way_and_one_version_is_running() {
    let claims = |event: FirmwareEvent| -> Vec<(ClaimOp, String)> {
        let claims = Firmware::claims(Uuid::nil(), &event);
        claims.into_iter().map(|claim| (claim.op, claim.kind)).collect()
    };
    let work = "firmware.under_way".to_owned();
    let successor = |id: Uuid| format!("firmware.successor_of.{id}");
    let current = version("1.2.0");
    let requested = FirmwareEvent::FirmwareApplyRequested { download_url: None, sha256: None };
    assert_eq!(claims(requested), [(ClaimOp::Take, work.clone())]);
    let completed = FirmwareEvent::FirmwareCompleted { version: current, previous: Some(before()) };
    let expected = [(ClaimOp::Take, successor(before().id.0)), (ClaimOp::Release, work.clone())];
    assert_eq!(claims(completed), expected);
    let back = FirmwareEvent::FirmwareRolledBack { version: current, to: Some(before()) };
    let expected = [(ClaimOp::Release, successor(before().id.0)), (ClaimOp::Release, work.clone())];
    assert_eq!(claims(back), expected);
    let asked = FirmwareEvent::FirmwareRollbackRequested { version: current };
    assert_eq!(claims(asked), [(ClaimOp::RequireNone, successor(Uuid::nil())), (ClaimOp::Take, work)]);
    let deleted = |was_completed| claims(FirmwareEvent::FirmwareDeleted { version: current, was_completed });
    assert_eq!(deleted(true)[0], (ClaimOp::Require, successor(Uuid::nil())));
    assert_eq!(deleted(false).len(), 1);
}
