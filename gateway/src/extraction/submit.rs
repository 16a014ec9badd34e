use std::sync::atomic::{AtomicBool, Ordering};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, stream};
use serde::Serialize;
use serde_json::json;
use signalbox_config::Config;
use signalbox_documents::{Documents, Options, Processor};
use signalbox_domain::{
    extraction::{Callback, ExtractionJob, ExtractionJobCommand, ExtractionOptions, NewExtractionJob},
    kernel::{ExtractionJobId, WebhookId},
};
use signalbox_projections::extraction::queries;
use signalbox_sealing::Sealer;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    Caller,
    documents::{self, Keeping},
    extract::query,
    jobs::actor,
    options::{self, ExtractionJobIn, ExtractionJobsIn, JobOptionsIn, OptionsIn, Pairs},
    receive::{Document, Form, receive},
    sandbox,
};
use crate::{
    answer::{self, NotStored},
    auth::CurrentUser,
    context::RequestContext,
    extraction::services::DocumentServices,
    idempotency::{Begun, Once, RequestSecret, digest},
    problem::{Problem, ProblemKind, ProblemOut},
    services::replica::Database,
    state::Written,
    target::reachable_from,
};

/// Commands of a batch under way at the same time.
const CONCURRENT: usize = 16;
/// Longest secret of a callback, in characters.
pub(crate) const MAX_SECRET: usize = 255;
/// Prefix of secrets by the Standard Webhooks specification.
const SECRET_PREFIX: &str = "whsec_";

/// A job that was taken in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExtractionSubmittedOut {
    job_id: String,
    /// `queued`.
    #[schema(value_type = crate::words::Submitted)]
    status: &'static str,
    filename: String,
    message: &'static str,
    /// Signs the callback; only here, and only if the request named a callback without a secret of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_secret: Option<String>,
}

/// Jobs that were taken in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExtractionBatchOut {
    /// In the order of their files.
    jobs: Vec<ExtractionSubmittedOut>,
    total: usize,
    message: &'static str,
}

/// The request, common to all its documents.
struct JobRequest {
    options: Options,
    keeps_input: bool,
    keeps_text: bool,
    callback: Option<CallbackRequest>,
}

/// The requested callback, and the secret that signs it.
struct CallbackRequest {
    /// Equal for all addresses of a host.
    receiver: WebhookId,
    url: String,
    /// None if we have to make one.
    secret: Option<String>,
    /// Whether the address of this machine itself is refused to it.
    no_loopback: bool,
}

/// Have a document read in the background.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "documents", security((), ("jwt" = [])), params(OptionsIn, JobOptionsIn), operation_id = "submit_extraction_job",
    request_body(content = ExtractionJobIn, content_type = "multipart/form-data"),
    responses((status = 202, body = ExtractionSubmittedOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 413, body = ProblemOut), (status = 415, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut)))]
pub(super) async fn submit(
    State(services): State<DocumentServices>,
    caller: Caller,
    once: Once,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    take_in(&services, &caller, once, context, request, false).await
}

/// The same as a job; the name that goes with quick calls for documents.
#[utoipa::path(post, path = "/api/v1/documents", tag = "documents", security((), ("jwt" = [])), params(OptionsIn, JobOptionsIn), operation_id = "submit_document",
    request_body(content = ExtractionJobIn, content_type = "multipart/form-data"),
    responses((status = 202, body = ExtractionSubmittedOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 413, body = ProblemOut), (status = 415, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut)))]
pub(super) async fn submit_document(
    services: State<DocumentServices>,
    caller: Caller,
    once: Once,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    submit(services, caller, once, context, request).await
}

/// Have up to 100 documents read in the background, all with the same options: all of them are taken in, or none.
#[utoipa::path(post, path = "/api/v1/jobs/batch", tag = "documents", security((), ("jwt" = [])), params(OptionsIn, JobOptionsIn), operation_id = "submit_extraction_jobs",
    request_body(content = ExtractionJobsIn, content_type = "multipart/form-data"),
    responses((status = 202, body = ExtractionBatchOut), (status = 400, body = ProblemOut), (status = 401, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 413, body = ProblemOut), (status = 415, body = ProblemOut), (status = 422, body = ProblemOut), (status = 503, body = ProblemOut)))]
pub(super) async fn submit_batch(
    State(services): State<DocumentServices>,
    caller: Caller,
    once: Once,
    context: RequestContext,
    request: Request,
) -> Result<Response, Problem> {
    take_in(&services, &caller, once, context, request, true).await
}

async fn take_in(
    services: &DocumentServices,
    caller: &Caller,
    Once(once): Once,
    mut context: RequestContext,
    request: Request,
    is_batch: bool,
) -> Result<Response, Problem> {
    let (uri, query) = (request.uri().clone(), query(&request)?);
    let no_loopback = caller.must_not_reach_loopback(&services.config, &request);
    // Invalid options in the query are reported before the document is sent.
    options::read(&query, &Pairs::new())?;
    options::keeps_input(&query, &Pairs::new())?;
    if options::keeps_text(&query, &Pairs::new())? {
        documents::check_keeper(caller.user.as_ref())?;
    }
    let place = caller.begin_upload(&services.config, &services.uploads, &request).await?;
    let form = receive(services, request, is_batch, caller.stranger).await?;
    drop(place);
    // The request itself has been counted as one.
    caller.count(&services.config, &services.clock, &services.limiter, form.documents.len() - 1)?;
    let job = job_request(&services.config, &services.documents, &query, &form.fields, no_loopback).await?;
    if job.keeps_text {
        documents::check_keeper(caller.user.as_ref())?;
    }
    check_types(&services.documents, &form, &job.options, is_batch)?;
    let Some(once) = once else {
        return submit_all(services, caller, &context, form, &job, is_batch).await;
    };
    match once.begin(&services.repetitions, &digest(&uri, &form.digest(&query))).await? {
        Begun::Before(first) => Ok(first),
        Begun::Now(seed) => {
            context.resource = seed;
            context.keyed = Some(once.clone());
            let response = submit_all(services, caller, &context, form, &job, is_batch).await?;
            once.keep(&services.repetitions, seed, response).await
        }
    }
}

/// Refuses documents of unsupported types before a job is created.
fn check_types(
    documents: &Option<Documents>,
    form: &Form,
    options: &Options,
    is_batch: bool,
) -> Result<(), Problem> {
    let documents = sandbox(documents)?;
    form.documents.iter().try_for_each(|document| {
        let checked = documents.check_type(&document.probe, options).map_err(Problem::from);
        checked.map_err(|problem| if is_batch { problem.of_file(&document.filename) } else { problem })
    })
}

async fn job_request(
    config: &Config,
    documents: &Option<Documents>,
    query: &Pairs,
    form: &Pairs,
    no_loopback: bool,
) -> Result<JobRequest, Problem> {
    let options = options::read(query, form)?;
    let documents = sandbox(documents)?;
    documents.check(&options)?;
    let llm = Processor::Llm;
    if options.processors.contains(&llm) && !documents.offer().await.processors.contains(&llm.as_str()) {
        return Err(Problem::unavailable("the processor llm is not configured here: leave it out"));
    }
    let keeps_input = options::keeps_input(query, form)?;
    let keeps_text = options::keeps_text(query, form)?;
    Ok(JobRequest { options, keeps_input, keeps_text, callback: callback(config, query, form, no_loopback)? })
}

/// `no_loopback` refuses the addresses of this machine itself, here when they are literal, else when the request is made.
fn callback(
    config: &Config,
    query: &Pairs,
    form: &Pairs,
    no_loopback: bool,
) -> Result<Option<CallbackRequest>, Problem> {
    let given = |name: &str| options::one(query, form, name).filter(|value| !value.is_empty());
    let Some(url) = given("callback_url") else { return Ok(None) };
    let (url, target) = reachable_from(config, "callback_url", &url, no_loopback)?;
    let secret = given("callback_secret");
    if secret.as_ref().is_some_and(|secret| secret.chars().count() > MAX_SECRET || secret.contains('\0')) {
        let fault = format!("must be at most {MAX_SECRET} characters long, without NUL");
        return Err(Problem::field("callback_secret", fault));
    }
    let host: String = target.as_str().split_inclusive('/').take(3).collect();
    let receiver = WebhookId(Uuid::new_v5(&Uuid::NAMESPACE_URL, host.as_bytes()));
    Ok(Some(CallbackRequest { receiver, url, secret, no_loopback }))
}

/// The queue is bounded: a client that finds it full tries again. A repetition has room for the documents that it sent before.
async fn check_room(database: &Database, config: &Config, ids: &[ExtractionJobId]) -> Result<(), Problem> {
    let most = i64::from(config.extraction.max_open_jobs);
    if queries::open_jobs_with(&database.primary, ids, most).await? <= most {
        return Ok(());
    }
    Err(Problem::unavailable("Too many documents wait to be read: try again in a while."))
}

async fn submit_all(
    services: &DocumentServices,
    caller: &Caller,
    context: &RequestContext,
    form: Form,
    request: &JobRequest,
    is_batch: bool,
) -> Result<Response, Problem> {
    let documents = form.documents;
    let id = |number: usize| match is_batch {
        true => ExtractionJobId(Uuid::new_v5(&context.resource, format!("document {number}").as_bytes())),
        false => ExtractionJobId(context.resource),
    };
    let ids: Vec<_> = (0..documents.len()).map(id).collect();
    check_room(&services.database, &services.config, &ids).await?;
    let user = caller.user.as_ref();
    let sizes: Vec<_> = ids.iter().copied().zip(documents.iter().map(|document| document.size)).collect();
    let mut keeping = match user.filter(|_| request.keeps_text) {
        Some(user) => Some(Keeping::note(&services.database, &services.config, user, &sizes).await?),
        None => None,
    };
    if let Some(coming) = form.coming {
        coming.note(&sizes).await?;
    }
    let secret = match &request.callback {
        Some(CallbackRequest { secret: None, .. }) => Some(context.secret(&services.repetitions).await?),
        _ => None,
    };
    let secret = secret.as_ref();
    let has_failed = &AtomicBool::new(false);
    let submissions = ids.into_iter().zip(documents).map(|(id, document)| async move {
        if has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let submitted = submit_one(&services.sealer, user, context, id, document, request, secret).await;
        has_failed.fetch_or(submitted.is_err(), Ordering::Relaxed);
        Some(submitted)
    });
    let submissions: Vec<_> = submissions.collect();
    keeping.iter_mut().for_each(Keeping::begin);
    // After a failure those under way are still awaited: if they are taken in, they count.
    let submitted: Vec<Option<Result<_, Problem>>> =
        stream::iter(submissions).buffered(CONCURRENT).collect().await;
    let is_certain = |submitted: &Result<_, Problem>| {
        submitted.as_ref().err().is_none_or(|problem| problem.kind() != ProblemKind::Unavailable)
    };
    if submitted.iter().flatten().all(is_certain) {
        keeping.iter_mut().for_each(Keeping::end);
    }
    let submitted: Vec<(Written, ExtractionSubmittedOut)> =
        submitted.into_iter().flatten().collect::<Result<_, _>>()?;
    if let Some(keeping) = keeping {
        keeping.taken_in();
    }
    let unseen = submitted.iter().find_map(|(written, _)| written.unseen);
    let repeated = submitted.iter().all(|(written, _)| written.repeated);
    let mut jobs: Vec<_> = submitted.into_iter().map(|(_, out)| out).collect();
    let shows_secret = jobs.iter().any(|job| job.callback_secret.is_some());
    let written = Written { unseen, repeated, ..Written::default() };
    let mut response = match jobs.pop() {
        Some(job) if !is_batch => {
            let location = format!("/api/v1/jobs/{}", job.job_id);
            answer::written(written, StatusCode::ACCEPTED, Some(&location), &job)
        }
        last => {
            jobs.extend(last);
            let out = ExtractionBatchOut { total: jobs.len(), jobs, message: "Batch submitted successfully" };
            answer::written(written, StatusCode::ACCEPTED, None, &out)
        }
    };
    if shows_secret {
        response.extensions_mut().insert(NotStored);
    }
    Ok(response)
}

async fn submit_one(
    sealer: &Sealer,
    user: Option<&CurrentUser>,
    context: &RequestContext,
    id: ExtractionJobId,
    document: Document,
    request: &JobRequest,
    random: Option<&RequestSecret>,
) -> Result<(Written, ExtractionSubmittedOut), Problem> {
    let Document { input, filename, size, sha256, probe: _ } = document;
    let mut shown = None;
    let callback = match &request.callback {
        None => None,
        Some(CallbackRequest { receiver, url, secret, no_loopback }) => {
            let secret = match (secret, random) {
                (Some(secret), _) => secret.clone(),
                (None, Some(random)) => shown.insert(made_secret(random, id)?).clone(),
                (None, None) => return Err(Problem::internal(&"a callback has no secret")),
            };
            let sealed = sealer.seal(receiver.0, &secret).map_err(|error| Problem::internal(&error))?;
            Some(Callback {
                receiver: *receiver,
                url: url.clone(),
                sealed_secret: sealed,
                no_loopback: *no_loopback,
            })
        }
    };
    let new = NewExtractionJob {
        owner: user.map(|user| user.id),
        filename: filename.clone(),
        size,
        sha256,
        input: input.id(),
        options: ExtractionOptions {
            keep_input: request.keeps_input,
            keep: request.keeps_text,
            ..words(&request.options)?
        },
        callback,
    };
    let metadata = context.metadata(actor(user), &format!("submit {id}"));
    let command = ExtractionJobCommand::Submit(new);
    let written = input.hand_over::<ExtractionJob>(id.0, &metadata, &command).await?;
    let out = ExtractionSubmittedOut {
        job_id: id.to_string(),
        status: "queued",
        filename,
        message: "Job submitted successfully",
        callback_secret: shown,
    };
    Ok((written, out))
}

fn made_secret(random: &RequestSecret, job: ExtractionJobId) -> Result<String, Problem> {
    let secret = random.derive("callback secret", job.0)?;
    Ok(format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(secret)))
}

/// The words of the log for `options`; they are the same.
fn words(options: &Options) -> Result<ExtractionOptions, Problem> {
    serde_json::from_value(json!(options)).map_err(|error| Problem::internal(&error))
}
