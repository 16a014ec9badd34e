//! Documents whose text is kept: the list, the search in it, and deletion.

use std::time::Duration;

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_config::Config;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand},
    identity::Role,
    kernel::ExtractionJobId,
};
use signalbox_projections::extraction::{
    Search, SnippetPart,
    documents::{self, DocumentFilter, DocumentHit, DocumentRow},
    keeping,
    queries::job,
};
use sqlx::PgPool;
use tokio::time::sleep;
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer::{self, Page, StatusOut},
    auth::{CurrentUser, Reader},
    context::RequestContext,
    extract::{EnvelopeParams, IfMatch, Params, Sort, Text, id},
    problem::{Problem, ProblemOut},
    services::{commands::Commands, replica::Database},
};

/// How long a command may be under way after its sender has gone: command handlers wait for PostgreSQL for ten seconds.
const UNDER_WAY: Duration = Duration::from_secs(30);
/// Characters of a query.
const MAX_QUERY: usize = 1000;

/// A document whose text is kept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeptDocumentOut {
    /// Of its job, at `/api/v1/jobs/{id}`.
    id: String,
    filename: String,
    /// Found from the bytes.
    mime_type: Option<String>,
    size_bytes: i64,
    /// Of the document, in hexadecimal.
    sha256: String,
    /// Null for documents without pages.
    page_count: Option<i32>,
    language: Option<String>,
    #[schema(value_type = Option<crate::words::OutputFormat>)]
    output_format: Option<String>,
    /// The user who submitted it.
    user_public_id: Option<String>,
    created_at: DateTime<Utc>,
    completed_at: Option<DateTime<Utc>>,
    /// Whether its text can be found: a moment after the job has completed.
    searchable: bool,
    /// How well its text matches `q`; 0 without.
    relevance: f32,
    /// With `q`, the places that match best, three at most; empty without.
    hits: Vec<DocumentHitOut>,
}

/// A place of a document that matches the query.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DocumentHitOut {
    /// From 1; null in documents without pages.
    page: Option<i32>,
    /// Box of the block: left, top, right and bottom in points from the left upper corner of the page; null where it is not known.
    bbox: Option<[f64; 4]>,
    /// The words around the first ones that were found, as plain text.
    snippet: String,
    /// The snippet in pieces, so that what was found can be marked.
    parts: Vec<SnippetPartOut>,
}

/// A piece of a snippet.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SnippetPartOut {
    /// As plain text.
    text: String,
    /// Whether it is one of the words that were found.
    matched: bool,
}

/// Which documents are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DocumentParams {
    /// Words that all stand on one page (of a longer one, in one part of about 8000 characters), as search engines take them:
    /// `"exact phrase"`, `or`, `-without`. At most 1000 characters.
    #[param(max_length = 1000)]
    q: Option<String>,
    /// Part of the file's name, in any case of letters.
    filename: Option<String>,
    /// Submitted at or after, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Submitted before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// List documents whose text is kept, newest first; with `q` those that have its words, the best match first. Users see their own,
/// admins all.
#[utoipa::path(get, path = "/api/v1/documents", tag = "documents", security(("jwt" = [])), params(EnvelopeParams, Sort<DocumentRow>, DocumentParams), operation_id = "list_documents",
    responses((status = 200, body = Page<KeptDocumentOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(super) async fn list(
    State(database): State<Database>,
    Reader(user): Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<DocumentRow>,
    Params(params): Params<DocumentParams>,
) -> Result<Json<Page<KeptDocumentOut>>, Problem> {
    let page = envelope.page()?;
    let DocumentParams { q, filename, from, to } = params;
    let text = q.filter(|text| !text.trim().is_empty());
    if text.as_ref().is_some_and(|text| text.chars().count() > MAX_QUERY) {
        return Err(Problem::field("q", format!("must be at most {MAX_QUERY} characters long")));
    }
    let search = text.as_deref().map(Search::parse);
    let order = match &search {
        Some(_) => sort.given().unwrap_or_else(DocumentRow::search_order),
        None => sort.order(),
    };
    let owner = (user.role != Role::Admin).then_some(user.id);
    let filter = DocumentFilter { search, owner, filename, from, to };
    let (rows, total) = database.read(|pool| documents::documents(pool, &filter, order, page)).await?;
    let hits = match &filter.search {
        Some(search) if !rows.is_empty() => {
            let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
            database.read(|pool| documents::hits(pool, &ids, search)).await?
        }
        _ => Vec::new(),
    };
    let shown = rows.into_iter().map(|row| KeptDocumentOut::new(row, &hits)).collect();
    Ok(Json(envelope.envelope(total, shown)))
}

/// Delete a document of which the text is kept, for good: its text and what is left of the file are removed, and its job
/// has no result any more. Users delete their own, admins any.
#[utoipa::path(delete, path = "/api/v1/documents/{id}", tag = "documents", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_document",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(super) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Reader(user): Reader,
    IfMatch(versions): IfMatch,
    Text(text): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let missing = || Problem::not_found("Document");
    let id = id(&text).ok_or_else(missing)?;
    let found = database.read(|pool| job(pool, id.into())).await?;
    let may_delete = |owner| user.role == Role::Admin || owner == Some(user.id);
    let row = found.filter(|row| may_delete(row.owner_id)).ok_or_else(missing)?;
    if row.options.keep && row.ended_at.is_none() {
        return Err(Problem::conflict(
            "job_under_way",
            "The job has not ended, so there is no text yet: cancel it by DELETE /api/v1/jobs/{id}, or delete the document later.",
        ));
    }
    if !row.kept {
        return Err(missing());
    }
    let metadata = context.metadata(user.actor(), "delete document");
    let written =
        commands.write::<ExtractionJob>(id, versions, &metadata, &ExtractionJobCommand::Discard).await?;
    Ok(answer::success(written, "Document successfully deleted."))
}

/// Refuses to keep the text of a caller who could neither find nor delete it.
pub(super) fn check_keeper(user: Option<&CurrentUser>) -> Result<(), Problem> {
    match user {
        Some(_) => Ok(()),
        None => Err(Problem::unauthenticated(
            "keep=true keeps the text for its owner, so it needs a login or an API token: send Authorization: Bearer <token>, or \
             leave keep out",
        )),
    }
}

/// Documents of jobs whose texts a user keeps, which count until the jobs show. Dropped before they are taken in, those of which the
/// log has no job count no longer.
pub(super) struct Keeping {
    pool: PgPool,
    jobs: Vec<ExtractionJobId>,
    is_over: bool,
    /// Time after which the log has every job that may still be taken in.
    until_certain: Duration,
}

impl Keeping {
    /// Counts `jobs`, with the sizes of their documents.
    ///
    /// # Errors
    /// 409 when what may be kept for `user` is reached.
    pub(super) async fn note(
        database: &Database,
        config: &Config,
        user: &CurrentUser,
        jobs: &[(ExtractionJobId, u64)],
    ) -> Result<Self, Problem> {
        let most = config.extraction.kept_mb_each;
        let sizes: Vec<i64> = jobs.iter().map(|(_, size)| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
        let jobs: Vec<_> = jobs.iter().map(|(id, _)| *id).collect();
        let limit = i64::from(most) << 20;
        let Some(taken) = keeping::note(&database.primary, user.id, &jobs, &sizes, limit).await? else {
            let pool = database.primary.clone();
            return Ok(Self { pool, jobs, is_over: false, until_certain: Duration::ZERO });
        };
        // Several documents may be too much for the rest of it.
        let remedy = match taken < limit {
            true => ", and these documents would take more than the rest: send fewer at once",
            false => "",
        };
        let detail = format!(
            "Your kept texts, with the places of their blocks, and open jobs take {} MiB of {most} MiB{remedy}: delete some documents, or \
             leave keep out.",
            taken >> 20,
        );
        Err(Problem::conflict("documents_full", detail))
    }

    /// From now on jobs are submitted: one that is not answered may still be taken in.
    pub(super) fn begin(&mut self) {
        self.until_certain = UNDER_WAY;
    }

    /// Each job was taken in, was refused, or has not been submitted.
    pub(super) fn end(&mut self) {
        self.until_certain = Duration::ZERO;
    }

    /// The jobs were taken in.
    pub(super) fn taken_in(mut self) {
        self.is_over = true;
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (pool, jobs, wait) = (self.pool.clone(), std::mem::take(&mut self.jobs), self.until_certain);
        tokio::spawn(async move {
            sleep(wait).await;
            if let Err(error) = keeping::release(&pool, &jobs).await {
                tracing::warn!(%error, "documents that were not taken in count for another hour");
            }
        });
    }
}

impl KeptDocumentOut {
    fn new(row: DocumentRow, hits: &[DocumentHit]) -> Self {
        let own = hits.iter().filter(|hit| hit.document == row.id);
        Self {
            hits: own.map(DocumentHitOut::from).collect(),
            id: row.id.to_string(),
            filename: row.filename,
            mime_type: row.mime_type,
            size_bytes: row.size,
            sha256: row.sha256,
            page_count: row.page_count,
            language: row.language,
            output_format: row.output_format,
            user_public_id: row.owner_id.map(|owner| owner.to_string()),
            created_at: row.created_at,
            completed_at: row.ended_at,
            searchable: row.is_searchable,
            relevance: row.relevance,
        }
    }
}

impl From<&DocumentHit> for DocumentHitOut {
    fn from(hit: &DocumentHit) -> Self {
        let part = |part: &SnippetPart| SnippetPartOut { text: part.text.clone(), matched: part.is_match };
        Self {
            page: hit.page,
            bbox: hit.bbox,
            snippet: hit.snippet.iter().map(|part| part.text.as_str()).collect(),
            parts: hit.snippet.iter().map(part).collect(),
        }
    }
}
