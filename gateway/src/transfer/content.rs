//! The file of a transfer whose owner uploads it.

use axum::{
    Json,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use signalbox_domain::transfer::Phase;
use signalbox_projections::transfer::{TransferFileRow, TransferRow, queries};
use utoipa::ToSchema;

use super::{
    transfers::find,
    upload::{Sender, Upload, UploadParams, Uploaded, asked_total, entry_name, gone, incomplete},
};
use crate::{
    auth::Writer,
    extract::{Number, Params},
    problem::{ErrorOut, Problem},
    services::replica::Database,
    transfer::services::TransferServices,
};

/// The file of a transfer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContentOut {
    transfer_id: i64,
    filename: String,
    /// Bytes.
    size: u64,
    /// Of the bytes.
    sha256: String,
}

/// Upload the file of a transfer that was created with `source_agent_id: null`. It may be resumed, and its digest announced, as in
/// an agent's upload. Without `filename` it has the name that the transfer was created with.
#[utoipa::path(put, path = "/api/transfers/{id}/content", tag = "transfers", security(("jwt" = [])), params(("id" = i64, Path,), UploadParams), operation_id = "upload_content",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = ContentOut), (status = 308, description = "More bytes are expected; Range says how many are there"), (status = 400, body = ErrorOut),
        (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 413, body = ErrorOut), (status = 416, body = ErrorOut)))]
pub(crate) async fn upload_content(
    State(services): State<TransferServices>,
    Writer(user): Writer,
    Number(number): Number,
    Params(params): Params<UploadParams>,
    request: Request,
) -> Result<Response, Problem> {
    let row = find(&services.database, user.id, number).await?;
    let name = entry_name(&row, params.filename.as_deref().unwrap_or(&row.filename))?;
    if row.source_agent_id.is_some() {
        let detail = "the file of this transfer is uploaded by its source agent";
        return Err(Problem::conflict("wrong_source", detail));
    }
    let whole = |filename, size, sha256| {
        Json(ContentOut { transfer_id: number, filename, size, sha256 }).into_response()
    };
    if !matches!(row.phase.known()?, Phase::Dispatched | Phase::Uploading) {
        let total = asked_total(request.headers())?.ok_or_else(gone)?;
        let file = uploaded(&services.database, &row, &name, total).await?.ok_or_else(gone)?;
        return Ok(whole(file.name, total, file.sha256));
    }
    match Upload::new(&services, Sender::Owner(user.actor()), row, name.clone()).run(request).await? {
        Uploaded::Whole { size, sha256 } => Ok(whole(name, size, sha256.into())),
        Uploaded::Part { size } => Ok(incomplete(size)),
    }
}

/// The file that the owner has uploaded, if it has `total` bytes. A client that lost the answer asks so whether all has arrived.
async fn uploaded(
    database: &Database,
    row: &TransferRow,
    name: &str,
    total: u64,
) -> Result<Option<TransferFileRow>, Problem> {
    let file = database.read(|pool| queries::transfer_file(pool, row.id, name)).await?;
    Ok(file.filter(|file| u64::try_from(file.size) == Ok(total)))
}
