use std::{pin::pin, time::Duration};

use signalbox_blob_store::{BlobError, BlobKey, Receive, Received, Start};
use signalbox_domain::fleet::FirmwareBundle;
use signalbox_egress::EgressError;
use signalbox_projections::fleet::firmware::FirmwareRow;
use tokio::time::timeout;

use super::FirmwareRunner;
use crate::WorkerError;

/// Name of a bundle in its folder of the blob store.
pub(super) const BUNDLE: &str = "bundle";

/// The bundle of `row` in the blob store, uploaded before or fetched now; or the reason why it is missing.
pub(super) async fn fetch(
    runner: &FirmwareRunner,
    row: &FirmwareRow,
) -> Result<Result<FirmwareBundle, String>, WorkerError> {
    if let Some(bundle) = bundle_of(row) {
        return Ok(Ok(bundle));
    }
    let Some(url) = &row.download_url else {
        return Ok(Err("there is no bundle and no download_url: upload a bundle".to_owned()));
    };
    let seconds = runner.config.download_seconds;
    match timeout(Duration::from_secs(seconds), download(runner, row, url)).await {
        Ok(fetched) => fetched,
        Err(_) => Ok(Err(format!(
            "it took longer than {seconds} s: try again, or upload the bundle (firmware.download_seconds)"
        ))),
    }
}

/// The bundle that the read model shows.
pub(super) fn bundle_of(row: &FirmwareRow) -> Option<FirmwareBundle> {
    Some(FirmwareBundle {
        blob: row.blob_id?,
        size: row.file_size?.try_into().ok()?,
        sha256: row.file_sha256.as_ref()?.parse().ok()?,
    })
}

async fn download(
    runner: &FirmwareRunner,
    row: &FirmwareRow,
    url: &str,
) -> Result<Result<FirmwareBundle, String>, WorkerError> {
    let most = runner.config.max_file_bytes;
    let too_large = || format!("the bundle is larger than {} MB (firmware.max_file_bytes)", most >> 20);
    let target = match url.parse() {
        Ok(target) => target,
        Err(error) => return Ok(Err(format!("download_url {error}"))),
    };
    let answer = match runner.egress.get(&target).await {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(message(&error))),
    };
    let status = answer.status();
    if status.is_redirection() {
        return Ok(Err(format!(
            "the server answered {status}, and redirects are not followed: give the address that it leads to"
        )));
    }
    if !status.is_success() {
        return Ok(Err(format!("the server answered {status}")));
    }
    let total = answer.length();
    if total.is_some_and(|total| total > most) {
        return Ok(Err(too_large()));
    }
    let request = Receive { start: Start::Anew, limit: most, expected_sha256: None, total };
    let body = pin!(answer.into_stream());
    match runner.blobs.receive(&BlobKey::new(row.id.0, BUNDLE), request, body, |_| {}).await {
        Ok(Received::Complete { size: 0, .. }) => Ok(Err("the server sent an empty file".to_owned())),
        Ok(Received::Complete { size, sha256 }) => Ok(Ok(FirmwareBundle { blob: row.id.0, size, sha256 })),
        Ok(Received::Partial { .. }) => Ok(Err("the connection broke: try again".to_owned())),
        Err(BlobError::TooLarge { .. }) => Ok(Err(too_large())),
        Err(BlobError::Interrupted { source, .. }) => Ok(Err(match source {
            Some(error) => error.to_string(),
            None => "the connection broke: try again".to_owned(),
        })),
        Err(error) => Err(error.into()),
    }
}

fn message(error: &EgressError) -> String {
    match error {
        EgressError::Denied { .. } => format!("{error} (egress.allowed_networks)"),
        _ => error.to_string(),
    }
}
