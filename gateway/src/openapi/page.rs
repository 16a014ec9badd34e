//! The interactive page at `/api/docs`. The program holds its files compressed, a third of their size.

use std::io::Read as _;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    middleware::{Next, from_fn},
    response::Response,
};
use flate2::read::GzDecoder;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::DESCRIPTION;
use crate::{problem::Problem, state::Services};

/// Bytes of its largest file, compressed, at most.
const LARGEST: usize = 4 << 20;

pub(super) fn page() -> Router<Services> {
    let files: Router<Services> = SwaggerUi::new("/api/docs").config(Config::from(DESCRIPTION)).into();
    files.layer(from_fn(in_an_accepted_encoding))
}

/// Unpacks a file for a client that does not take gzip, such as `curl` without options.
async fn in_an_accepted_encoding(request: Request, next: Next) -> Result<Response, Problem> {
    let takes_gzip = takes_gzip(request.headers());
    let mut response = next.run(request).await;
    if !response.headers().contains_key(header::CONTENT_ENCODING) {
        return Ok(response);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if takes_gzip {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONTENT_ENCODING);
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, unpacked(body).await?))
}

async fn unpacked(body: Body) -> Result<Body, Problem> {
    let packed = to_bytes(body, LARGEST).await.map_err(|error| Problem::internal(&error))?;
    let mut plain = Vec::new();
    GzDecoder::new(packed.as_ref()).read_to_end(&mut plain).map_err(|error| Problem::internal(&error))?;
    Ok(plain.into())
}

/// Whether `gzip`, or else everything, is listed, not with the weight 0.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let weight = |coding: &str| {
        let lists = headers.get_all(header::ACCEPT_ENCODING).into_iter();
        lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.split(',')).find_map(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, "q=1"));
            let weight = weight.trim().strip_prefix("q=")?.parse::<f32>().ok()?;
            name.trim().eq_ignore_ascii_case(coding).then_some(weight)
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
}
