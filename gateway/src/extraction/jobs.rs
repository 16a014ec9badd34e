use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::request::Parts,
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_config::Config;
use signalbox_documents::OutputFormat;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand, ExtractionStatus, MAX_ATTEMPTS},
    identity::Role,
    kernel::{Actor, ExtractionJobId},
};
use signalbox_projections::{
    extraction::{
        ExtractionJobRow,
        queries::{self, JobCounts, JobFilter},
    },
    register::{At, past},
};
use utoipa::{IntoParams, ToSchema};

use super::{Visitor, extract::bare};
use crate::{
    answer,
    auth::CurrentUser,
    context::RequestContext,
    extract::{EnvelopeParams, IfMatch, Params, Sort, Text, Texts, Versions, id},
    past::{AsOf, AtParams, there},
    problem::{JobNotFoundOut, Problem, ProblemKind, ProblemOut},
    resource::after_write,
    services::{commands::Commands, replica::Database},
};

/// Longest text that is shown with the state of its job, in bytes; longer ones are fetched from `/result`.
const INLINE: i64 = 4 << 20;
/// Type of a document that has not been read yet.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A document that is read in the background.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExtractionJobOut {
    id: String,
    /// `queued`, `processing`, `completed`, `failed` or `cancelled`.
    #[schema(value_type = crate::words::ExtractionStatus)]
    status: String,
    filename: String,
    /// Found from the bytes; `application/octet-stream` until they have been read.
    mime_type: String,
    size_bytes: i64,
    /// Of the document, in hexadecimal.
    sha256: String,
    #[schema(value_type = crate::words::OutputFormat)]
    output_format: String,
    /// That was asked for.
    #[schema(value_type = crate::words::ExtractionEngine)]
    extraction_engine: String,
    /// That was asked for.
    #[schema(value_type = crate::words::OcrEngine)]
    ocr_engine: String,
    language: String,
    #[schema(value_type = Vec<crate::words::TextProcessor>)]
    processors: Vec<String>,
    /// The text, once the job has completed and while it is kept. Null in lists, and if it is longer than 4 MiB: then
    /// `/result` has it.
    result_content: Option<String>,
    /// Why the job failed, or waits for another attempt.
    error: Option<String>,
    /// Stable word for that.
    #[schema(value_type = Option<crate::words::ExtractionError>)]
    error_code: Option<String>,
    /// How often a worker has begun it.
    attempts: i32,
    max_attempts: u32,
    /// Pages that are done.
    pages_done: i32,
    /// Null while it is not known, and for what has no pages.
    page_count: Option<i32>,
    /// 0 to 1.
    progress: f64,
    /// Null until the job has completed, like those that follow.
    extractor_used: Option<String>,
    /// Also null when no page had to be recognised.
    ocr_engine_used: Option<String>,
    /// 0 to 1.
    confidence: Option<f32>,
    processing_time_ms: Option<i64>,
    /// Whether the same document was read a while ago, and this is what it gave then.
    cached: bool,
    /// At most 20, each of 300 characters at most: of more, the first 19, and how many others there are like these.
    warnings: Vec<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    /// When the last attempt began.
    started_at: Option<DateTime<Utc>>,
    completed_at: Option<DateTime<Utc>>,
    /// Until when the text is kept; null when there is none, or when it is `kept`.
    result_expires_at: Option<DateTime<Utc>>,
    /// Whether the text is kept until its owner deletes the document, and can be searched.
    kept: bool,
    /// Address of the kept text, which `DELETE` removes there; null when none is kept.
    document: Option<String>,
    /// Whether the document is kept, so that its pages can be looked at.
    input_kept: bool,
}

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExtractionJobsOut {
    items: Vec<ExtractionJobOut>,
    /// On all pages.
    total: i64,
    /// From 1.
    page: i64,
    page_size: i64,
    has_next: bool,
    /// The same as `items`, as other lists call it.
    data: Vec<ExtractionJobOut>,
}

/// How many jobs the caller has. Like the list, it has none for callers without a login.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExtractionStatsOut {
    /// Jobs of anybody that wait for a worker.
    queue_depth: i64,
    total_jobs: i64,
    completed: i64,
    failed: i64,
    processing: i64,
    queued: i64,
    cancelled: i64,
}

/// Which jobs are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobParams {
    /// `queued`, `processing`, `completed`, `failed` or `cancelled`.
    #[param(value_type = Option<crate::words::ExtractionStatus>)]
    status: Option<ExtractionStatus>,
    /// Part of the file's name, in any case of letters.
    filename: Option<String>,
    /// Submitted at or after, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Submitted before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// Whether a job is only ended.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalParams {
    /// Whether the job is deleted; false if absent.
    #[serde(default)]
    remove: Option<bool>,
}

/// `{id}` of a job, whose absence is answered in a form of its own.
pub(super) struct JobKey(String);

impl<S: Send + Sync> FromRequestParts<S> for JobKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = Text::from_request_parts(parts, state).await;
        text.map(|Text(id)| Self(id)).map_err(|_| job_not_found())
    }
}

/// `{id}` of a job and `{n}` of a page, likewise.
pub(super) struct PageKey(pub(super) String, pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PageKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let texts = Texts::from_request_parts(parts, state).await;
        texts.map(|Texts(id, page)| Self(id, page)).map_err(|_| job_not_found())
    }
}

/// There is no such job, or nothing of it.
pub(super) fn nothing_of_job(detail: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, "not_found", detail).in_state("not_found")
}

fn job_not_found() -> Problem {
    nothing_of_job("Job not found")
}

/// List the caller's extraction jobs, newest first. Jobs that were sent without a login are in no list.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "extraction jobs", security((), ("jwt" = [])), params(EnvelopeParams<50>, Sort<ExtractionJobRow>, JobParams), operation_id = "list_extraction_jobs",
    responses((status = 200, body = ExtractionJobsOut), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(super) async fn list(
    State(database): State<Database>,
    State(config): State<Arc<Config>>,
    Visitor(user): Visitor,
    Params(envelope): Params<EnvelopeParams<50>>,
    sort: Sort<ExtractionJobRow>,
    Params(params): Params<JobParams>,
) -> Result<Json<ExtractionJobsOut>, Problem> {
    let page = envelope.page()?;
    let JobParams { status, filename, from, to } = params;
    let filter = JobFilter { status: status.map(ExtractionStatus::as_str), filename, from, to };
    let (rows, total) = match user {
        Some(user) => database.read(|pool| queries::jobs(pool, user.id, &filter, sort.order(), page)).await?,
        None => (Vec::new(), 0),
    };
    let shown = || rows.iter().map(|row| ExtractionJobOut::new(&config, row, None)).collect();
    let (page, page_size) = envelope.numbers();
    let has_next = page * page_size < total;
    Ok(Json(ExtractionJobsOut { items: shown(), data: shown(), total, page, page_size, has_next }))
}

/// How an extraction job stands, with its text once it has completed. With `at`, how it stood; a text is shown as long as it
/// is kept.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "extraction jobs", security((), ("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_extraction_job",
    responses((status = 200, body = ExtractionJobOut), (status = 401, body = ProblemOut), (status = 404, body = JobNotFoundOut), (status = 422, body = ProblemOut)))]
pub(super) async fn get(
    State(database): State<Database>,
    State(config): State<Arc<Config>>,
    State(texts): State<signalbox_texts::Texts>,
    Visitor(user): Visitor,
    JobKey(id): JobKey,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let mut row = find_ever(&database, user.as_ref(), &id).await?;
    if at.is_none() && row.deleted {
        return Err(job_not_found());
    }
    if let Some(at) = at {
        let is_kept = row.result_kept || row.kept;
        row = find_past(&database, row.id, at).await?;
        // A result removed since cannot be shown any more.
        row.result_kept &= is_kept;
        row.kept &= is_kept;
    }
    let is_short = row.result_size.is_some_and(|size| size <= INLINE);
    let text = if is_short { text(&texts, &row).await? } else { None };
    Ok(answer::resource(row.version, &ExtractionJobOut::new(&config, &row, text)))
}

/// End an extraction job. One that has ended stays as it is, and so does a text that it keeps: `document` says where that is deleted.
/// With `remove`, delete one that has ended, with its document and its
/// text: the log keeps it, and with `at` it is shown as it was.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "extraction jobs", security((), ("jwt" = [])), params(("id" = String, Path,), RemovalParams), operation_id = "cancel_extraction_job",
    responses((status = 200, body = ExtractionJobOut), (status = 204, description = "With `remove`, the job is deleted"), (status = 401, body = ProblemOut), (status = 404, body = JobNotFoundOut), (status = 409, body = ProblemOut), (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(super) async fn cancel(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    Visitor(user): Visitor,
    IfMatch(versions): IfMatch,
    JobKey(id): JobKey,
    Params(params): Params<RemovalParams>,
    context: RequestContext,
) -> Result<Response, Problem> {
    if !params.remove.unwrap_or(false) {
        let command = ExtractionJobCommand::Cancel;
        return change(&database, &commands, &config, user.as_ref(), &id, versions, &context, command).await;
    }
    let row = find_own(&database, user.as_ref(), &id).await?;
    let metadata = context.metadata(actor(user.as_ref()), "delete extraction job");
    let command = ExtractionJobCommand::Delete;
    Ok(answer::deleted(commands.write::<ExtractionJob>(row.id.0, versions, &metadata, &command).await?))
}

/// Read a document again whose job has failed; any other job stays as it is.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "extraction jobs", security((), ("jwt" = [])), params(("id" = String, Path,)), operation_id = "retry_extraction_job",
    responses((status = 200, body = ExtractionJobOut), (status = 401, body = ProblemOut), (status = 404, body = JobNotFoundOut), (status = 409, body = ProblemOut)))]
pub(super) async fn retry(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    Visitor(user): Visitor,
    JobKey(id): JobKey,
    context: RequestContext,
) -> Result<Response, Problem> {
    change(&database, &commands, &config, user.as_ref(), &id, None, &context, ExtractionJobCommand::Retry)
        .await
}

/// The text of an extraction job alone.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/result", tag = "extraction jobs", security((), ("jwt" = [])), params(("id" = String, Path,)), operation_id = "get_extraction_result",
    responses((status = 200, content((String = "text/markdown"), (String = "text/plain"), (serde_json::Value = "application/json"),
        (String = "application/xhtml+xml"), (String = "application/xml"))),
        (status = 401, body = ProblemOut), (status = 404, body = JobNotFoundOut), (status = 409, body = ProblemOut)))]
pub(super) async fn result(
    State(database): State<Database>,
    State(texts): State<signalbox_texts::Texts>,
    Visitor(user): Visitor,
    JobKey(id): JobKey,
) -> Result<Response, Problem> {
    let row = find(&database, user.as_ref(), &id).await?;
    if !row.status.is(ExtractionStatus::Completed) {
        let detail = format!("Job is not completed (status: {})", row.status);
        return Err(Problem::conflict("job_not_completed", detail));
    }
    let missing = || nothing_of_job("Result not available: it is not kept any more");
    let content = text(&texts, &row).await?.ok_or_else(missing)?;
    Ok(bare(OutputFormat::named(&row.options.output_format).unwrap_or_default(), content))
}

/// How many extraction jobs there are in each state.
#[utoipa::path(get, path = "/api/v1/jobs/stats/overview", tag = "extraction jobs", security((), ("jwt" = [])), operation_id = "extraction_job_stats",
    responses((status = 200, body = ExtractionStatsOut), (status = 401, body = ProblemOut)))]
pub(super) async fn stats(
    State(database): State<Database>,
    Visitor(user): Visitor,
) -> Result<Json<ExtractionStatsOut>, Problem> {
    let counts = database.read(|pool| queries::counts(pool, user.as_ref().map(|user| user.id))).await?;
    let JobCounts { queue_depth, total, completed, failed, processing, queued, cancelled } = counts;
    Ok(Json(ExtractionStatsOut {
        queue_depth,
        total_jobs: total,
        completed,
        failed,
        processing,
        queued,
        cancelled,
    }))
}

async fn change(
    database: &Database,
    commands: &Commands,
    config: &Config,
    user: Option<&CurrentUser>,
    id: &str,
    versions: Option<Versions>,
    context: &RequestContext,
    command: ExtractionJobCommand,
) -> Result<Response, Problem> {
    let row = find(database, user, id).await?;
    let metadata = context.metadata(actor(user), "change extraction job");
    let written = commands.write::<ExtractionJob>(row.id.0, versions, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => find(database, user, id).await,
            Some(at) => find_past(database, row.id, at).await,
        }
    };
    let row = after_write(shown).await?;
    Ok(answer::changed(written, row.version, &ExtractionJobOut::new(config, &row, None)))
}

/// The actor in the log.
pub(super) fn actor(user: Option<&CurrentUser>) -> Actor {
    user.map_or_else(|| Actor::system("anonymous"), CurrentUser::actor)
}

/// The job that a client calls `id`: its own, or one that was sent without a login. Admins find kept texts of all, and can read them.
pub(super) async fn find(
    database: &Database,
    user: Option<&CurrentUser>,
    text: &str,
) -> Result<ExtractionJobRow, Problem> {
    let row = find_ever(database, user, text).await?;
    if row.deleted { Err(job_not_found()) } else { Ok(row) }
}

/// Like [`find`], but of the caller's own ones alone, for admins as well.
async fn find_own(
    database: &Database,
    user: Option<&CurrentUser>,
    text: &str,
) -> Result<ExtractionJobRow, Problem> {
    let row = find(database, user, text).await?;
    let is_own = row.owner_id.is_none_or(|owner| user.is_some_and(|user| user.id == owner));
    if is_own { Ok(row) } else { Err(job_not_found()) }
}

/// Like [`find`], also one that was deleted.
async fn find_ever(
    database: &Database,
    user: Option<&CurrentUser>,
    text: &str,
) -> Result<ExtractionJobRow, Problem> {
    let id = id(text).ok_or_else(job_not_found)?;
    let row = database.read(|pool| queries::job(pool, id.into())).await?;
    let is_visible = |row: &ExtractionJobRow| {
        let may_read = |user: &CurrentUser, owner| user.id == owner || (row.kept && user.role == Role::Admin);
        row.owner_id.is_none_or(|owner| user.is_some_and(|user| may_read(user, owner)))
    };
    row.filter(is_visible).ok_or_else(job_not_found)
}

async fn find_past(database: &Database, id: ExtractionJobId, at: At) -> Result<ExtractionJobRow, Problem> {
    let then = there("Job", past::<ExtractionJobRow>(&database.primary, id.0, at).await?);
    then.map_err(|problem| nothing_of_job(problem.detail()))
}

/// The text of a completed job, while it is kept.
async fn text(texts: &signalbox_texts::Texts, row: &ExtractionJobRow) -> Result<Option<String>, Problem> {
    let Some(id) = row.result_id.filter(|_| row.result_kept || row.kept) else { return Ok(None) };
    let read = texts.read(id).await.map_err(|error| Problem::internal(&error))?;
    Ok(read.map(|extraction| extraction.content))
}

impl ExtractionJobOut {
    fn new(config: &Config, row: &ExtractionJobRow, result_content: Option<String>) -> Self {
        let keep = TimeDelta::hours(i64::from(config.extraction.result_hours));
        let completed_at = row.ended_at.filter(|_| row.status.is(ExtractionStatus::Completed));
        let done = match row.page_count {
            Some(count) if count > 0 => f64::from(row.pages_done) / f64::from(count),
            _ => 0.0,
        };
        Self {
            id: row.id.to_string(),
            status: row.status.to_string(),
            filename: row.filename.clone(),
            mime_type: row.mime_type.clone().unwrap_or_else(|| UNKNOWN_TYPE.to_owned()),
            size_bytes: row.size,
            sha256: row.sha256.clone(),
            output_format: row.options.output_format.clone(),
            extraction_engine: row.options.engine.clone(),
            ocr_engine: row.options.ocr_engine.clone(),
            language: row.options.language.clone(),
            processors: row.options.processors.clone(),
            result_content,
            error: row.error.clone(),
            error_code: row.error_code.clone(),
            attempts: row.attempts,
            max_attempts: MAX_ATTEMPTS,
            pages_done: row.pages_done,
            page_count: row.page_count,
            progress: if completed_at.is_some() { 1.0 } else { done },
            extractor_used: row.extractor_used.clone(),
            ocr_engine_used: row.ocr_engine_used.clone(),
            confidence: row.confidence,
            processing_time_ms: row.milliseconds,
            cached: row.cached,
            warnings: row.warnings.clone(),
            created_at: row.created_at,
            updated_at: row.updated_at,
            started_at: row.started_at,
            completed_at,
            result_expires_at: completed_at.filter(|_| row.result_kept).map(|at| at + keep),
            input_kept: row.input_kept,
            kept: row.kept,
            document: row.kept.then(|| format!("/api/v1/documents/{}", row.id)),
        }
    }
}
