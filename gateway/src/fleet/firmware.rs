use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_config::Config;
use signalbox_domain::{
    fleet::{Firmware, FirmwareCommand, FirmwareRef, FirmwareStatus, NewFirmware},
    kernel::{FirmwareUpdateId, ReleaseVersion, Sha256Hex},
};
use signalbox_firmware::is_signature;
use signalbox_projections::{
    fleet::{
        firmware::{self, FirmwareFilter, FirmwareRow, RowStatus},
        past_firmware,
    },
    register::At,
};
use tokio::time::{Instant, sleep};
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer::{self, Page, StatusOut},
    auth::Admin,
    change::Change,
    context::RequestContext,
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, key, parse_json, read_json},
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    resource::after_write,
    services::{commands::Commands, replica::Database},
    target::reachable,
};

/// The running version if no update was ever applied.
const PRODUCT: &str = env!("CARGO_PKG_VERSION");
/// Name of the resource in messages.
const WHAT: &str = "Firmware update";
/// Time limit of waiting for a rollback; after it the answer is that it is in progress.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// A firmware update.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FirmwareOut {
    public_id: String,
    version: String,
    changelog: Option<String>,
    /// Where the bundle is fetched from.
    download_url: Option<String>,
    /// The SHA-256 that the bundle must have, or else the one it has.
    file_hash_sha256: Option<String>,
    file_size_bytes: Option<i64>,
    /// `pending`, `downloading`, `verifying`, `applying`, `completed`, `failed` or `rolled_back`.
    #[schema(value_type = crate::words::FirmwareStatus)]
    status: String,
    /// Why it failed, or could not be rolled back.
    error_message: Option<String>,
    created_on: DateTime<Utc>,
    /// When it was last applied.
    started_on: Option<DateTime<Utc>>,
    /// When it came into force.
    completed_on: Option<DateTime<Utc>>,
    /// The user that created it.
    user_public_id: String,
    /// Whether its bundle is here.
    has_firmware_file: bool,
    /// Whether it is in force.
    is_running: bool,
}

/// A new firmware update.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct FirmwareIn {
    /// Three numbers, such as 1.4.0; unique.
    version: String,
    /// At most 10,000 characters.
    changelog: Option<String>,
    /// Where the bundle is fetched from when it is applied: begins with http:// or https://.
    download_url: Option<String>,
    /// The SHA-256 that the bundle must have.
    file_hash_sha256: Option<String>,
    /// Signature of the bundle, as minisign writes it.
    signature: Option<String>,
}

/// How an update is applied; all of it may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct FirmwareApplyIn {
    /// Where the bundle is fetched from, instead of where is known.
    download_url: Option<String>,
    /// The SHA-256 that the bundle must have, instead of the known one.
    file_hash_sha256: Option<String>,
}

/// The version that runs, and the newest known one that is above it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FirmwareCheckOut {
    current_version: String,
    /// Null when nothing newer is known.
    latest_version: Option<String>,
    update_available: bool,
    /// Always null: releases are not looked for elsewhere.
    github_latest_version: Option<String>,
    /// Always null.
    github_download_url: Option<String>,
    /// Always null.
    github_release_url: Option<String>,
    /// Always null.
    github_error: Option<String>,
}

/// Which updates are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FirmwareParams {
    #[param(value_type = Option<crate::words::FirmwareStatus>)]
    status: Option<FirmwareStatus>,
    version: Option<String>,
}

/// List firmware updates, newest first.
#[utoipa::path(get, path = "/api/v1/ota", tag = "firmware", security(("jwt" = [])), params(EnvelopeParams, Sort<FirmwareRow>, FirmwareParams), operation_id = "list_firmware",
    responses((status = 200, body = Page<FirmwareOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<FirmwareRow>,
    Params(params): Params<FirmwareParams>,
) -> Result<Json<Page<FirmwareOut>>, Problem> {
    let filter =
        FirmwareFilter { status: params.status.map(FirmwareStatus::as_str), release: params.version };
    let page = envelope.page()?;
    let (rows, total) =
        database.read(|pool| firmware::firmware_updates(pool, &filter, sort.order(), page)).await?;
    let running = database.read(firmware::running_firmware).await?;
    let shown = rows.into_iter().map(|row| FirmwareOut::of(row, running)).collect();
    Ok(Json(envelope.envelope(total, shown)))
}

/// Make a firmware update known. Its bundle is uploaded later, or fetched from `download_url` when it is applied.
#[utoipa::path(post, path = "/api/v1/ota", tag = "firmware", security(("jwt" = [])), request_body = FirmwareIn, operation_id = "create_firmware",
    responses((status = 201, body = FirmwareOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(firmware): JsonBody<FirmwareIn>,
) -> Result<Response, Problem> {
    let new = NewFirmware {
        owner: user.id,
        version: valid_version(&firmware.version)?,
        changelog: firmware.changelog,
        download_url: valid_url(&config, firmware.download_url)?,
        sha256: valid_digest(firmware.file_hash_sha256)?,
        signature: valid_signature(firmware.signature)?,
        bundle: None,
    };
    let metadata = context.metadata(user.actor(), "create firmware");
    let command = FirmwareCommand::Create(new);
    let written = commands.write::<Firmware>(context.resource, None, &metadata, &command).await?;
    let (version, out) =
        after_write(|| shown(&database, FirmwareUpdateId(context.resource), written.unseen)).await?;
    let location = format!("/api/v1/ota/{}", context.resource);
    Ok(answer::created(written, &location, version, &out))
}

/// Compare the running version with the newest known one.
#[utoipa::path(get, path = "/api/v1/ota/check", tag = "firmware", security(("jwt" = [])), operation_id = "check_firmware",
    responses((status = 200, body = FirmwareCheckOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut)))]
pub(crate) async fn check(
    State(database): State<Database>,
    _: Admin,
) -> Result<Json<FirmwareCheckOut>, Problem> {
    let running = database.read(firmware::running_firmware).await?;
    let current = running.map_or_else(|| PRODUCT.to_owned(), |running| running.version.to_string());
    let newest = database.read(firmware::newest_firmware).await?;
    let version = |text: &str| text.parse::<ReleaseVersion>().ok();
    let latest_version = newest.filter(|newest| version(newest) > version(&current));
    Ok(Json(FirmwareCheckOut {
        current_version: current,
        update_available: latest_version.is_some(),
        latest_version,
        github_latest_version: None,
        github_download_url: None,
        github_release_url: None,
        github_error: None,
    }))
}

/// One firmware update.
#[utoipa::path(get, path = "/api/v1/ota/{id}", tag = "firmware", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_firmware",
    responses((status = 200, body = FirmwareOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let (version, out) = shown(&database, key(WHAT, &id)?.into(), at).await?;
    Ok(answer::resource(version, &out))
}

/// Delete a firmware update and its files, unless it is running or being applied.
#[utoipa::path(delete, path = "/api/v1/ota/{id}", tag = "firmware", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_firmware",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(change: Change<Admin>) -> Result<Response, Problem> {
    let row = find(&change.database, &change.id).await?;
    let written = change.write::<Firmware>(row.id, "delete firmware", &FirmwareCommand::Delete).await?;
    Ok(answer::success(written, "Firmware update successfully deleted."))
}

/// Apply a firmware update in the background: its status tells how far that is. One is applied at a time.
#[utoipa::path(post, path = "/api/v1/ota/{id}/apply", tag = "firmware", security(("jwt" = [])), params(("id" = String, Path,)), request_body = Option<FirmwareApplyIn>, operation_id = "apply_firmware",
    responses((status = 202, body = FirmwareOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 404, body = ProblemOut), (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn apply(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    let body = read_json(request).await?;
    let apply: FirmwareApplyIn =
        if body.is_empty() { FirmwareApplyIn::default() } else { parse_json(&body)? };
    let download_url = valid_url(&config, apply.download_url)?;
    let command = FirmwareCommand::Apply { download_url, sha256: valid_digest(apply.file_hash_sha256)? };
    let row = find(&database, &id).await?;
    let metadata = context.metadata(user.actor(), "apply firmware");
    let written = commands.write::<Firmware>(row.id.0, None, &metadata, &command).await?;
    let (_, out) = after_write(|| shown(&database, row.id, written.unseen)).await?;
    Ok(answer::written(written, StatusCode::ACCEPTED, None, &out))
}

/// Bring the version before the running one into force again. Work longer than five seconds continues after the answer,
/// which is 202 then.
#[utoipa::path(post, path = "/api/v1/ota/{id}/rollback", tag = "firmware", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "rollback_firmware",
    responses((status = 200, body = FirmwareOut), (status = 202, body = FirmwareOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 404, body = ProblemOut), (status = 409, body = ProblemOut)))]
pub(crate) async fn rollback(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, &id).await?;
    let metadata = context.metadata(user.actor(), "roll back firmware");
    let written = commands.write::<Firmware>(row.id.0, None, &metadata, &FirmwareCommand::Rollback).await?;
    if written.unseen.is_some() {
        let (_, out) = after_write(|| shown(&database, row.id, written.unseen)).await?;
        return Ok(answer::written(written, StatusCode::ACCEPTED, None, &out));
    }
    let deadline = Instant::now() + ROLLBACK_TIMEOUT;
    let row = loop {
        let row = after_write(|| find(&database, &id)).await?;
        if row.work.is_none() || Instant::now() > deadline {
            break row;
        }
        sleep(LOOK).await;
    };
    let status = match (&row.work, row.status.is(RowStatus::Shown(FirmwareStatus::Completed))) {
        (Some(_), _) => StatusCode::ACCEPTED,
        (None, true) => {
            let why = row.error.unwrap_or_default();
            let detail = format!("The firmware was not rolled back: {why}");
            return Err(Problem::conflict("rollback_failed", detail));
        }
        _ => StatusCode::OK,
    };
    let (_, out) = after_write(|| shown(&database, row.id, None)).await?;
    Ok(answer::written(written, status, None, &out))
}

async fn find(database: &Database, id: &str) -> Result<FirmwareRow, Problem> {
    let id = key(WHAT, id)?;
    database.read(|pool| firmware::firmware(pool, id.into())).await?.ok_or_else(missing)
}

fn missing() -> Problem {
    Problem::not_found(WHAT)
}

/// The update `id` as clients see it, as it was `at` or as it is, and its version as a resource.
pub(super) async fn shown(
    database: &Database,
    id: FirmwareUpdateId,
    at: Option<At>,
) -> Result<(i64, FirmwareOut), Problem> {
    let (row, running) = match at {
        None => {
            let row = database.read(|pool| firmware::firmware(pool, id)).await?.ok_or_else(missing)?;
            (row, database.read(firmware::running_firmware).await?)
        }
        Some(at) => there(WHAT, past_firmware(&database.primary, id, at).await?)?,
    };
    Ok((row.version, FirmwareOut::of(row, running)))
}

pub(super) fn valid_version(version: &str) -> Result<ReleaseVersion, Problem> {
    version.trim().parse().map_err(|error| Problem::field("version", error))
}

fn valid_url(config: &Config, url: Option<String>) -> Result<Option<String>, Problem> {
    let url = url.filter(|url| !url.trim().is_empty());
    Ok(url.map(|url| reachable(config, "download_url", &url)).transpose()?.map(|(url, _)| url))
}

pub(super) fn valid_digest(digest: Option<String>) -> Result<Option<Sha256Hex>, Problem> {
    let digest = digest.filter(|digest| !digest.trim().is_empty());
    let digest = digest.map(|digest| digest.trim().parse()).transpose();
    digest.map_err(|_| Problem::field("file_hash_sha256", "must be a SHA-256 digest in 64 hex digits"))
}

pub(super) fn valid_signature(signature: Option<String>) -> Result<Option<String>, Problem> {
    let signature = signature.filter(|signature| !signature.trim().is_empty());
    match signature {
        Some(text) if !is_signature(&text) => {
            Err(Problem::field("signature", "must be the text that minisign writes into a .minisig file"))
        }
        signature => Ok(signature),
    }
}

impl FirmwareOut {
    fn of(row: FirmwareRow, running: Option<FirmwareRef>) -> Self {
        Self {
            public_id: row.id.to_string(),
            is_running: running.is_some_and(|running| running.id == row.id),
            version: row.release,
            changelog: row.changelog,
            download_url: row.download_url,
            file_hash_sha256: row.expected_sha256.or(row.file_sha256),
            file_size_bytes: row.file_size,
            status: row.status.into(),
            error_message: row.error,
            created_on: row.created_at,
            started_on: row.started_at,
            completed_on: row.completed_at,
            user_public_id: row.owner_id.to_string(),
            has_firmware_file: row.blob_id.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_has_a_version_that_can_be_compared() {
        assert!(PRODUCT.parse::<ReleaseVersion>().is_ok());
    }
}
