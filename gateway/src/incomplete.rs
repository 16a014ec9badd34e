use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use signalbox_projections::monitoring::series::{Counts, counting};

/// Says how many rows an answer lacks, because they cannot be decoded, and how many hours, because only their roll-ups are left.
const INCOMPLETE: HeaderName = HeaderName::from_static("incomplete");

/// Marks answers that may lack datapoints; their bodies are the same as ever.
pub(crate) async fn mark(request: Request, next: Next) -> Response {
    let (mut response, Counts { rows, damaged, hours }) = counting(next.run(request)).await;
    let rows = match rows + damaged {
        0 => None,
        rows => Some(format!("datapoints; rows={rows}")),
    };
    let hours = (hours > 0).then(|| format!("rollups; hours={hours}"));
    let parts: Vec<_> = rows.into_iter().chain(hours).collect();
    if !parts.is_empty()
        && let Ok(value) = HeaderValue::from_str(&parts.join(", "))
    {
        response.headers_mut().insert(INCOMPLETE, value);
    }
    response
}
