use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    kernel::UserId,
    transfer::{
        AgentRef, Job, JobCommand, JobSpec, JobType, NewJob, NewTransfer, Overlap, Retry, Schedule, Transfer,
        TransferCommand,
    },
};
use signalbox_projections::{
    Lookup, Word,
    register::At,
    transfer::{
        JobColumns, JobRow, TransferRow, past_job,
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
    extract::{IfMatch, JsonBody, Number, PageParams, Params, Sort},
    past::{AsOf, AtParams, there},
    problem::{ErrorOut, Problem, ProblemKind},
    resource::after_write,
    services::{agent_keys::AgentKeys, commands::Commands, replica::Database},
    settings::{Changes, Settings, Shown},
    transfer::services::TransferServices,
};

/// A job in an answer.
pub(crate) type JobOut = Shown<JobFacts, JobSettings>;
/// Changes of a job.
pub(crate) type JobChangesIn = Changes<JobSettings>;

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobOut)]
pub(crate) struct JobFacts {
    id: i64,
    user_id: i64,
    /// `active` when the schedule is followed, else `paused`.
    #[schema(value_type = crate::words::JobStatus)]
    status: &'static str,
    last_run: Option<DateTime<Utc>>,
    next_run: Option<DateTime<Utc>>,
    last_transfer_id: Option<i64>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A new job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = JobIn)]
pub(crate) struct JobSettings {
    name: String,
    /// `push` (default) or `pull`.
    #[schema(value_type = Option<crate::words::JobType>)]
    r#type: Option<Word<JobType>>,
    source_agent_id: i64,
    destination_agent_id: i64,
    /// A trailing `/` means the whole tree.
    source_path: String,
    destination_path: String,
    /// Cron expression of six fields, seconds first; five are taken as second 0.
    schedule: Option<String>,
    /// IANA time zone of the schedule; UTC if absent.
    timezone: Option<String>,
    /// Whether the schedule is followed; true if absent.
    enabled: Option<bool>,
    retry: Option<RetryIn>,
    /// When due while still running: `skip` (default) or `queue`.
    #[schema(value_type = Option<crate::words::Overlap>)]
    overlap: Option<Word<Overlap>>,
    description: Option<String>,
}

impl Settings for JobSettings {
    const CLEARABLE: &'static [&'static str] = &["schedule", "description"];
}

/// How transfers of a job are retried.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(crate) struct RetryIn {
    /// 1 to 10; 3 if absent.
    max_attempts: Option<u32>,
    /// 0 to 86400; 5 if absent.
    backoff_seconds: Option<u32>,
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
        database.read(|pool| queries::jobs(pool, user.id, &filter, sort.order(), page)).await?;
    let rows: Vec<_> = rows.into_iter().map(|row| JobOut::new(row, user.number)).collect();
    Ok(answer::list(total, &rows))
}

/// Create a job.
#[utoipa::path(post, path = "/api/jobs", tag = "jobs", security(("jwt" = [])), request_body = JobSettings, operation_id = "create_job",
    responses((status = 201, body = JobOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(jobs): State<Lookup<JobRow>>,
    State(agent_keys): State<Arc<AgentKeys>>,
    Writer(user): Writer,
    context: RequestContext,
    JsonBody(job): JsonBody<JobSettings>,
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
        let row = find(&services.database, user.id, id)
            .await
            .map_err(|missing| changes_of_none(missing, &changes))?;
        let key = row.id.0;
        let Some(version) = newest.version::<Job>(&services.gate, key, row.version).await? else { continue };
        let command = JobCommand::Update(respecify(&services.agent_keys, &row, &changes).await?);
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

async fn specify(agent_keys: &AgentKeys, job: JobSettings) -> Result<JobSpec, Problem> {
    let agents =
        [("source_agent_id", job.source_agent_id), ("destination_agent_id", job.destination_agent_id)];
    let [source_agent, destination_agent] = agent_keys.resolve(agents).await?;
    job.of_agents(source_agent, destination_agent)
}

async fn respecify(agent_keys: &AgentKeys, row: &JobRow, changes: &JobChangesIn) -> Result<JobSpec, Problem> {
    // One whose words only a newer version knows is left alone.
    row.settings.to_spec()?;
    specify(agent_keys, changes.made_to(&JobSettings::of(&row.settings))?).await
}

/// The answer to changes of a job that does not exist: their own fault, if they have one.
fn changes_of_none(missing: Problem, changes: &JobChangesIn) -> Problem {
    let example = examples::job_spec();
    let (source, destination) = (example.source_agent, example.destination_agent);
    let made = changes.made_to(&JobSettings::of(&example.into()));
    match made.and_then(|job| job.of_agents(source, destination)) {
        Ok(spec) => judged::<Job>(missing, [examples::job(), JobCommand::Update(spec)]),
        Err(fault) if missing.kind() == ProblemKind::NotFound => fault,
        Err(_) => missing,
    }
}

impl JobSettings {
    /// As it is stored.
    fn of(columns: &JobColumns) -> Self {
        let JobColumns { max_attempts, backoff_seconds, .. } = *columns;
        Self {
            name: columns.name.clone(),
            r#type: Some(columns.job_type.clone()),
            source_agent_id: columns.source_agent_number,
            destination_agent_id: columns.destination_agent_number,
            source_path: columns.source_path.clone(),
            destination_path: columns.destination_path.clone(),
            schedule: columns.schedule.clone(),
            timezone: columns.timezone.clone(),
            enabled: Some(columns.enabled),
            retry: Some(RetryIn {
                max_attempts: Some(max_attempts.unsigned_abs()),
                backoff_seconds: Some(backoff_seconds.unsigned_abs()),
            }),
            overlap: Some(columns.overlap.clone()),
            description: columns.description.clone(),
        }
    }

    /// As it is commanded, between agents that were found.
    fn of_agents(self, source_agent: AgentRef, destination_agent: AgentRef) -> Result<JobSpec, Problem> {
        Ok(JobSpec {
            name: self.name,
            kind: known(self.r#type)?,
            source_agent,
            destination_agent,
            source_path: self.source_path,
            destination_path: self.destination_path,
            schedule: schedule(self.schedule, self.timezone.clone()),
            timezone: self.timezone,
            enabled: self.enabled.unwrap_or(true),
            retry: self.retry.map_or_else(Retry::default, Retry::from),
            overlap: known(self.overlap)?,
            description: self.description,
        })
    }
}

fn known<T: Copy + Default>(word: Option<Word<T>>) -> Result<T, Problem> {
    Ok(word.map(|word| word.known()).transpose()?.unwrap_or_default())
}

/// An empty expression means no schedule.
fn schedule(cron: Option<String>, timezone: Option<String>) -> Option<Schedule> {
    let cron = cron.map(|cron| cron.trim().to_owned()).filter(|cron| !cron.is_empty())?;
    Some(Schedule { cron, timezone: timezone.unwrap_or_else(|| "UTC".to_owned()) })
}

impl From<RetryIn> for Retry {
    fn from(retry: RetryIn) -> Self {
        let default = Self::default();
        Self {
            max_attempts: retry.max_attempts.unwrap_or(default.max_attempts),
            backoff_seconds: retry.backoff_seconds.unwrap_or(default.backoff_seconds),
        }
    }
}

pub(super) async fn find(database: &Database, owner: UserId, number: i64) -> Result<JobRow, Problem> {
    database.read(|pool| queries::job(pool, owner, number)).await?.ok_or_else(missing)
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
        Some(at) => there("Job", past_job(&database.primary, id.into(), at).await?),
    }
}

async fn find_past(database: &Database, owner: UserId, number: i64, at: At) -> Result<JobRow, Problem> {
    let id = match queries::job(&database.primary, owner, number).await? {
        Some(row) => row.id,
        None => queries::removed_job(&database.primary, owner, number).await?.ok_or_else(missing)?,
    };
    there("Job", past_job(&database.primary, id, at).await?)
}

fn missing() -> Problem {
    Problem::not_found("Job")
}

impl JobOut {
    pub(super) fn new(row: JobRow, user_id: i64) -> Self {
        let settings = JobSettings::of(&row.settings);
        Self {
            own: JobFacts {
                id: row.number,
                user_id,
                status: if row.settings.enabled { "active" } else { "paused" },
                last_run: row.last_run,
                next_run: row.next_run,
                last_transfer_id: row.last_transfer_number,
                created_at: row.created_at,
                updated_at: row.updated_at,
            },
            settings: JobSettings {
                timezone: settings.timezone.or_else(|| Some("UTC".to_owned())),
                ..settings
            },
        }
    }
}
