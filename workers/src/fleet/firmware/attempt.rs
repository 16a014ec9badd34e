use std::{fs::File, sync::Arc};

use signalbox_blob_store::{BlobError, BlobKey};
use signalbox_domain::{
    fleet::{Firmware, FirmwareBundle, FirmwareCommand, FirmwareFailure, FirmwareRef, FirmwareStatus},
    kernel::{ReleaseVersion, Sha256Hex},
};
use signalbox_firmware::{Locked, Occasion, UnpackError, VerifyError};
use signalbox_projections::fleet::firmware::{FirmwareRow, FirmwareWork, RowStatus, running_firmware};
use tokio::task::spawn_blocking;

use super::{
    FirmwareRunner,
    download::{BUNDLE, bundle_of, fetch},
    held::Held,
};
use crate::{Context, WorkerError};

/// One attempt to apply an update or to roll it back, under a claim and the lock on this machine's versions.
pub(super) struct Attempt<'c> {
    pub(super) context: &'c Context,
    pub(super) runner: &'c FirmwareRunner,
    pub(super) locked: Arc<Locked>,
    /// As it was before this look.
    pub(super) row: FirmwareRow,
    pub(super) held: Arc<Held>,
    /// Attempts of which nothing was heard after they began.
    pub(super) lost: i32,
}

/// Why an attempt ends early.
enum Stop {
    /// The update fails.
    Failed(FirmwareFailure),
    /// The claim was lost, or the read model lags: the next owner continues.
    Lost,
    /// The step is retried.
    Hindered(WorkerError),
}

impl<E: Into<WorkerError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Hindered(error.into())
    }
}

impl Attempt<'_> {
    fn has_work(&self, work: FirmwareWork) -> bool {
        self.row.work.as_ref().is_some_and(|of_row| of_row.is(work))
    }

    fn is_at(&self, status: FirmwareStatus) -> bool {
        self.row.status.is(RowStatus::Shown(status))
    }

    /// Performs all remaining steps. A failure leaves the previous firmware in force.
    pub(super) async fn run(self) -> Result<(), WorkerError> {
        let is_rollback = self.has_work(FirmwareWork::Rollback);
        let is_known = is_rollback || self.is_at(FirmwareStatus::Applying);
        let previous = match &self.row.previous {
            known if is_known => known.as_ref().map(|previous| previous.0),
            _ => running_firmware(&self.context.pool).await?,
        };
        let before = previous.map(|previous| previous.version);
        let Ok(release) = self.row.release.parse() else {
            return self.fail(failure("invalid_version", "the version cannot be read")).await;
        };
        let (done, tried, kept) = match is_rollback {
            true => (self.roll_back(release, before).await, before, Some(release)),
            false => (self.apply(release, previous).await, Some(release), before),
        };
        let failure = match done {
            Ok(()) | Err(Stop::Lost) => return Ok(()),
            Err(Stop::Failed(failure)) => failure,
            Err(Stop::Hindered(error)) if self.held.note_hindrance(&self.context.clock) => {
                failure("hindered", format!("it could not go on for an hour: {error}"))
            }
            // The attempts follow each other ever more slowly: each may fetch a bundle.
            Err(Stop::Hindered(error)) => return Err(WorkerError::Hindered(Box::new(error))),
        };
        match self.lead_back(tried, kept) {
            Ok(()) => self.fail(failure).await,
            Err(error) if self.held.note_hindrance(&self.context.clock) => {
                let code = failure.code.clone();
                let message =
                    format!("{failure}; and the link cannot lead back: {error}", failure = failure.message);
                self.fail(FirmwareFailure { code, message }).await
            }
            Err(error) => Err(WorkerError::Hindered(Box::new(error.into()))),
        }
    }

    fn lead_back(&self, tried: Option<ReleaseVersion>, kept: Option<ReleaseVersion>) -> std::io::Result<()> {
        if self.locked.current()? == tried {
            self.locked.switch(kept.filter(|kept| self.locked.has(*kept)))?;
        }
        Ok(())
    }

    async fn fail(&self, failure: FirmwareFailure) -> Result<(), WorkerError> {
        tracing::warn!(release = self.row.release, failure.message, "a firmware update failed");
        let command = FirmwareCommand::Fail { claim: self.held.claim, failure };
        // Else the bundle is another worker's.
        let failed = self.send("fail", &command).await?;
        if failed && self.has_work(FirmwareWork::Apply) {
            // One that was fetched is fetched again next time; one that was uploaded has another key.
            self.runner.blobs.delete_transfer(self.row.id.0).await?;
        }
        Ok(())
    }

    async fn apply(&self, release: ReleaseVersion, previous: Option<FirmwareRef>) -> Result<(), Stop> {
        let complete = FirmwareCommand::Complete { claim: self.held.claim };
        if self.held.is_hook_done() {
            return self.record("complete", complete).await;
        }
        self.check_attempts()?;
        let bundle = self.download().await?;
        let file = self.verify(&bundle).await?;
        if !self.is_at(FirmwareStatus::Applying) {
            let command = FirmwareCommand::RecordVerification { claim: self.held.claim, previous };
            self.record("verification", command).await?;
        }
        // A killed worker may have reached this step.
        if self.locked.current()? != Some(release) {
            self.unpack(release, file).await?;
            self.locked.switch(Some(release))?;
        }
        let before = previous.map(|previous| previous.version);
        self.run_hook(Occasion::Apply, Some(release), before).await?;
        self.record("complete", complete).await
    }

    async fn roll_back(&self, release: ReleaseVersion, previous: Option<ReleaseVersion>) -> Result<(), Stop> {
        let complete = FirmwareCommand::CompleteRollback { claim: self.held.claim };
        if self.held.is_hook_done() {
            return self.record("complete rollback", complete).await;
        }
        self.check_attempts()?;
        if let Some(missing) = previous.filter(|previous| !self.locked.has(*previous)) {
            let why =
                format!("version {missing} is not on this machine any more: apply another version instead");
            return Err(Stop::Failed(failure("version_missing", why)));
        }
        self.locked.switch(previous)?;
        self.run_hook(Occasion::Rollback, previous, Some(release)).await?;
        self.record("complete rollback", complete).await
    }

    /// An update that has crashed every worker is not tried for ever.
    fn check_attempts(&self) -> Result<(), Stop> {
        if self.lost < MAX_LOST {
            return Ok(());
        }
        let why = format!(
            "it was begun {MAX_LOST} times, and its process ended or lost its lease each time: look at what the hook does, at the disk, and \
             at the connection to the database"
        );
        Err(Stop::Failed(failure("worker_lost", why)))
    }

    async fn run_hook(
        &self,
        occasion: Occasion,
        version: Option<ReleaseVersion>,
        previous: Option<ReleaseVersion>,
    ) -> Result<(), Stop> {
        let ran = self.locked.run_hook(occasion, version, previous).await;
        ran.map_err(|error| Stop::Failed(failure("hook_failed", error)))?;
        self.held.note_hook();
        Ok(())
    }

    async fn download(&self) -> Result<FirmwareBundle, Stop> {
        if !self.is_at(FirmwareStatus::Downloading) {
            return bundle_of(&self.row).ok_or(Stop::Lost);
        }
        let fetched = fetch(self.runner, &self.row).await?;
        let bundle = fetched
            .map_err(|why| Stop::Failed(failure("download_failed", format!("download_failed: {why}"))))?;
        let command = FirmwareCommand::RecordDownload { claim: self.held.claim, bundle: bundle.clone() };
        self.record("download", command).await?;
        Ok(bundle)
    }

    /// Returns the very file that was verified: it is the one that is unpacked.
    async fn verify(&self, bundle: &FirmwareBundle) -> Result<File, Stop> {
        let mut file = match self.runner.blobs.open_file(&BlobKey::new(bundle.blob, BUNDLE)).await {
            Ok((_, file)) => file,
            Err(BlobError::NotFound) => {
                let why = "the bundle is not in the blob store any more: delete the update and make it again";
                return Err(Stop::Failed(failure("bundle_missing", why)));
            }
            Err(error) => return Err(error.into()),
        };
        let expected: Option<Sha256Hex> = self.row.expected_sha256.as_ref().and_then(|it| it.parse().ok());
        let expected = expected.unwrap_or_else(|| bundle.sha256.clone());
        let (updates, signature) = (self.runner.firmware.clone(), self.row.signature.clone());
        let verified =
            spawn_blocking(move || updates.verify(&mut file, &expected, signature.as_deref()).map(|()| file));
        match verified.await.map_err(std::io::Error::other)? {
            Ok(file) => Ok(file),
            Err(VerifyError::Io(error)) => Err(error.into()),
            Err(error) => Err(Stop::Failed(failure(error.code(), error))),
        }
    }

    async fn unpack(&self, release: ReleaseVersion, bundle: File) -> Result<(), Stop> {
        let locked = self.locked.clone();
        let unpacked = spawn_blocking(move || locked.unpack(release, bundle));
        match unpacked.await.map_err(std::io::Error::other)? {
            Ok(()) => Ok(()),
            Err(UnpackError::Io(error)) if !is_full(&error) => Err(error.into()),
            Err(error) => Err(Stop::Failed(failure(error.code(), error))),
        }
    }

    async fn record(&self, what: &str, command: FirmwareCommand) -> Result<(), Stop> {
        if !self.send(what, &command).await? {
            return Err(Stop::Lost);
        }
        self.held.note_progress();
        Ok(())
    }

    /// Returns false if the claim was lost.
    async fn send(&self, what: &str, command: &FirmwareCommand) -> Result<bool, WorkerError> {
        let key = format!("{what} {}", self.held.claim);
        let sent = self.context.send_if_still_due::<Firmware>(NAME, self.row.id.0, &key, command).await?;
        Ok(sent.is_some())
    }
}

/// The name of the worker that makes attempts.
pub(super) const NAME: &str = "firmware";
/// How many attempts may be lost with their processes.
const MAX_LOST: i32 = 3;

fn failure(code: &str, message: impl std::fmt::Display) -> FirmwareFailure {
    FirmwareFailure { code: code.to_owned(), message: message.to_string() }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
