use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    kernel::UserId,
    transfer::{
        Job, JobCommand, JobSpec, JobType, NewJob, NewTransfer, Overlap, Retry, Schedule, Transfer,
        TransferCommand,
    },
};
use signalbox_projections::{
    Lookup,
    register::At,
    transfer::{
        JobRow, TransferRow, past_job,
        queries::{self, Filter},
    },
    word,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::transfers;
use crate::{
    answer,
    auth::{Reader, Writer},
    consistency::Newest,
    context::RequestContext,
    existence::{examples, judged},
    extract::{IfMatch, JsonBody, Number, PageParams, Params, Sort, not_null, present},
    past::{AsOf, AtParams, there},
    problem::{ErrorOut, Problem},
    resource::after_write,
    services::{agent_keys::AgentKeys, commands::Commands, replica::Database},
    transfer::services::TransferServices,
};

/// A job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobOut {
    id: i64,
    user_id: i64,
    name: String,
    /// `push` or `pull`.
    #[schema(value_type = crate::words::JobType)]
    r#type: String,
    /// `active` when the schedule is followed, else `paused`.
    #[schema(value_type = crate::words::JobStatus)]
    status: &'static str,
    enabled: bool,
    source_agent_id: i64,
    destination_agent_id: i64,
    source_path: String,
    destination_path: String,
    /// Cron expression, seconds first.
    schedule: Option<String>,
    /// IANA time zone of the schedule.
    timezone: String,
    retry: RetryOut,
    /// `skip` or `queue`.
    #[schema(value_type = crate::words::Overlap)]
    overlap: String,
    description: Option<String>,
    last_run: Option<DateTime<Utc>>,
    next_run: Option<DateTime<Utc>>,
    last_transfer_id: Option<i64>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// How transfers of a job are retried.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetryOut {
    max_attempts: i32,
    backoff_seconds: i32,
}

/// How transfers are retried; absent fields have their default.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
pub(crate) struct RetryIn {
    /// 1 to 10; 3 if absent.
    max_attempts: Option<u32>,
    /// 0 to 86400; 5 if absent.
    backoff_seconds: Option<u32>,
}

/// A new job.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct JobIn {
    name: String,
    /// `push` (default) or `pull`.
    #[serde(default)]
    #[schema(value_type = Option<crate::words::JobType>)]
    r#type: Option<JobType>,
    source_agent_id: i64,
    destination_agent_id: i64,
    /// A trailing `/` means the whole tree.
    source_path: String,
    destination_path: String,
    /// Cron expression of six fields, seconds first; five are taken as second 0.
    #[serde(default)]
    schedule: Option<String>,
    /// IANA time zone; UTC if absent.
    #[serde(default)]
    timezone: Option<String>,
    /// Whether the schedule is followed; true if absent.
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    retry: Option<RetryIn>,
    /// When due while still running: `skip` (default) or `queue`.
    #[serde(default)]
    #[schema(value_type = Option<crate::words::Overlap>)]
    overlap: Option<Overlap>,
    #[serde(default)]
    description: Option<String>,
}

/// Changes of a job; absent fields stay as they are, null clears.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct JobChangesIn {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::JobType>, nullable = false)]
    r#type: Option<JobType>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    source_agent_id: Option<i64>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    destination_agent_id: Option<i64>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    source_path: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    destination_path: Option<String>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    schedule: Option<Option<String>>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timezone: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    retry: Option<RetryIn>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::Overlap>, nullable = false)]
    overlap: Option<Overlap>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
}

/// Whether the schedule of a job is followed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Active,
    Paused,
}

/// Which jobs are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobFilter {
    /// `active` or `paused`.
    #[param(value_type = Option<crate::words::JobStatus>)]
    status: Option<Status>,
    /// `push` or `pull`.
    #[param(value_type = Option<crate::words::JobType>)]
    r#type: Option<JobType>,
    /// Part of the name.
    name: Option<String>,
    /// An agent at either end.
    agent_id: Option<i64>,
}

/// List the caller's jobs, newest first.
#[utoipa::path(get, path = "/api/jobs", tag = "jobs", security(("jwt" = [])), params(PageParams, Sort<JobRow>, JobFilter), operation_id = "list_jobs",
    responses((status = 200, body = [JobOut]), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    Reader(user): Reader,
    Params(page): Params<PageParams>,
    sort: Sort<JobRow>,
    Params(filter): Params<JobFilter>,
) -> Result<Response, Problem> {
    let JobFilter { status, r#type, name, agent_id } = filter;
    let (status, kind) = (status.map(word), r#type.map(word));
    let filter = Filter { status, kind, name, agent: agent_id, ..Filter::default() };
    let page = page.page()?;
    let (rows, total) =
        database.read(|pool| queries::jobs(pool, user.id.0, &filter, sort.order(), page)).await?;
    let rows: Vec<_> = rows.into_iter().map(|row| JobOut::new(row, user.number)).collect();
    Ok(answer::list(total, &rows))
}

/// Create a job.
#[utoipa::path(post, path = "/api/jobs", tag = "jobs", security(("jwt" = [])), request_body = JobIn, operation_id = "create_job",
    responses((status = 201, body = JobOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(jobs): State<Lookup<JobRow>>,
    State(agent_keys): State<Arc<AgentKeys>>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(job): JsonBody<JobIn>,
) -> Result<Response, Problem> {
    let spec = specify(&agent_keys, job).await?;
    let command = JobCommand::Create(NewJob { number: 0, owner: user.id, spec });
    let metadata = context.metadata(user.actor(), "create job");
    let written = commands.write::<Job>(context.resource, None, &metadata, &command).await?;
    let row = after_write(|| find_written(&database, &jobs, context.resource, written.unseen)).await?;
    let (version, location) = (row.version, format!("/api/jobs/{}", row.number));
    let out = JobOut::new(row, user.number);
    Ok(answer::created(written, &location, version, &out))
}

/// One job.
#[utoipa::path(get, path = "/api/jobs/{id}", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,), AtParams), operation_id = "get_job",
    responses((status = 200, body = JobOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut), (status = 400, body = ErrorOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    Reader(user): Reader,
    Number(id): Number,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let row = match at {
        None => find(&database, user.id, id).await?,
        Some(at) => find_past(&database, user.id, id, at).await?,
    };
    Ok(answer::resource(row.version, &JobOut::new(row, user.number)))
}

/// Change a job.
#[utoipa::path(put, path = "/api/jobs/{id}", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,)), request_body = JobChangesIn, operation_id = "update_job",
    responses((status = 200, body = JobOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut),
        (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn update(
    State(services): State<TransferServices>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
    JsonBody(changes): JsonBody<JobChangesIn>,
) -> Result<Response, Problem> {
    let metadata = context.metadata(user.actor(), "update job");
    let mut newest = Newest::new(versions);
    let (key, written) = loop {
        let row = find(&services.database, user.id, id).await.map_err(|missing| {
            let update = JobCommand::Update(changes.clone().made_to(examples::job_spec()));
            judged::<Job>(missing, [examples::job(), update])
        })?;
        let key = row.id.0;
        let Some(version) = newest.version::<Job>(&services.gate, key, row.version).await? else { continue };
        let command = JobCommand::Update(respecify(&services.agent_keys, row, changes.clone()).await?);
        let written = services.commands.write::<Job>(key, Some(version), &metadata, &command).await;
        if let Some(written) = newest.judge::<Job>(&services.gate, key, written).await? {
            break (key, written);
        }
    };
    let row = after_write(|| find_written(&services.database, &services.jobs, key, written.unseen)).await?;
    let version = row.version;
    Ok(answer::changed(written, version, &JobOut::new(row, user.number)))
}

/// Delete a job; its transfers stay.
#[utoipa::path(delete, path = "/api/jobs/{id}", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "delete_job",
    responses((status = 204), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, user.id, id).await?;
    let metadata = context.metadata(user.actor(), "delete job");
    let written = commands.write::<Job>(row.id.0, versions, &metadata, &JobCommand::Delete).await?;
    Ok(answer::deleted(written))
}

/// Run a job now: makes a transfer and dispatches it to the source agent, or waits for that agent.
#[utoipa::path(post, path = "/api/jobs/{id}/run", tag = "jobs", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "run_job",
    responses((status = 201, body = transfers::TransferOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn run(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(transfers): State<Lookup<TransferRow>>,
    Writer(user): Writer,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let job = find(&database, user.id, id).await?;
    let metadata = context.metadata(user.actor(), "run job");
    let command = TransferCommand::Request(NewTransfer::of_job(
        job.reference(),
        user.id,
        &job.settings.to_spec()?,
        None,
    ));
    let written = commands.write::<Transfer>(context.resource, None, &metadata, &command).await?;
    transfers::created(&database, &transfers, written, context.resource, user.number).await
}

async fn specify(agent_keys: &AgentKeys, job: JobIn) -> Result<JobSpec, Problem> {
    let agents =
        [("source_agent_id", job.source_agent_id), ("destination_agent_id", job.destination_agent_id)];
    let [source_agent, destination_agent] = agent_keys.resolve(agents).await?;
    Ok(JobSpec {
        name: job.name,
        kind: job.r#type.unwrap_or_default(),
        source_agent,
        destination_agent,
        source_path: job.source_path,
        destination_path: job.destination_path,
        schedule: schedule(job.schedule, job.timezone.clone()),
        timezone: job.timezone,
        enabled: job.enabled.unwrap_or(true),
        retry: retry(job.retry, Retry::default()),
        overlap: job.overlap.unwrap_or_default(),
        description: job.description,
    })
}

async fn respecify(agent_keys: &AgentKeys, row: JobRow, changes: JobChangesIn) -> Result<JobSpec, Problem> {
    let source = changes.source_agent_id.unwrap_or(row.settings.source_agent_number);
    let destination = changes.destination_agent_id.unwrap_or(row.settings.destination_agent_number);
    let agents = [("source_agent_id", source), ("destination_agent_id", destination)];
    let [source_agent, destination_agent] = agent_keys.resolve(agents).await?;
    Ok(JobSpec { source_agent, destination_agent, ..changes.made_to(row.settings.to_spec()?) })
}

impl JobChangesIn {
    /// `spec` with these changes; its agents stay, as they have to be found first.
    fn made_to(self, spec: JobSpec) -> JobSpec {
        let cron = self.schedule.unwrap_or(spec.schedule.map(|schedule| schedule.cron));
        let timezone = self.timezone.or(spec.timezone);
        JobSpec {
            name: self.name.unwrap_or(spec.name),
            kind: self.r#type.unwrap_or(spec.kind),
            source_agent: spec.source_agent,
            destination_agent: spec.destination_agent,
            source_path: self.source_path.unwrap_or(spec.source_path),
            destination_path: self.destination_path.unwrap_or(spec.destination_path),
            schedule: schedule(cron, timezone.clone()),
            timezone,
            enabled: self.enabled.unwrap_or(spec.enabled),
            retry: retry(self.retry, spec.retry),
            overlap: self.overlap.unwrap_or(spec.overlap),
            description: self.description.unwrap_or(spec.description),
        }
    }
}

/// An empty expression means no schedule.
fn schedule(cron: Option<String>, timezone: Option<String>) -> Option<Schedule> {
    let cron = cron.map(|cron| cron.trim().to_owned()).filter(|cron| !cron.is_empty())?;
    Some(Schedule { cron, timezone: timezone.unwrap_or_else(|| "UTC".to_owned()) })
}

fn retry(retry: Option<RetryIn>, default: Retry) -> Retry {
    let (attempts, backoff) = retry.map_or((None, None), |retry| (retry.max_attempts, retry.backoff_seconds));
    Retry {
        max_attempts: attempts.unwrap_or(default.max_attempts),
        backoff_seconds: backoff.unwrap_or(default.backoff_seconds),
    }
}

pub(super) async fn find(database: &Database, owner: UserId, number: i64) -> Result<JobRow, Problem> {
    database.read(|pool| queries::job(pool, owner.0, number)).await?.ok_or_else(missing)
}

/// The job `id` that was just written: from the log while the read model does not show it.
pub(super) async fn find_written(
    database: &Database,
    jobs: &Lookup<JobRow>,
    id: Uuid,
    unseen: Option<At>,
) -> Result<JobRow, Problem> {
    match unseen {
        None => jobs.get(id).await?.ok_or_else(missing),
        Some(at) => there("Job", past_job(&database.primary, id, at).await?),
    }
}

async fn find_past(database: &Database, owner: UserId, number: i64, at: At) -> Result<JobRow, Problem> {
    let id = match queries::job(&database.primary, owner.0, number).await? {
        Some(row) => row.id.0,
        None => queries::removed_job(&database.primary, owner.0, number).await?.ok_or_else(missing)?,
    };
    there("Job", past_job(&database.primary, id, at).await?)
}

fn missing() -> Problem {
    Problem::not_found("Job")
}

impl JobOut {
    pub(super) fn new(row: JobRow, user_id: i64) -> Self {
        let settings = row.settings;
        Self {
            id: row.number,
            user_id,
            name: settings.name,
            r#type: settings.job_type.into(),
            status: if settings.enabled { "active" } else { "paused" },
            enabled: settings.enabled,
            source_agent_id: settings.source_agent_number,
            destination_agent_id: settings.destination_agent_number,
            source_path: settings.source_path,
            destination_path: settings.destination_path,
            schedule: settings.schedule,
            timezone: settings.timezone.unwrap_or_else(|| "UTC".to_owned()),
            retry: RetryOut {
                max_attempts: settings.max_attempts,
                backoff_seconds: settings.backoff_seconds,
            },
            overlap: settings.overlap.into(),
            description: settings.description,
            last_run: row.last_run,
            next_run: row.next_run,
            last_transfer_id: row.last_transfer_number,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}
