use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{FirmwareBundle, FirmwareEvent, FirmwareRef};
use crate::kernel::{ReleaseVersion, Sha256Hex};

/// Status of an update, in the words that clients see.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareStatus {
    /// Not applied yet.
    #[default]
    Pending,
    /// Its bundle is being fetched.
    Downloading,
    /// Its bundle is being verified.
    Verifying,
    /// It is being brought into force.
    Applying,
    /// It was brought into force.
    Completed,
    /// It was not, and may be applied again.
    Failed,
    /// It was undone, and may be applied again.
    RolledBack,
}

impl FirmwareStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Downloading => "downloading",
            Self::Verifying => "verifying",
            Self::Applying => "applying",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::RolledBack => "rolled_back",
        }
    }
}

/// A version that machines may be brought to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Firmware {
    pub(super) known: Option<Known>,
    /// Whether its files are yet to be removed.
    pub(super) leaves_files: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) version: ReleaseVersion,
    pub(super) status: FirmwareStatus,
    /// The current operation and its owner.
    pub(super) work: Option<Work>,
    pub(super) has_url: bool,
    /// Expected digest of the bundle.
    pub(super) sha256: Option<Sha256Hex>,
    pub(super) bundle: Option<FirmwareBundle>,
    /// Whether the bundle was uploaded, not fetched.
    pub(super) is_uploaded: bool,
    /// The firmware in force before.
    pub(super) previous: Option<FirmwareRef>,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Work {
    /// Whether it is to be undone.
    pub(super) is_rollback: bool,
    /// The owning worker's claim; absent before the work is claimed.
    pub(super) claim: Option<Uuid>,
    /// How often it was begun.
    pub(super) attempts: u32,
}

impl Firmware {
    /// The claim of the worker that owns the present work.
    pub fn claim(&self) -> Option<Uuid> {
        self.known.as_ref()?.work.as_ref()?.claim
    }

    pub(super) fn apply(&mut self, event: FirmwareEvent) {
        match event {
            FirmwareEvent::FirmwareCreated(new) => {
                self.known = Some(Known {
                    version: new.version,
                    status: FirmwareStatus::Pending,
                    work: None,
                    has_url: new.download_url.is_some(),
                    sha256: new.sha256,
                    is_uploaded: new.bundle.is_some(),
                    bundle: new.bundle,
                    previous: None,
                });
            }
            FirmwareEvent::FirmwareDeleted { .. } => (self.known, self.leaves_files) = (None, true),
            FirmwareEvent::FirmwareFilesRemoved => self.leaves_files = false,
            event => {
                if let Some(known) = &mut self.known {
                    known.apply(event);
                }
            }
        }
    }
}

impl Known {
    fn apply(&mut self, event: FirmwareEvent) {
        match event {
            FirmwareEvent::FirmwareCreated(_)
            | FirmwareEvent::FirmwareDeleted { .. }
            | FirmwareEvent::FirmwareFilesRemoved => {}
            FirmwareEvent::FirmwareBundleAdded { bundle, .. } => {
                (self.bundle, self.is_uploaded) = (Some(bundle), true);
            }
            FirmwareEvent::FirmwareApplyRequested { download_url, sha256 } => {
                self.status = FirmwareStatus::Downloading;
                self.work = Some(Work::default());
                if download_url.is_some() {
                    (self.has_url, self.bundle) = (true, None);
                }
                self.sha256 = sha256.or(self.sha256.take());
            }
            FirmwareEvent::FirmwareRollbackRequested { .. } => {
                self.work = Some(Work { is_rollback: true, ..Work::default() });
            }
            FirmwareEvent::FirmwareClaimed { claim, attempt } => {
                if let Some(work) = &mut self.work {
                    (work.claim, work.attempts) = (Some(claim), attempt);
                }
            }
            FirmwareEvent::FirmwareDownloaded { bundle, .. } => {
                (self.status, self.bundle) = (FirmwareStatus::Verifying, Some(bundle));
            }
            FirmwareEvent::FirmwareVerified { previous, .. } => {
                (self.status, self.previous) = (FirmwareStatus::Applying, previous);
            }
            FirmwareEvent::FirmwareCompleted { .. } => self.end(FirmwareStatus::Completed),
            FirmwareEvent::FirmwareFailed { keeps_bundle, .. } => {
                self.end(FirmwareStatus::Failed);
                self.bundle = self.bundle.take().filter(|_| keeps_bundle);
            }
            FirmwareEvent::FirmwareRolledBack { .. } => self.end(FirmwareStatus::RolledBack),
            FirmwareEvent::FirmwareRollbackFailed { .. } => self.end(FirmwareStatus::Completed),
        }
    }

    fn end(&mut self, status: FirmwareStatus) {
        (self.status, self.work) = (status, None);
    }
}
