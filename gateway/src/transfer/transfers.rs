use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    kernel::{TransferId, UserId},
    transfer::{JobType, NewTransfer, Retry, Transfer, TransferCommand, TransferStatus, base_name},
};
use signalbox_messaging::{Bus, Wakeup};
use signalbox_projections::{
    Lookup,
    register::At,
    transfer::{
        JobRow, TransferFileRow, TransferRow, past_transfer,
        queries::{self, Filter},
    },
    word,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer,
    auth::{Reader, Writer},
    context::RequestContext,
    extract::{IfMatch, JsonBody, Number, PageParams, Params, Sort, present},
    past::{AsOf, AtParams, there},
    problem::{ErrorOut, Problem},
    resource::after_write,
    services::{agent_keys::AgentKeys, commands::Commands, replica::Database},
    state::Written,
};

/// Entries shown with a single transfer; the manifest has them all.
pub(crate) const FILES_OF_ONE: i64 = 10_000;
/// Entries shown with each transfer of a list.
const FILES_IN_LIST: i64 = 10;

/// A transfer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TransferOut {
    id: i64,
    job_id: Option<i64>,
    user_id: i64,
    filename: String,
    /// Bytes of the file, or of all files of the tree; 0 while unknown.
    size: i64,
    source_path: String,
    destination_path: String,
    /// Null where the user uploads the file.
    source_agent_id: Option<i64>,
    destination_agent_id: i64,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    #[schema(value_type = crate::words::TransferStatus)]
    status: String,
    /// `queued`, `dispatched`, `uploading`, `staged`, `downloading` or `done`.
    #[schema(value_type = crate::words::TransferPhase)]
    phase: String,
    /// 0 to 1 over the whole way: half when all bytes are staged.
    progress: f64,
    /// Bytes of the file that the service has received from the source agent.
    bytes_transferred: i64,
    /// Entries staged, at most 10,000 (10 in lists).
    files: Vec<FileOut>,
    /// Digest of the transfer, once staged.
    sha256: Option<String>,
    /// Whether the destination agent has reported the arrival; null before the end.
    proven: Option<bool>,
    /// Attempts begun.
    attempts: i32,
    /// Why the last attempt failed.
    error: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    /// Equals `started_at`.
    start_time: Option<DateTime<Utc>>,
    /// Equals `finished_at`.
    end_time: Option<DateTime<Utc>>,
}

/// An entry of a transfer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileOut {
    /// File name, or path in the tree; a directory ends in `/`.
    pub(super) name: String,
    pub(super) size: i64,
    pub(super) sha256: String,
}

/// A new transfer.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TransferIn {
    /// A job of the caller that it belongs to; its agents and paths stand in for absent ones.
    #[serde(default)]
    job_id: Option<i64>,
    /// The last part of the source path, if absent.
    #[serde(default)]
    filename: Option<String>,
    /// Expected bytes.
    #[serde(default)]
    size: Option<i64>,
    #[serde(default)]
    source_path: Option<String>,
    #[serde(default)]
    destination_path: Option<String>,
    /// Null, without a `job_id`, for a file that the caller uploads by `PUT /api/transfers/{id}/content`; then `source_path` is
    /// not needed.
    #[serde(default, deserialize_with = "present")]
    source_agent_id: Option<Option<i64>>,
    #[serde(default)]
    destination_agent_id: Option<i64>,
}

/// Which transfers are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TransferFilter {
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    #[param(value_type = Option<crate::words::TransferStatus>)]
    status: Option<TransferStatus>,
    /// `push` or `pull`.
    #[param(value_type = Option<crate::words::JobType>)]
    r#type: Option<JobType>,
    /// Part of the file name.
    name: Option<String>,
    job_id: Option<i64>,
    /// An agent at either end.
    agent_id: Option<i64>,
    /// Created at or after.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Created before.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// List the caller's transfers, newest first.
#[utoipa::path(get, path = "/api/transfers", tag = "transfers", security(("jwt" = [])), params(PageParams, Sort<TransferRow>, TransferFilter), operation_id = "list_transfers",
    responses((status = 200, body = [TransferOut]), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    Reader(user): Reader,
    Params(page): Params<PageParams>,
    sort: Sort<TransferRow>,
    Params(filter): Params<TransferFilter>,
) -> Result<Response, Problem> {
    let TransferFilter { status, r#type, name, job_id, agent_id, from, to } = filter;
    let (status, kind) = (status.map(word), r#type.map(word));
    let filter = Filter { status, kind, name, job: job_id, agent: agent_id, from, to };
    let page = page.page()?;
    let (rows, total) =
        database.read(|pool| queries::transfers(pool, user.id, &filter, sort.order(), page)).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let mut files = database.read(|pool| queries::files_of_transfers(pool, &ids, FILES_IN_LIST)).await?;
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let own = files.extract_if(.., |file| file.transfer_id == row.id).collect();
            TransferOut::new(row, own, user.number)
        })
        .collect();
    Ok(answer::list(total, &rows))
}

/// Create a transfer and dispatch it.
#[utoipa::path(post, path = "/api/transfers", tag = "transfers", security(("jwt" = [])), request_body = TransferIn, operation_id = "create_transfer",
    responses((status = 201, body = TransferOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(transfers): State<Lookup<TransferRow>>,
    State(agent_keys): State<Arc<AgentKeys>>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(transfer): JsonBody<TransferIn>,
) -> Result<Response, Problem> {
    let new = specify(&database, &agent_keys, user.id, transfer).await?;
    let metadata = context.metadata(user.actor(), "create transfer");
    let written =
        commands.write::<Transfer>(context.resource, None, &metadata, &TransferCommand::Request(new)).await?;
    created(&database, &transfers, written, context.resource, user.number).await
}

/// One transfer.
#[utoipa::path(get, path = "/api/transfers/{id}", tag = "transfers", security(("jwt" = [])), params(("id" = i64, Path,), AtParams), operation_id = "get_transfer",
    responses((status = 200, body = TransferOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut), (status = 400, body = ErrorOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    Reader(user): Reader,
    Number(id): Number,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let (version, out) = match at {
        None => show(&database, find(&database, user.id, id).await?, user.number).await?,
        Some(at) => {
            let row = queries::transfer_ever(&database.primary, user.id, id).await?.ok_or_else(missing)?;
            show_past(&database, row.id, at, user.number).await?
        }
    };
    Ok(answer::resource(version, &out))
}

/// Stop a transfer that has not ended.
#[utoipa::path(post, path = "/api/transfers/{id}/cancel", tag = "transfers", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "cancel_transfer",
    responses((status = 200, body = TransferOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut), (status = 409, body = ErrorOut)))]
pub(crate) async fn cancel(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(bus): State<Bus>,
    State(transfers): State<Lookup<TransferRow>>,
    Writer(user): Writer,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, user.id, id).await?;
    let metadata = context.metadata(user.actor(), "cancel transfer");
    let written = commands.write::<Transfer>(row.id.0, None, &metadata, &TransferCommand::Cancel).await?;
    // Cuts the bodies that are under way; the agents are told through their mailboxes.
    if let Err(error) = bus.wake(&Wakeup::TransferStopped { transfer: row.id.0 }).await {
        tracing::warn!(%error, transfer = row.number, "the bodies of a cancelled transfer run on");
    }
    let (version, out) =
        after_write(|| show_written(&database, &transfers, row.id.0, written.unseen, user.number)).await?;
    Ok(answer::changed(written, version, &out))
}

/// Delete a transfer that has ended, with what is still staged of its files. The log keeps it: with `at`, it is shown as it was.
#[utoipa::path(delete, path = "/api/transfers/{id}", tag = "transfers", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "delete_transfer",
    responses((status = 204), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, user.id, id).await?;
    let metadata = context.metadata(user.actor(), "delete transfer");
    let written = commands.write::<Transfer>(row.id.0, versions, &metadata, &TransferCommand::Delete).await?;
    Ok(answer::deleted(written))
}

/// The answer to a request that has made transfer `id`.
pub(super) async fn created(
    database: &Database,
    transfers: &Lookup<TransferRow>,
    written: Written,
    id: Uuid,
    user_id: i64,
) -> Result<Response, Problem> {
    let (version, out) =
        after_write(|| show_written(database, transfers, id, written.unseen, user_id)).await?;
    Ok(answer::created(written, &format!("/api/transfers/{}", out.id), version, &out))
}

async fn specify(
    database: &Database,
    agent_keys: &AgentKeys,
    owner: UserId,
    transfer: TransferIn,
) -> Result<NewTransfer, Problem> {
    let job = match transfer.job_id {
        Some(number) => {
            let job = database.read(|pool| queries::job(pool, owner, number)).await?;
            Some(job.ok_or_else(|| Problem::not_found("Job"))?)
        }
        None => None,
    };
    let job = job.as_ref();
    let required = |field: &str| Problem::field(field, "is required");
    let source = transfer.source_agent_id.flatten().or(job.map(|job| job.settings.source_agent_number));
    let is_uploaded = transfer.source_agent_id == Some(None) && job.is_none();
    let destination = transfer.destination_agent_id.or(job.map(|job| job.settings.destination_agent_number));
    let destination = ("destination_agent_id", destination.ok_or_else(|| required("destination_agent_id"))?);
    let (source_agent, destination_agent) = if is_uploaded {
        let [destination] = agent_keys.resolve([destination]).await?;
        (None, destination)
    } else {
        let source = ("source_agent_id", source.ok_or_else(|| required("source_agent_id"))?);
        let [source, destination] = agent_keys.resolve([source, destination]).await?;
        (Some(source), destination)
    };
    let destination_path = transfer.destination_path.or(job.map(|job| job.settings.destination_path.clone()));
    let destination_path = destination_path.ok_or_else(|| required("destination_path"))?;
    let source_path = transfer.source_path.or(job.map(|job| job.settings.source_path.clone()));
    // A file that is uploaded has no path: its name stands for one.
    let name = || transfer.filename.clone().unwrap_or_else(|| base_name(&destination_path));
    let source_path = source_path.or_else(|| is_uploaded.then(name));
    let source_path = source_path.ok_or_else(|| required("source_path"))?;
    let size = transfer.size.map(u64::try_from).transpose();
    let spec = job.map(|job| job.settings.to_spec()).transpose()?;
    Ok(NewTransfer {
        number: 0,
        owner,
        job: job.map(JobRow::reference),
        kind: spec.as_ref().map_or(JobType::Push, |spec| spec.kind),
        source_agent,
        destination_agent,
        filename: transfer.filename.unwrap_or_else(|| base_name(&source_path)),
        source_path,
        destination_path,
        size: size.map_err(|_| Problem::field("size", "must not be negative"))?,
        retry: spec.map_or(Retry::default(), |spec| spec.retry),
        scheduled_for: None,
    })
}

/// A transfer as clients see it, and its version.
async fn show(database: &Database, row: TransferRow, user_id: i64) -> Result<(i64, TransferOut), Problem> {
    let files = database.read(|pool| queries::transfer_files(pool, row.id, FILES_OF_ONE)).await?;
    Ok((row.version, TransferOut::new(row, files, user_id)))
}

async fn show_past(
    database: &Database,
    id: TransferId,
    at: At,
    user_id: i64,
) -> Result<(i64, TransferOut), Problem> {
    let then = past_transfer(&database.primary, id, at, FILES_OF_ONE as usize).await?;
    let (row, files) = there("Transfer", then)?;
    Ok((row.version, TransferOut::new(row, files, user_id)))
}

/// The transfer `id` that was just written: from the log while the read model does not show it.
async fn show_written(
    database: &Database,
    transfers: &Lookup<TransferRow>,
    id: Uuid,
    unseen: Option<At>,
    user_id: i64,
) -> Result<(i64, TransferOut), Problem> {
    match unseen {
        None => show(database, transfers.get(id).await?.ok_or_else(missing)?, user_id).await,
        Some(at) => show_past(database, id.into(), at, user_id).await,
    }
}

pub(super) async fn find(database: &Database, owner: UserId, number: i64) -> Result<TransferRow, Problem> {
    database.read(|pool| queries::transfer(pool, owner, number)).await?.ok_or_else(missing)
}

fn missing() -> Problem {
    Problem::not_found("Transfer")
}

impl TransferOut {
    fn new(row: TransferRow, files: Vec<TransferFileRow>, user_id: i64) -> Self {
        let completed = row.status.is(TransferStatus::Completed);
        let size = row.size.unwrap_or_default();
        let both_legs = row.uploaded.saturating_add(row.downloaded);
        let progress = match size {
            _ if completed => 1.0,
            1.. => (both_legs as f64 / (2.0 * size as f64)).clamp(0.0, 1.0),
            _ => 0.0,
        };
        let is_over = row.is_done();
        Self {
            id: row.number,
            job_id: row.job_number,
            user_id,
            filename: row.filename,
            size,
            source_path: row.source_path,
            destination_path: row.destination_path,
            source_agent_id: row.source_agent_number,
            destination_agent_id: row.destination_agent_number,
            status: row.status.into(),
            phase: row.phase.into(),
            progress,
            bytes_transferred: row.uploaded,
            files: files.into_iter().map(FileOut::from).collect(),
            sha256: row.sha256,
            proven: is_over.then_some(row.proven),
            attempts: row.attempts,
            error: row.error,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            start_time: row.started_at,
            end_time: row.finished_at,
        }
    }
}

impl From<TransferFileRow> for FileOut {
    fn from(row: TransferFileRow) -> Self {
        Self { name: row.name, size: row.size, sha256: row.sha256 }
    }
}
