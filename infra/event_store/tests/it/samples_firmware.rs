use signalbox_domain::{
    fleet::{FirmwareBundle, FirmwareEvent, FirmwareFailure, FirmwareRef, NewFirmware},
    kernel::{FirmwareUpdateId, ReleaseVersion, UserId},
};

use super::{id, sha256};

fn version(text: &str) -> ReleaseVersion {
    text.parse().unwrap()
}

pub(super) fn after_firmware(event: Option<&FirmwareEvent>) -> Option<FirmwareEvent> {
    let (claim, release) = (id(2), version("1.10.0"));
    let before = FirmwareRef { id: FirmwareUpdateId(id(5)), version: version("1.9.3") };
    let bundle = || FirmwareBundle { blob: id(3), size: 1234, sha256: sha256() };
    let failure = |code: &str| FirmwareFailure { code: code.to_owned(), message: "it said no".to_owned() };
    let url = || Some("https://example.org/firmware-1.10.0.tar.gz".to_owned());
    let Some(event) = event else {
        return Some(FirmwareEvent::FirmwareCreated(NewFirmware {
            owner: UserId(id(7)),
            version: release,
            changelog: Some("Faster".to_owned()),
            download_url: url(),
            sha256: Some(sha256()),
            signature: None,
            bundle: None,
        }));
    };
    match event {
        FirmwareEvent::FirmwareCreated(_) => Some(FirmwareEvent::FirmwareBundleAdded {
            bundle: bundle(),
            signature: Some("untrusted comment: minisign".to_owned()),
        }),
        FirmwareEvent::FirmwareBundleAdded { .. } => {
            Some(FirmwareEvent::FirmwareApplyRequested { download_url: url(), sha256: Some(sha256()) })
        }
        FirmwareEvent::FirmwareApplyRequested { .. } => {
            Some(FirmwareEvent::FirmwareClaimed { claim, attempt: 1 })
        }
        FirmwareEvent::FirmwareClaimed { .. } => {
            Some(FirmwareEvent::FirmwareDownloaded { claim, bundle: bundle() })
        }
        FirmwareEvent::FirmwareDownloaded { .. } => {
            Some(FirmwareEvent::FirmwareVerified { claim, previous: Some(before) })
        }
        FirmwareEvent::FirmwareVerified { .. } => {
            Some(FirmwareEvent::FirmwareFailed { failure: failure("hook_failed"), keeps_bundle: false })
        }
        FirmwareEvent::FirmwareFailed { .. } => {
            Some(FirmwareEvent::FirmwareCompleted { version: release, previous: Some(before) })
        }
        FirmwareEvent::FirmwareCompleted { .. } => {
            Some(FirmwareEvent::FirmwareRollbackRequested { version: release })
        }
        FirmwareEvent::FirmwareRollbackRequested { .. } => {
            Some(FirmwareEvent::FirmwareRollbackFailed { failure: failure("version_missing") })
        }
        FirmwareEvent::FirmwareRollbackFailed { .. } => {
            Some(FirmwareEvent::FirmwareRolledBack { version: release, to: Some(before) })
        }
        FirmwareEvent::FirmwareRolledBack { .. } => {
            Some(FirmwareEvent::FirmwareDeleted { version: release, was_completed: false })
        }
        FirmwareEvent::FirmwareDeleted { .. } => Some(FirmwareEvent::FirmwareFilesRemoved),
        FirmwareEvent::FirmwareFilesRemoved => None,
    }
}
