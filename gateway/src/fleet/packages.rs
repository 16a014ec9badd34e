use std::{error::Error as _, fs::File};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};
use futures::TryStreamExt;
use serde::Serialize;
use signalbox_blob_store::{BlobError, BlobKey};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::sweep_time;
use signalbox_domain::{
    fleet::{PluginPackage, PluginPackageCommand},
    kernel::Sha256Hex,
};
use signalbox_plugins::{DescribeError, Plugins, WheelError};
use signalbox_projections::fleet::{PackageRow, queries};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    answer::{self, StatusOut},
    auth::{Admin, Reader},
    blobs::unusable,
    change::Change,
    extract::{self, Text},
    problem::{Problem, ProblemKind, ProblemOut, is_disk_full},
    services::{replica::Database, wheels::Wheels},
};

/// Its kind, as messages name it.
const WHAT: &str = "Plugin package";
/// A request may be repeated, with the same id, for a day.
const SWEPT_AFTER: TimeDelta = TimeDelta::hours(25);

/// An installed package.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackageOut {
    public_id: String,
    package_name: String,
    version: String,
    /// `uploaded`.
    #[schema(value_type = crate::words::PackageSource)]
    source: &'static str,
    /// The plugin classes that it offers.
    plugin_ids: Vec<String>,
    file_name: String,
    file_size_bytes: i64,
    /// Digest of the wheel.
    sha256: String,
    installed_on: DateTime<Utc>,
    removable: bool,
}

/// List the installed packages, oldest first.
#[utoipa::path(get, path = "/api/v1/plugins/packages", tag = "plugins", security(("jwt" = [])), operation_id = "list_plugin_packages",
    responses((status = 200, body = Vec<PackageOut>), (status = 401, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
) -> Result<Json<Vec<PackageOut>>, Problem> {
    let rows = database.read(queries::packages).await?;
    Ok(Json(rows.into_iter().map(Into::into).collect()))
}

/// Download the wheel of a package, as controllers do.
#[utoipa::path(get, path = "/api/v1/plugins/packages/{public_id}/wheel", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), operation_id = "get_plugin_wheel",
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut)))]
pub(crate) async fn wheel(
    State(database): State<Database>,
    State(wheels): State<Wheels>,
    _: Reader,
    Text(id): Text,
) -> Result<Response, Problem> {
    let row = find(&database, &id).await?;
    let (size, bytes) = wheels.read(&key(row.id), None).await.map_err(blob_failed)?;
    let mut response = Response::new(Body::from_stream(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    if let Ok(value) = HeaderValue::from_str(&answer::attachment(&row.file_name)) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// Uninstall a package. Instances of its plugins stay, and can be run again when it is back.
#[utoipa::path(delete, path = "/api/v1/plugins/packages/{public_id}", tag = "plugins", security(("jwt" = [])), params(("public_id" = String, Path,)), operation_id = "uninstall_plugin_package",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn uninstall(
    State(wheels): State<Wheels>,
    State(plugins): State<Plugins>,
    change: Change<Admin>,
) -> Result<Response, Problem> {
    let row = find(&change.database, &change.id).await?;
    let command = PluginPackageCommand::Uninstall;
    let written = change.write::<PluginPackage>(row.id, "uninstall plugin package", &command).await?;
    forget(&wheels, &plugins, row.id, row.sha256.parse().ok()).await;
    let message = "Package successfully uninstalled. Restart the controllers that run its plugins.";
    Ok(answer::success(written, message))
}

/// Removes the bytes of a package that is not, or no longer, installed. Remains take space and are never read.
pub(super) async fn forget(wheels: &Wheels, plugins: &Plugins, id: Uuid, sha256: Option<Sha256Hex>) {
    if let Err(error) = wheels.delete_transfer(id).await {
        tracing::warn!(%error, cause = error.source(), package = %id, "a wheel could not be deleted");
    }
    forget_unpacked(plugins, id, sha256).await;
}

/// Removes what was unpacked of a package that is not, or no longer, installed.
pub(super) async fn forget_unpacked(plugins: &Plugins, id: Uuid, sha256: Option<Sha256Hex>) {
    let plugins = plugins.clone();
    let removed = tokio::task::spawn_blocking(move || sha256.map(|sha256| plugins.remove(&sha256))).await;
    if let Ok(Some(Err(error))) = removed {
        tracing::warn!(%error, package = %id, "an unpacked wheel could not be deleted");
    }
}

/// Removes what uploads have left behind that were cut off: wheels and unpacked wheels of no package.
pub(crate) async fn sweep(
    database: &Database,
    clock: &Clock,
    wheels: &Wheels,
    plugins: &Plugins,
) -> Result<(), sqlx::Error> {
    let packages = database.read(queries::packages).await?;
    if let Err(error) = wheels.sweep().await {
        tracing::warn!(%error, cause = error.source(), "what was left of deleted wheels was not removed");
    }
    let Some(now) = sweep_time(&database.primary, clock).await? else { return Ok(()) };
    let kept = wheels.list_transfers().await.unwrap_or_default();
    let is_left = |id: &Uuid| is_old(*id, now) && packages.iter().all(|package| package.id != *id);
    for wheel in kept.into_iter().filter(is_left) {
        forget(wheels, plugins, wheel, None).await;
    }
    let plugins = plugins.clone();
    let digests = packages.into_iter().map(|package| package.sha256).collect();
    let swept = tokio::task::spawn_blocking(move || plugins.keep_only(&digests)).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(%error, "unpacked wheels that are not needed could not be deleted");
    }
    Ok(())
}

/// Whether a package of this id was uploaded so long ago that it is not sent again.
fn is_old(id: Uuid, now: DateTime<Utc>) -> bool {
    let made = id.get_timestamp().and_then(|time| i64::try_from(time.to_unix().0).ok());
    made.and_then(|seconds| DateTime::from_timestamp(seconds, 0)).is_none_or(|made| now - made > SWEPT_AFTER)
}

/// The wheel of `package` as a file without a name.
pub(super) async fn fetch(config: &Config, wheels: &Wheels, package: &PackageRow) -> Result<File, Problem> {
    let (_, bytes) = wheels.read(&key(package.id), None).await.map_err(blob_failed)?;
    let mut bytes = std::pin::pin!(bytes);
    let file = tempfile::tempfile_in(&config.storage.folder).map_err(|error| Problem::file(&error))?;
    let mut file = tokio::fs::File::from_std(file);
    let copied = async {
        while let Some(piece) = bytes.try_next().await? {
            file.write_all(&piece).await?;
        }
        file.flush().await?;
        file.rewind().await
    };
    copied.await.map_err(|error: std::io::Error| Problem::file(&error))?;
    Ok(file.into_std().await)
}

/// Where the wheel of package `id` is kept.
pub(super) fn key(id: Uuid) -> BlobKey {
    BlobKey::new(id, "wheel")
}

pub(super) fn blob_failed(error: BlobError) -> Problem {
    match error {
        BlobError::NotFound => Problem::not_found("Wheel"),
        BlobError::Superseded => {
            Problem::unavailable("The wheel is being uploaded twice: try again in a moment.")
        }
        other => unusable(&other),
    }
}

/// The problem of a package that could not be examined.
pub(super) fn failed(error: DescribeError) -> Problem {
    match error {
        DescribeError::Busy | DescribeError::Unconfined(_) => Problem::unavailable(error.to_string()),
        DescribeError::Io(error) => Problem::file(&error),
        DescribeError::Wheel(WheelError::Io(error)) if is_disk_full(&error) => Problem::file(&error),
        DescribeError::Missing(missing) => {
            let missing = missing.join(", ");
            let detail = format!(
                "The package needs others that are not there: {missing}. Install them for the Python of the server and \
                 of the controllers, or put them into the wheel."
            );
            Problem::new(ProblemKind::Invalid, "missing_requirements", detail)
        }
        DescribeError::Plugin(_) | DescribeError::NoPython(_) | DescribeError::Wheel(_) => {
            let detail = format!("The package was not installed: {error}");
            Problem::new(ProblemKind::Internal, "installation_failed", detail)
        }
    }
}

async fn find(database: &Database, id: &str) -> Result<PackageRow, Problem> {
    let id = extract::key(WHAT, id)?;
    database.read(|pool| queries::package(pool, id)).await?.ok_or_else(|| Problem::not_found(WHAT))
}

impl From<PackageRow> for PackageOut {
    fn from(row: PackageRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            package_name: row.name,
            version: row.package_version,
            source: "uploaded",
            plugin_ids: row.classes.0.into_iter().map(|class| class.id).collect(),
            file_name: row.file_name,
            file_size_bytes: row.size,
            sha256: row.sha256,
            installed_on: row.created_at,
            removable: true,
        }
    }
}
