//! Firmware updates in a history.

use signalbox_domain::{
    fleet::{Firmware, FirmwareBundle, FirmwareCommand, FirmwareFailure, NewFirmware},
    kernel::ReleaseVersion,
};
use uuid::Uuid;

use crate::world::{OWNER, Writer, digest};

/// Two updates: one is applied after a failure and rolled back for every other number, the other is deleted.
pub(crate) async fn firmware(writer: &Writer, number: i64) {
    let (applied, deleted) = (writer.clock.new_id(), writer.clock.new_id());
    let release = |minor: i64| format!("1.{number}.{minor}").parse().unwrap();
    run(writer, applied, FirmwareCommand::Create(new(release(0)))).await;
    run(writer, deleted, FirmwareCommand::Create(new(release(1)))).await;
    let bundle = FirmwareBundle { blob: deleted, size: 7, sha256: digest(number as u8) };
    run(writer, deleted, FirmwareCommand::AddBundle { bundle: bundle.clone(), signature: None }).await;
    run(writer, deleted, FirmwareCommand::Delete).await;
    let claim = begin(writer, applied).await;
    let failure = FirmwareFailure { code: "hook_failed".to_owned(), message: "it \"failed\"\\".to_owned() };
    run(writer, applied, FirmwareCommand::Fail { claim, failure: failure.clone() }).await;
    let claim = begin(writer, applied).await;
    run(writer, applied, FirmwareCommand::RecordDownload { claim, bundle }).await;
    run(writer, applied, FirmwareCommand::RecordVerification { claim, previous: None }).await;
    run(writer, applied, FirmwareCommand::Complete { claim }).await;
    run(writer, applied, FirmwareCommand::Rollback).await;
    let claim = take_over(writer, applied).await;
    let end = match number % 2 {
        0 => FirmwareCommand::CompleteRollback { claim },
        _ => FirmwareCommand::Fail { claim, failure },
    };
    run(writer, applied, end).await;
    if number % 2 == 0 {
        run(writer, deleted, FirmwareCommand::RecordFilesRemoved).await;
    }
}

async fn begin(writer: &Writer, id: Uuid) -> Uuid {
    let url = Some("https://example.org/f.tar.gz".to_owned());
    run(writer, id, FirmwareCommand::Apply { download_url: url, sha256: Some(digest(3)) }).await;
    take_over(writer, id).await
}

async fn take_over(writer: &Writer, id: Uuid) -> Uuid {
    let claim = writer.clock.new_id();
    run(writer, id, FirmwareCommand::Begin { claim }).await;
    claim
}

async fn run(writer: &Writer, id: Uuid, command: FirmwareCommand) {
    writer.run::<Firmware>(id, command).await;
}

fn new(version: ReleaseVersion) -> NewFirmware {
    NewFirmware {
        owner: OWNER,
        version,
        changelog: Some("line\nline\ttab".to_owned()),
        download_url: None,
        sha256: None,
        signature: None,
        bundle: None,
    }
}
