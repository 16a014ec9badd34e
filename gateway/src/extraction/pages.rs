//! Pictures of the pages of a document, for people who compare them with the text.

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use signalbox_blob_store::{BlobError, BlobKey, BlobStore};
use signalbox_documents::{Documents, Source};
use tokio::fs::File;
use utoipa::IntoParams;

use super::{
    Caller,
    jobs::{self, PageKey},
    sandbox,
};
use crate::{
    extract::{Numeric, Params, digits, within},
    problem::{JobNotFoundOut, Problem, ProblemOut},
    services::replica::Database,
};

/// Pixels of a row: enough to read by, and at most twice that.
const WIDTH: i64 = 1240;
const WIDTHS: std::ops::RangeInclusive<i64> = 16..=2480;

/// How a page is drawn.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PictureParams {
    /// Pixels, 16 to 2480; 1240 if absent. A picture is not made larger than it is.
    #[param(value_type = Option<i64>, minimum = 16, maximum = 2480)]
    width: Option<Numeric<i64>>,
}

/// A page of a PDF, or a frame of a picture, as it is read from: while the document is kept, which `keep_input` asks for. The places
/// of blocks and words refer to this picture, turned clockwise by the `rotation` of the page in the text.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/pages/{n}", tag = "extraction jobs", security((), ("jwt" = [])), params(("id" = String, Path,), ("n" = i64, Path,), PictureParams), operation_id = "get_extraction_page",
    responses((status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 401, body = ProblemOut), (status = 404, body = JobNotFoundOut), (status = 422, body = ProblemOut), (status = 504, body = ProblemOut)))]
pub(super) async fn page(
    State(database): State<Database>,
    State(blobs): State<BlobStore>,
    State(documents): State<Option<Documents>>,
    caller: Caller,
    PageKey(id, number): PageKey,
    Params(PictureParams { width }): Params<PictureParams>,
) -> Result<Response, Problem> {
    let width = within("width", width.map(Numeric::get), WIDTH, &WIDTHS)?;
    let row = jobs::find(&database, caller.user.as_ref(), &id).await?;
    let no_page = || jobs::nothing_of_job("The document has no such page");
    let number: usize = digits(&number).ok_or_else(no_page)?;
    let gone = || {
        jobs::nothing_of_job(
            "The document is not kept any more: submit it with keep_input=true to look at its pages",
        )
    };
    if !row.input_kept {
        return Err(gone());
    }
    let (length, file) = match blobs.open_file(&BlobKey::new(row.input_id, "input")).await {
        Ok(found) => found,
        Err(BlobError::NotFound) => return Err(gone()),
        Err(error) => return Err(Problem::internal(&error)),
    };
    let source = Source { bytes: File::from_std(file), length, name: &row.filename, share: caller.share() };
    let drawn = sandbox(&documents)?.draw(source, number, width as u32).await?;
    let mut response = drawn.ok_or_else(no_page)?.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("image/png"));
    // A page is the same as long as its document is kept.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    Ok(response)
}
