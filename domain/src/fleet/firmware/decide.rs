use uuid::Uuid;

use super::{
    Firmware, FirmwareBundle, FirmwareCommand, FirmwareEvent, FirmwareFailure, FirmwareStatus, NewFirmware,
    state::{Known, Work},
};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, ReleaseVersion, Sha256Hex, clean_text};

/// Longest text about a version, in characters.
pub const MAX_CHANGELOG: usize = 10_000;
/// Longest address of a bundle, in characters.
pub const MAX_URL: usize = 2048;
/// Longest signature, in characters.
pub const MAX_SIGNATURE: usize = 2000;

const VERSION_CLAIM: &str = "firmware.version";
/// Taken while an update is being applied or rolled back.
const WORK_CLAIM: &str = "firmware.under_way";
/// Held by the update that came into force after this one, until it is rolled back. A claim is released by the update
/// that took it.
const SUCCESSOR_CLAIM: &str = "firmware.successor_of.";

type Decided = Result<Vec<FirmwareEvent>, Rejection>;

impl Decider for Firmware {
    const TYPE: &'static str = "firmware";
    const CONTEXT: &'static str = "fleet";
    const STATE_VERSION: i32 = 1;
    const IS_ONE_TRACE: bool = true;
    type Command = FirmwareCommand;
    type Event = FirmwareEvent;

    fn decide(&self, command: FirmwareCommand) -> Decided {
        match (command, &self.known) {
            (FirmwareCommand::Create(new), None) if !self.leaves_files => {
                Ok(vec![FirmwareEvent::FirmwareCreated(new.validate()?)])
            }
            (FirmwareCommand::Create(_), _) => Err(taken()),
            (FirmwareCommand::RecordFilesRemoved, None) => {
                Ok(self.leaves_files.then_some(FirmwareEvent::FirmwareFilesRemoved).into_iter().collect())
            }
            (_, None) => Err(Rejection::not_found("Firmware update")),
            (command, Some(known)) => known.decide(command),
        }
    }

    fn evolve(&mut self, event: FirmwareEvent) {
        self.apply(event);
    }

    fn claims(id: Uuid, event: &FirmwareEvent) -> Vec<Claim> {
        let version = |op, version: &ReleaseVersion| Claim::new(op, VERSION_CLAIM, version.to_string());
        let work = |op| Claim::new(op, WORK_CLAIM, "");
        let successor = |op, id: Uuid| Claim::new(op, format!("{SUCCESSOR_CLAIM}{id}"), "");
        match event {
            FirmwareEvent::FirmwareCreated(new) => vec![version(ClaimOp::Take, &new.version)],
            FirmwareEvent::FirmwareApplyRequested { .. } => vec![work(ClaimOp::Take)],
            FirmwareEvent::FirmwareRollbackRequested { .. } => {
                vec![successor(ClaimOp::RequireNone, id), work(ClaimOp::Take)]
            }
            FirmwareEvent::FirmwareCompleted { previous, .. } => {
                let succeeds = previous.map(|previous| successor(ClaimOp::Take, previous.id.0));
                succeeds.into_iter().chain([work(ClaimOp::Release)]).collect()
            }
            FirmwareEvent::FirmwareRolledBack { to, .. } => {
                let succeeded = to.map(|to| successor(ClaimOp::Release, to.id.0));
                succeeded.into_iter().chain([work(ClaimOp::Release)]).collect()
            }
            FirmwareEvent::FirmwareFailed { .. } | FirmwareEvent::FirmwareRollbackFailed { .. } => {
                vec![work(ClaimOp::Release)]
            }
            FirmwareEvent::FirmwareDeleted { version: gone, was_completed } => {
                let succeeded = was_completed.then(|| successor(ClaimOp::Require, id));
                succeeded.into_iter().chain([version(ClaimOp::Release, gone)]).collect()
            }
            FirmwareEvent::FirmwareBundleAdded { .. }
            | FirmwareEvent::FirmwareClaimed { .. }
            | FirmwareEvent::FirmwareDownloaded { .. }
            | FirmwareEvent::FirmwareVerified { .. }
            | FirmwareEvent::FirmwareFilesRemoved => Vec::new(),
        }
    }

    fn claim_rejection(op: ClaimOp, kind: &str) -> Rejection {
        match (op, kind) {
            (_, VERSION_CLAIM) => taken(),
            (_, WORK_CLAIM) => Rejection::conflict(
                "update_under_way",
                "Another firmware update is being applied or rolled back: wait until that has ended.",
            ),
            (ClaimOp::Require, _) => Rejection::conflict(
                "firmware_running",
                "This version is running: apply another one or roll it back before you delete it.",
            ),
            _ => Rejection::conflict(
                "firmware_not_running",
                "Only the running version can be rolled back, and this is not it.",
            ),
        }
    }
}

fn taken() -> Rejection {
    Rejection::conflict("firmware_exists", "A firmware update with this version exists already.")
}

impl NewFirmware {
    /// The update as it may be recorded.
    ///
    /// # Errors
    /// A [`Rejection`] that names the field.
    pub fn validate(self) -> Result<Self, Rejection> {
        check_digest(self.sha256.as_ref(), self.bundle.as_ref())?;
        Ok(Self {
            changelog: optional_text("changelog", self.changelog, MAX_CHANGELOG)?,
            download_url: optional_text("download_url", self.download_url, MAX_URL)?,
            signature: optional_text("signature", self.signature, MAX_SIGNATURE)?,
            ..self
        })
    }
}

fn optional_text(field: &str, text: Option<String>, max: usize) -> Result<Option<String>, Rejection> {
    let text = clean_text(text.as_deref().unwrap_or_default(), max)
        .map_err(|error| Rejection::field(field, error))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn check_digest(expected: Option<&Sha256Hex>, bundle: Option<&FirmwareBundle>) -> Result<(), Rejection> {
    match (expected, bundle) {
        (Some(expected), Some(bundle)) if *expected != bundle.sha256 => Err(Rejection::invalid(
            "checksum_mismatch",
            format!("file_hash_sha256 is not that of the bundle, which is {}.", bundle.sha256),
        )
        .about("file_hash_sha256")),
        _ => Ok(()),
    }
}

impl Known {
    fn decide(&self, command: FirmwareCommand) -> Decided {
        match command {
            FirmwareCommand::Create(_) => Err(taken()),
            FirmwareCommand::AddBundle { bundle, signature } => self.add_bundle(bundle, signature),
            FirmwareCommand::Apply { download_url, sha256 } => self.request(download_url, sha256),
            FirmwareCommand::Rollback => match (self.status, &self.work) {
                (FirmwareStatus::Completed, None) => {
                    Ok(vec![FirmwareEvent::FirmwareRollbackRequested { version: self.version }])
                }
                _ => Err(self.no_way_to("rolled_back")),
            },
            FirmwareCommand::Begin { claim } => match &self.work {
                Some(work) => Ok(vec![FirmwareEvent::FirmwareClaimed { claim, attempt: work.attempts + 1 }]),
                None => Err(Rejection::conflict("not_due", "There is nothing to do for this update.")),
            },
            FirmwareCommand::RecordDownload { claim, bundle } => {
                self.under(claim, FirmwareStatus::Downloading)?;
                Ok(vec![FirmwareEvent::FirmwareDownloaded { claim, bundle }])
            }
            FirmwareCommand::RecordVerification { claim, previous } => {
                self.under(claim, FirmwareStatus::Verifying)?;
                Ok(vec![FirmwareEvent::FirmwareVerified { claim, previous }])
            }
            FirmwareCommand::Complete { claim } => {
                self.under(claim, FirmwareStatus::Applying)?;
                Ok(vec![FirmwareEvent::FirmwareCompleted { version: self.version, previous: self.previous }])
            }
            FirmwareCommand::CompleteRollback { claim } => {
                self.under(claim, FirmwareStatus::Completed)?;
                Ok(vec![FirmwareEvent::FirmwareRolledBack { version: self.version, to: self.previous }])
            }
            FirmwareCommand::Fail { claim, failure } => self.fail(claim, failure),
            FirmwareCommand::Delete => match self.work {
                None => Ok(vec![FirmwareEvent::FirmwareDeleted {
                    version: self.version,
                    was_completed: self.status == FirmwareStatus::Completed,
                }]),
                Some(_) => Err(Rejection::conflict(
                    "update_under_way",
                    "This update is being applied or rolled back: wait until that has ended before you delete it.",
                )),
            },
            FirmwareCommand::RecordFilesRemoved => Ok(Vec::new()),
        }
    }

    fn add_bundle(&self, bundle: FirmwareBundle, signature: Option<String>) -> Decided {
        if self.bundle.is_some() || self.work.is_some() || self.status == FirmwareStatus::Completed {
            return Err(taken());
        }
        check_digest(self.sha256.as_ref(), Some(&bundle))?;
        let signature = optional_text("signature", signature, MAX_SIGNATURE)?;
        Ok(vec![FirmwareEvent::FirmwareBundleAdded { bundle, signature }])
    }

    fn request(&self, download_url: Option<String>, sha256: Option<Sha256Hex>) -> Decided {
        if matches!(self.status, FirmwareStatus::Completed) || self.work.is_some() {
            return Err(self.no_way_to("downloading"));
        }
        let download_url = optional_text("download_url", download_url, MAX_URL)?;
        if download_url.is_some() && self.bundle.is_some() && self.is_uploaded {
            let message = "This version has a bundle that was uploaded: apply it without a download_url.";
            return Err(Rejection::conflict("bundle_present", message));
        }
        if download_url.is_none() && self.bundle.is_none() && !self.has_url {
            let message = "This version has no bundle: upload one, or apply it with a download_url.";
            return Err(Rejection::conflict("no_bundle", message));
        }
        Ok(vec![FirmwareEvent::FirmwareApplyRequested { download_url, sha256 }])
    }

    fn fail(&self, claim: Uuid, failure: FirmwareFailure) -> Decided {
        self.under(claim, self.status)?;
        Ok(vec![if self.work.as_ref().is_some_and(|work| work.is_rollback) {
            FirmwareEvent::FirmwareRollbackFailed { failure }
        } else {
            FirmwareEvent::FirmwareFailed { failure, keeps_bundle: self.is_uploaded }
        }])
    }

    /// Whether `claim` is the current claim, and the work is in `status`.
    fn under(&self, claim: Uuid, status: FirmwareStatus) -> Result<(), Rejection> {
        match &self.work {
            Some(Work { claim: Some(holder), .. }) if *holder == claim && self.status == status => Ok(()),
            _ => Err(Rejection::conflict("claim_ended", "Another worker has taken over this update.")),
        }
    }

    fn no_way_to(&self, status: &str) -> Rejection {
        let from = match &self.work {
            Some(work) if work.is_rollback => "rolling back",
            _ => self.status.as_str(),
        };
        let message = format!("The firmware update cannot transition from '{from}' to '{status}'.");
        Rejection::conflict("invalid_transition", message)
    }
}
