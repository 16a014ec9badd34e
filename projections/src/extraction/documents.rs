//! Kept texts of jobs: the list of documents, the index that they are searched by, and the search.
//!
//! The index is derived from the texts in the blob store, by a worker. It is not a part of the read model, so that a
//! rebuild of that, which has no texts, leaves it alone; the read model says which documents there are.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_database::{begin, delete_in_batches};
use signalbox_domain::kernel::{ExtractionJobId, UserId};
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use super::{
    ExtractionJobRow,
    search::{Search, fold},
    snippet::{SnippetPart, cut, matches},
};
use crate::page::{Listed, Order, Page, Sorting, and_eq, and_like, and_within, list};

/// Places of one document that a search shows.
const HITS_EACH: i64 = 3;
/// In which form words are indexed. Raised when [`fold`] changes: documents of a lower form are indexed again.
const FORM: i32 = 1;
/// Sections that are written by one statement.
const SECTIONS: usize = 200;

/// Which documents are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct DocumentFilter {
    /// Words that the text has.
    pub search: Option<Search>,
    pub owner: Option<UserId>,
    /// Part of the file's name, in any case of letters.
    pub filename: Option<String>,
    /// Submitted at or after.
    pub from: Option<DateTime<Utc>>,
    /// Submitted before.
    pub to: Option<DateTime<Utc>>,
}

/// A document whose text is kept.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DocumentRow {
    /// Of its job.
    pub id: ExtractionJobId,
    pub owner_id: Option<UserId>,
    pub filename: String,
    /// Of the document, in bytes.
    pub size: i64,
    /// Of the document.
    pub sha256: String,
    pub mime_type: Option<String>,
    pub page_count: Option<i32>,
    pub language: Option<String>,
    pub output_format: Option<String>,
    /// Of the text, in bytes.
    pub result_size: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Whether its text can be found.
    pub is_searchable: bool,
    /// How well it matches the query; 0 without one.
    pub relevance: f32,
}

/// A place of a document that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentHit {
    pub document: ExtractionJobId,
    pub page: Option<i32>,
    pub bbox: Option<[f64; 4]>,
    pub snippet: Vec<SnippetPart>,
}

/// Consecutive blocks, on one page if there are pages, which are searched as one text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section {
    pub page: Option<i32>,
    /// Of its blocks.
    pub texts: Vec<String>,
    /// Of the same.
    pub boxes: Vec<Option<[f64; 4]>>,
}

#[derive(FromRow)]
struct HitRow {
    job_id: ExtractionJobId,
    page: Option<i32>,
    boxes: Json<Vec<Option<[f64; 4]>>>,
    texts: Vec<String>,
}

impl Listed for DocumentRow {
    const SORTING: Sorting =
        Sorting::newest_first(("created_at", "created_at"), &[("relevance", "relevance")], "id");
}

impl DocumentRow {
    /// The order of a search that names none: the best match first.
    pub fn search_order() -> Order {
        Self::SORTING.order("-relevance").unwrap_or_else(Self::default_order)
    }
}

const COLUMNS: &str = "SELECT job.id, job.owner_id, job.filename, job.size, job.sha256, job.mime_type, job.page_count,
    job.options ->> 'language' AS language, job.options ->> 'output_format' AS output_format, job.result_size, job.created_at,
    job.ended_at, indexed.job_id IS NOT NULL AS is_searchable";

/// A page of the documents and how many there are. A query matches the words of one section.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn documents(
    pool: &PgPool,
    filter: &DocumentFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<DocumentRow>, i64), sqlx::Error> {
    let relevance = if filter.search.is_some() { "found.relevance" } else { "0::real" };
    list(pool, &format!("{COLUMNS}, {relevance} AS relevance"), order, page, |query| {
        query.push(
            " FROM read.extraction_jobs job LEFT JOIN ops.indexed_documents indexed ON indexed.job_id = job.id",
        );
        if let Some(search) = &filter.search {
            query
                .push(
                    " JOIN (SELECT section.job_id, max(ts_rank_cd(section.words, sought)) AS relevance
                              FROM websearch_to_tsquery('simple', ",
                )
                .push_bind(search.query())
                .push(
                    ") sought, ops.document_sections section
                              JOIN read.extraction_jobs own ON own.id = section.job_id AND own.kept
                             WHERE section.words @@ sought",
                );
            and_eq(query, "own.owner_id", filter.owner);
            query.push(" GROUP BY section.job_id) found ON found.job_id = job.id");
        }
        query.push(" WHERE job.kept");
        and_eq(query, "job.owner_id", filter.owner);
        and_like(query, "job.filename", filter.filename.as_deref());
        and_within(query, "job.created_at", filter.from, filter.to);
    })
    .await
}

/// The best places of `documents` for `search`, a few of each, in the order of the documents.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn hits(
    pool: &PgPool,
    documents: &[ExtractionJobId],
    search: &Search,
) -> Result<Vec<DocumentHit>, sqlx::Error> {
    let rows: Vec<HitRow> = sqlx::query_as(
        "SELECT section.job_id, section.page, section.boxes, section.texts
           FROM websearch_to_tsquery('simple', $2::text) sought,
                unnest($1::uuid[]) WITH ORDINALITY document (id, place),
                LATERAL (SELECT *, ts_rank_cd(words, sought) AS rank FROM ops.document_sections
                          WHERE job_id = document.id AND words @@ sought
                          ORDER BY rank DESC, number LIMIT $3) section
          ORDER BY document.place, section.rank DESC, section.number",
    )
    .bind(documents)
    .bind(search.query())
    .bind(HITS_EACH)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| DocumentHit::new(row, search)).collect())
}

impl DocumentHit {
    fn new(row: HitRow, search: &Search) -> Self {
        let marked: Vec<_> = row.texts.iter().map(|text| search.mark(text)).collect();
        // The block with most of the words; the first of several.
        let best = marked.iter().enumerate().rev().max_by_key(|(_, marked)| matches(marked));
        let bbox = best.and_then(|(number, _)| row.boxes.get(number).copied().flatten());
        let snippet = best.map(|(_, marked)| cut(marked)).unwrap_or_default();
        Self { document: row.job_id, page: row.page, bbox, snippet }
    }
}

/// Documents whose text is not in the index, or in an earlier form, the oldest first, of those that were submitted at or after `since`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unindexed(
    pool: &PgPool,
    since: DateTime<Utc>,
    without: &[Uuid],
    limit: i64,
) -> Result<Vec<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.extraction_jobs job
          WHERE kept AND created_at >= $1 AND id <> ALL($2::uuid[])
            AND NOT EXISTS (SELECT FROM ops.indexed_documents indexed WHERE indexed.job_id = job.id AND indexed.form >= $4)
          ORDER BY created_at, id LIMIT $3",
    )
    .bind(since)
    .bind(without)
    .bind(limit)
    .bind(FORM)
    .fetch_all(pool)
    .await
}

/// Jobs that were deleted by their owners, or whose kept texts were, and whose files are still to be removed. Those that were
/// cancelled after `lapsed` are left out if they were ever claimed: a worker may still be writing what it has read.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn discarded(
    pool: &PgPool,
    lapsed: DateTime<Utc>,
    without: &[Uuid],
    limit: i64,
) -> Result<Vec<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.extraction_jobs
          WHERE discarded AND NOT (status = 'cancelled' AND claims <> '{}' AND ended_at > $3)
            AND id <> ALL($1::uuid[]) ORDER BY id LIMIT $2",
    )
    .bind(without)
    .bind(limit)
    .bind(lapsed)
    .fetch_all(pool)
    .await
}

/// Writes the `sections` of a document, all or none; again, it replaces them.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn index(
    pool: &PgPool,
    document: ExtractionJobId,
    sections: &[Section],
) -> Result<(), sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    sqlx::query("DELETE FROM ops.document_sections WHERE job_id = $1")
        .bind(document)
        .execute(&mut *transaction)
        .await?;
    let mut number = 0;
    for batch in sections.chunks(SECTIONS) {
        let numbers: Vec<i32> = (number..).take(batch.len()).collect();
        number += i32::try_from(batch.len()).unwrap_or(i32::MAX);
        let pages: Vec<Option<i32>> = batch.iter().map(|section| section.page).collect();
        let words: Vec<_> = batch.iter().map(|section| fold(&section.texts.join("\n"))).collect();
        // Arrays of arrays must have equal lengths in PostgreSQL, so texts are sent as JSON.
        let texts: Vec<_> = batch.iter().map(|section| Json(&section.texts)).collect();
        let boxes: Vec<_> = batch.iter().map(|section| Json(&section.boxes)).collect();
        sqlx::query(
            "INSERT INTO ops.document_sections (job_id, number, page, texts, boxes, words)
             SELECT $1::uuid, new.number, new.page, block.texts, new.boxes, to_tsvector('simple', new.words)
               FROM unnest($2::int[], $3::int[], $4::jsonb[], $5::jsonb[], $6::text[]) new (number, page, texts, boxes, words),
                    LATERAL (SELECT coalesce(array_agg(text ORDER BY number), '{}') AS texts
                               FROM jsonb_array_elements_text(new.texts) WITH ORDINALITY part (text, number)) block",
        )
        .bind(document)
        .bind(numbers)
        .bind(pages)
        .bind(texts)
        .bind(boxes)
        .bind(words)
        .execute(&mut *transaction)
        .await?;
    }
    sqlx::query(
        "INSERT INTO ops.indexed_documents (job_id, sections, form) VALUES ($1, $2, $3)
             ON CONFLICT (job_id) DO UPDATE SET sections = excluded.sections, form = excluded.form, indexed_at = clock_timestamp()",
    )
    .bind(document)
    .bind(number)
    .bind(FORM)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

/// Removes a document from the index.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unindex(pool: &PgPool, document: ExtractionJobId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH gone AS (DELETE FROM ops.indexed_documents WHERE job_id = $1)
         DELETE FROM ops.document_sections WHERE job_id = $1",
    )
    .bind(document)
    .execute(pool)
    .await
    .map(drop)
}

/// Removes what the index has of documents that are not kept, indexed before `before`: the read model may not show a job yet that has
/// just been indexed.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn unindex_strays(pool: &PgPool, before: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let is_stray = "t.indexed_at < $1 AND NOT EXISTS (SELECT FROM read.extraction_jobs job WHERE job.id = t.job_id AND job.kept)";
    delete_in_batches(pool, "ops.indexed_documents", is_stray, before).await?;
    let is_orphan = "$1::timestamptz IS NOT NULL AND NOT EXISTS (SELECT FROM ops.indexed_documents i WHERE i.job_id = t.job_id)";
    delete_in_batches(pool, "ops.document_sections", is_orphan, before).await.map(drop)
}
