//! The list of what is staged of a transfer.

use axum::{Json, extract::State};
use serde::Serialize;
use signalbox_clock::Clock;
use signalbox_domain::transfer::TransportMode;
use signalbox_messaging::Bus;
use signalbox_projections::transfer::queries;
use utoipa::ToSchema;

use super::{download::begin, peer::Peer, staged_tree::MAX_ENTRIES, transfers::FileOut, upload::missing};
use crate::{
    auth::AgentAuth,
    client_address::ClientAddress,
    extract::Number,
    problem::{ErrorOut, Problem},
    services::replica::Database,
};

/// The staged entries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ManifestOut {
    /// Sorted by the bytes of their names.
    files: Vec<FileOut>,
    /// Digest of the transfer; null until everything is staged.
    sha256: Option<String>,
}

/// Get the entries staged so far, for both agents of the transfer.
#[utoipa::path(get, path = "/api/files/{id}/manifest", tag = "files", security(("agent" = [])), params(("id" = i64, Path,)), operation_id = "get_manifest",
    responses((status = 200, body = ManifestOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn manifest(
    State(database): State<Database>,
    State(clock): State<Clock>,
    State(bus): State<Bus>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    Number(number): Number,
) -> Result<Json<ManifestOut>, Problem> {
    let row = queries::transfer_of_agent(&database.primary, auth.agent, number).await?.ok_or_else(missing)?;
    // An empty tree has nothing else to download: asking for its list is its beginning.
    begin(&clock, &bus, &Peer { auth, address, transport: TransportMode::Polling }, &row).await?;
    let files = queries::transfer_files(&database.primary, row.id, MAX_ENTRIES).await?;
    Ok(Json(ManifestOut { files: files.into_iter().map(FileOut::from).collect(), sha256: row.sha256 }))
}
