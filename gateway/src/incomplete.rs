use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use signalbox_projections::monitoring::series::counting_skipped;

/// Says how many rows an answer lacks, because they cannot be decoded.
const INCOMPLETE: HeaderName = HeaderName::from_static("incomplete");

/// Marks answers that may lack datapoints; their bodies are the same as ever.
pub(crate) async fn mark(request: Request, next: Next) -> Response {
    let (mut response, skipped) = counting_skipped(next.run(request)).await;
    if skipped > 0
        && let Ok(value) = HeaderValue::from_str(&format!("datapoints; rows={skipped}"))
    {
        response.headers_mut().insert(INCOMPLETE, value);
    }
    response
}
