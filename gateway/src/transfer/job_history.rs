//! How a job came to be what it is, and its way back.

use axum::{extract::State, response::Response};
use signalbox_domain::transfer::{Job, JobCommand, JobSpec};
use signalbox_projections::{
    register::{self, Resource},
    transfer::JobRow,
};

use super::jobs::{JobOut, find, find_written};
use crate::{
    answer,
    auth::{Reader, Writer},
    context::RequestContext,
    extract::{IfMatch, JsonBody, Number, PageParams, Params, Sort},
    history::{RestoreIn, VersionOut, content, earlier, restoring},
    problem::{ErrorOut, Problem},
    resource::after_write,
    services::replica::Database,
    transfer::services::TransferServices,
};

/// Fields that change without a user.
const BY_ITSELF: [&str; 4] = ["last_run", "next_run", "last_transfer_id", "updated_at"];

/// The versions of a job, newest first, each with what is different from the one before. Runs are not among them.
#[utoipa::path(get, path = "/api/jobs/{id}/history", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,), PageParams, Sort<VersionOut>), operation_id = "job_history",
    responses((status = 200, body = [VersionOut]), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn history(
    State(database): State<Database>,
    Reader(user): Reader,
    Number(id): Number,
    Params(page): Params<PageParams>,
    sort: Sort<VersionOut>,
) -> Result<Response, Problem> {
    let page = page.page()?;
    let row = find(&database, user.id, id).await?;
    let (versions, total) =
        register::history::<JobRow, _>(&database.primary, row.id.0, (sort.order(), page), |rows, id| {
            content(&JobOut::new(JobRow::of(rows, id)?.clone(), user.number), &BY_ITSELF)
        })
        .await?;
    Ok(answer::list(total, &versions.into_iter().map(VersionOut::from).collect::<Vec<_>>()))
}

/// Make a job what it was in an earlier version. It is planned anew from now on.
#[utoipa::path(post, path = "/api/jobs/{id}/restore", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,)), request_body = RestoreIn, operation_id = "restore_job",
    responses((status = 200, body = JobOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut),
        (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn restore(
    State(services): State<TransferServices>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
    JsonBody(RestoreIn { version: wanted }): JsonBody<RestoreIn>,
) -> Result<Response, Problem> {
    let key = find(&services.database, user.id, id).await?.id.0;
    let spec = earlier::<JobRow>(&services.database, "Job", key, wanted).await?.settings.to_spec()?;
    let agents = [
        ("source_agent_id", spec.source_agent.number),
        ("destination_agent_id", spec.destination_agent.number),
    ];
    let [source_agent, destination_agent] = services.agent_keys.resolve(agents).await?;
    let command = JobCommand::Update(JobSpec { source_agent, destination_agent, ..spec });
    let metadata = restoring(context.metadata(user.actor(), "restore job"), wanted);
    let written = services.commands.write::<Job>(key, versions, &metadata, &command).await?;
    let row = after_write(|| find_written(&services.database, &services.jobs, key, written.unseen)).await?;
    let version = row.version;
    Ok(answer::changed(written, version, &JobOut::new(row, user.number)))
}
