//! Firmware updates and the version in force, as tables, and queries about them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_boxed::boxed;
use signalbox_domain::{
    fleet::{FirmwareBundle, FirmwareEvent, FirmwareFailure, FirmwareRef, FirmwareStatus, NewFirmware},
    kernel::{FirmwareUpdateId, ReleaseVersion, UserId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, list},
    table::{ReadRow, Table},
};

/// An installation has one version in force.
pub(super) const INSTALLATION: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0002);

/// Status of an update in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RowStatus {
    /// One that clients see.
    Shown(FirmwareStatus),
    Hidden(HiddenStatus),
}

/// Status of an update that no client sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenStatus {
    /// Its files are yet to be removed.
    Deleted,
}

/// Work on an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareWork {
    /// It is brought into force.
    Apply,
    /// The firmware before it is.
    Rollback,
}

impl From<FirmwareStatus> for Word<RowStatus> {
    fn from(status: FirmwareStatus) -> Self {
        RowStatus::Shown(status).into()
    }
}

/// A version that machines may be brought to.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct FirmwareRow {
    /// Key; of a bundle that was fetched in the blob store too.
    pub id: FirmwareUpdateId,
    pub owner_id: UserId,
    /// The version of the firmware.
    pub release: String,
    /// Release notes.
    pub changelog: Option<String>,
    /// Where its bundle is fetched from.
    pub download_url: Option<String>,
    /// Expected digest of the bundle.
    pub expected_sha256: Option<String>,
    /// Signature of the bundle.
    pub signature: Option<String>,
    /// Names the bundle in the blob store.
    pub blob_id: Option<Uuid>,
    /// Of the bundle, in bytes.
    pub file_size: Option<i64>,
    /// Of the bundle.
    pub file_sha256: Option<String>,
    pub status: Word<RowStatus>,
    /// Why it failed, or could not be rolled back.
    pub error: Option<String>,
    /// Stable word for that.
    pub error_code: Option<String>,
    /// Work that waits for a worker.
    pub work: Option<Word<FirmwareWork>>,
    /// How often that was begun.
    pub attempts: i32,
    /// The firmware in force before it; absent for the one that shipped with the product.
    pub previous: Option<Json<FirmwareRef>>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last to be applied.
    pub started_at: Option<DateTime<Utc>>,
    /// When it came into force.
    pub completed_at: Option<DateTime<Utc>>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for FirmwareRow {
    const TABLE: &'static str = "firmware_updates";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

/// The version in force.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct InstallationRow {
    /// Always the same.
    pub id: Uuid,
    /// Absent for the firmware that shipped with the product.
    pub running: Option<Json<FirmwareRef>>,
}

impl ReadRow for InstallationRow {
    const TABLE: &'static str = "firmware_installation";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// The row whose version `event` brings into force.
pub(super) fn changed_installation(event: &FirmwareEvent) -> Option<Uuid> {
    match event {
        FirmwareEvent::FirmwareCompleted { .. } | FirmwareEvent::FirmwareRolledBack { .. } => {
            Some(INSTALLATION)
        }
        _ => None,
    }
}

pub(super) fn fold(
    rows: &mut Table<FirmwareRow>,
    installation: &mut Table<InstallationRow>,
    recorded: &RecordedEvent,
    event: FirmwareEvent,
) {
    match event {
        FirmwareEvent::FirmwareCreated(new) => return rows.put(FirmwareRow::new(recorded, new)),
        FirmwareEvent::FirmwareFilesRemoved => return rows.remove(recorded.aggregate_id),
        FirmwareEvent::FirmwareCompleted { version, .. } => {
            run(installation, Some(FirmwareRef { id: FirmwareUpdateId(recorded.aggregate_id), version }))
        }
        FirmwareEvent::FirmwareRolledBack { to, .. } => run(installation, to),
        _ => {}
    }
    if let Some(row) = rows.change(recorded.aggregate_id) {
        row.version = recorded.sequence;
        row.updated_at = recorded.recorded_at;
        row.change(recorded.recorded_at, event);
    }
}

fn run(installation: &mut Table<InstallationRow>, running: Option<FirmwareRef>) {
    let running = running.map(Json);
    match installation.change(INSTALLATION) {
        Some(row) => row.running = running,
        None => installation.put(InstallationRow { id: INSTALLATION, running }),
    }
}

impl FirmwareRow {
    fn new(recorded: &RecordedEvent, new: NewFirmware) -> Self {
        let at = recorded.recorded_at;
        let mut row = Self {
            id: FirmwareUpdateId(recorded.aggregate_id),
            owner_id: new.owner,
            release: new.version.to_string(),
            changelog: new.changelog,
            download_url: new.download_url,
            expected_sha256: new.sha256.map(String::from),
            signature: new.signature,
            blob_id: None,
            file_size: None,
            file_sha256: None,
            status: FirmwareStatus::Pending.into(),
            error: None,
            error_code: None,
            work: None,
            attempts: 0,
            previous: None,
            version: recorded.sequence,
            created_at: at,
            started_at: None,
            completed_at: None,
            updated_at: at,
        };
        row.set_bundle(new.bundle);
        row
    }

    fn change(&mut self, at: DateTime<Utc>, event: FirmwareEvent) {
        match event {
            FirmwareEvent::FirmwareCreated(_) | FirmwareEvent::FirmwareFilesRemoved => {}
            FirmwareEvent::FirmwareBundleAdded { bundle, signature } => {
                self.set_bundle(Some(bundle));
                self.signature = signature.or(self.signature.take());
            }
            FirmwareEvent::FirmwareApplyRequested { download_url, sha256 } => {
                self.begin(FirmwareWork::Apply);
                (self.started_at, self.completed_at) = (Some(at), None);
                self.status = FirmwareStatus::Downloading.into();
                if download_url.is_some() {
                    self.download_url = download_url;
                    self.set_bundle(None);
                }
                self.expected_sha256 = sha256.map(String::from).or(self.expected_sha256.take());
            }
            FirmwareEvent::FirmwareRollbackRequested { .. } => self.begin(FirmwareWork::Rollback),
            FirmwareEvent::FirmwareClaimed { attempt, .. } => {
                self.attempts = i32::try_from(attempt).unwrap_or(i32::MAX);
            }
            FirmwareEvent::FirmwareDownloaded { bundle, .. } => {
                self.set_bundle(Some(bundle));
                self.status = FirmwareStatus::Verifying.into();
            }
            FirmwareEvent::FirmwareVerified { previous, .. } => {
                self.previous = previous.map(Json);
                self.status = FirmwareStatus::Applying.into();
            }
            FirmwareEvent::FirmwareCompleted { .. } => {
                self.end(FirmwareStatus::Completed, None);
                self.completed_at = Some(at);
            }
            FirmwareEvent::FirmwareFailed { failure, keeps_bundle } => {
                self.end(FirmwareStatus::Failed, Some(failure));
                if !keeps_bundle {
                    self.set_bundle(None);
                }
            }
            FirmwareEvent::FirmwareRolledBack { .. } => self.end(FirmwareStatus::RolledBack, None),
            FirmwareEvent::FirmwareRollbackFailed { failure } => {
                self.end(FirmwareStatus::Completed, Some(failure));
            }
            FirmwareEvent::FirmwareDeleted { .. } => {
                self.status = RowStatus::Hidden(HiddenStatus::Deleted).into()
            }
        }
    }

    fn set_bundle(&mut self, bundle: Option<FirmwareBundle>) {
        self.blob_id = bundle.as_ref().map(|bundle| bundle.blob);
        self.file_size = bundle.as_ref().and_then(|bundle| i64::try_from(bundle.size).ok());
        self.file_sha256 = bundle.map(|bundle| bundle.sha256.into());
    }

    fn begin(&mut self, work: FirmwareWork) {
        self.work = Some(work.into());
        self.attempts = 0;
        (self.error, self.error_code) = (None, None);
    }

    fn end(&mut self, status: FirmwareStatus, failure: Option<FirmwareFailure>) {
        self.work = None;
        self.status = status.into();
        (self.error, self.error_code) = failure.map(|it| (it.message, it.code)).unzip();
    }
}

/// Which updates are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct FirmwareFilter {
    /// Status word.
    pub status: Option<&'static str>,
    /// Version of the firmware.
    pub release: Option<String>,
}

/// The update `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn firmware(pool: &PgPool, id: FirmwareUpdateId) -> Result<Option<FirmwareRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.firmware_updates WHERE id = $1 AND status <> 'deleted'")
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// The update of version `release`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn firmware_of(pool: &PgPool, release: ReleaseVersion) -> Result<Option<FirmwareRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.firmware_updates WHERE release = $1 AND status <> 'deleted'")
        .bind(release.to_string())
        .fetch_optional(pool)
        .await
}

impl Listed for FirmwareRow {
    const SORTING: Sorting = Sorting::newest_first(
        ("created_on", "created_at"),
        &[("status", "status"), ("version", "string_to_array(release, '.')::numeric[]")],
        "id",
    );
}

/// A page of updates and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn firmware_updates(
    pool: &PgPool,
    filter: &FirmwareFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<FirmwareRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.firmware_updates WHERE status <> 'deleted'");
        and_eq(query, "status", filter.status);
        and_eq(query, "release", filter.release.as_deref());
    })
    .await
}

/// The firmware in force; `None` for the one that shipped with the product.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn running_firmware(pool: &PgPool) -> Result<Option<FirmwareRef>, sqlx::Error> {
    let installation: Option<InstallationRow> =
        sqlx::query_as("SELECT * FROM read.firmware_installation").fetch_optional(pool).await?;
    Ok(installation.and_then(|row| row.running).map(|Json(running)| running))
}

/// The newest version that can be applied, or was.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn newest_firmware(pool: &PgPool) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT release FROM read.firmware_updates WHERE status IN ('pending', 'completed')
          ORDER BY string_to_array(release, '.')::numeric[] DESC LIMIT 1",
    )
    .fetch_optional(pool)
    .await
}

/// The update that a worker is to apply or to roll back: there is one at most.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn firmware_at_work(pool: &PgPool) -> Result<Option<FirmwareRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.firmware_updates WHERE work IS NOT NULL").fetch_optional(pool).await
}

/// Updates that were deleted, whose files are yet to be removed.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn deleted_firmware(pool: &PgPool, limit: i64) -> Result<Vec<FirmwareRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.firmware_updates WHERE status = 'deleted' ORDER BY id LIMIT $1")
        .bind(limit)
        .fetch_all(pool)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word;

    #[test]
    fn a_row_has_the_words_that_clients_see_and_one_of_its_own() {
        assert_eq!(Word::<RowStatus>::from(FirmwareStatus::RolledBack).as_str(), "rolled_back");
        let deleted = RowStatus::Hidden(HiddenStatus::Deleted);
        assert_eq!(word(deleted), "deleted");
        for status in [RowStatus::Shown(FirmwareStatus::Applying), deleted] {
            let read: RowStatus = serde_json::from_value(word(status).into()).unwrap();
            assert_eq!(read, status);
        }
    }
}
