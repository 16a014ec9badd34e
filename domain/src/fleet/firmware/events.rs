use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kernel::{FirmwareUpdateId, ReleaseVersion, Sha256Hex, UserId, event_kinds};

/// A version that machines may be brought to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewFirmware {
    pub owner: UserId,
    /// Unique among all updates.
    pub version: ReleaseVersion,
    /// Release notes.
    pub changelog: Option<String>,
    /// Where its bundle is fetched from when it is applied.
    pub download_url: Option<String>,
    /// Expected digest of the bundle.
    pub sha256: Option<Sha256Hex>,
    /// Signature of the bundle.
    pub signature: Option<String>,
    /// The bundle, if it was uploaded.
    pub bundle: Option<FirmwareBundle>,
}

/// A bundle in the blob store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareBundle {
    /// Names it in the blob store.
    pub blob: Uuid,
    /// In bytes.
    pub size: u64,
    /// Its digest.
    pub sha256: Sha256Hex,
}

/// An update that is, or was, in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareRef {
    /// Its key.
    pub id: FirmwareUpdateId,
    /// Its version.
    pub version: ReleaseVersion,
}

/// Why an update was not applied or rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareFailure {
    /// Stable word.
    pub code: String,
    /// States what happened, why, and what to do.
    pub message: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum FirmwareCommand {
    /// Make it known.
    Create(NewFirmware),
    /// Give it the bundle that it was made without.
    AddBundle {
        /// The bundle.
        bundle: FirmwareBundle,
        /// Its signature, instead of the one that is known.
        signature: Option<String>,
    },
    /// Bring it into force.
    Apply {
        /// Where to fetch its bundle from, instead of where is known.
        download_url: Option<String>,
        /// Expected digest of the bundle; replaces the known one.
        sha256: Option<Sha256Hex>,
    },
    /// Bring the version before into force again.
    Rollback,
    /// Take ownership of the work. The previous owner loses it.
    Begin {
        /// Names the claim; required to report the attempt's result.
        claim: Uuid,
    },
    /// The bundle is in the blob store.
    RecordDownload {
        /// The claim.
        claim: Uuid,
        /// The bundle.
        bundle: FirmwareBundle,
    },
    /// The bundle is valid; it is about to be brought into force.
    RecordVerification {
        /// The claim.
        claim: Uuid,
        /// The firmware that runs now.
        previous: Option<FirmwareRef>,
    },
    /// It is in force.
    Complete {
        /// The claim.
        claim: Uuid,
    },
    /// The version before is in force again.
    CompleteRollback {
        /// The claim.
        claim: Uuid,
    },
    /// The update failed; the previous firmware stays in force.
    Fail {
        /// The claim.
        claim: Uuid,
        /// Why.
        failure: FirmwareFailure,
    },
    /// Forget it.
    Delete,
    /// Its files are gone.
    RecordFilesRemoved,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FirmwareEvent {
    /// It is known.
    FirmwareCreated(NewFirmware),
    /// It has a bundle now.
    FirmwareBundleAdded {
        /// The bundle.
        bundle: FirmwareBundle,
        /// Its signature, if it is another one than before.
        signature: Option<String>,
    },
    /// Its bundle is to be fetched and applied.
    FirmwareApplyRequested {
        /// Where to fetch it from, from now on.
        download_url: Option<String>,
        /// Expected digest of the bundle from now on.
        sha256: Option<Sha256Hex>,
    },
    /// The version before is to be in force again.
    FirmwareRollbackRequested {
        /// The version that runs.
        version: ReleaseVersion,
    },
    /// A worker has taken over.
    FirmwareClaimed {
        /// Names the claim.
        claim: Uuid,
        /// From 1.
        attempt: u32,
    },
    /// The bundle is to be verified.
    FirmwareDownloaded {
        /// The claim.
        claim: Uuid,
        /// The bundle.
        bundle: FirmwareBundle,
    },
    /// The bundle is being brought into force.
    FirmwareVerified {
        /// The claim.
        claim: Uuid,
        /// The firmware in force until then; absent for the one that shipped with the product.
        previous: Option<FirmwareRef>,
    },
    /// It is in force.
    FirmwareCompleted {
        /// The version.
        version: ReleaseVersion,
        /// The firmware in force before.
        previous: Option<FirmwareRef>,
    },
    /// It is not in force; the previous firmware is.
    FirmwareFailed {
        /// Why.
        failure: FirmwareFailure,
        /// Whether the bundle is kept: one that was fetched is fetched again next time.
        keeps_bundle: bool,
    },
    /// The version before is in force again.
    FirmwareRolledBack {
        /// The version that was in force.
        version: ReleaseVersion,
        /// The firmware in force now; absent for the one that shipped with the product.
        to: Option<FirmwareRef>,
    },
    /// It is in force as before.
    FirmwareRollbackFailed {
        /// Why.
        failure: FirmwareFailure,
    },
    /// The update was deleted.
    FirmwareDeleted {
        /// The version, which is free again.
        version: ReleaseVersion,
        /// Whether it had come into force; then another one has replaced it since.
        was_completed: bool,
    },
    /// Its files are gone.
    FirmwareFilesRemoved,
}

event_kinds!(FirmwareEvent, FirmwareEventKind {
    FirmwareCreated = "firmware_created", "1";
    FirmwareBundleAdded = "firmware_bundle_added", "1";
    FirmwareApplyRequested = "firmware_apply_requested", "1";
    FirmwareRollbackRequested = "firmware_rollback_requested", "1";
    FirmwareClaimed = "firmware_claimed", "1";
    FirmwareDownloaded = "firmware_downloaded", "1";
    FirmwareVerified = "firmware_verified", "1";
    FirmwareCompleted = "firmware_completed", "1";
    FirmwareFailed = "firmware_failed", "1";
    FirmwareRolledBack = "firmware_rolled_back", "1";
    FirmwareRollbackFailed = "firmware_rollback_failed", "1";
    FirmwareDeleted = "firmware_deleted", "1";
    FirmwareFilesRemoved = "firmware_files_removed", "1";
});
