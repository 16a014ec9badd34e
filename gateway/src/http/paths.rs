//! Paths as clients write them, before a route is found or where none is. Everything else of a request follows from the
//! policy of its route.

use axum::{
    body::Body,
    http::{Request, Uri},
};

use crate::http::problem::Dialect;

/// The dialect of a path that no route has: that of the service whose paths begin alike.
pub(crate) fn dialect(path: &str) -> Dialect {
    let api = path == "/api" || path.starts_with("/api/");
    match (api && path != "/api/v1" && !path.starts_with("/api/v1/")) || path.starts_with("/ws/agent") {
        true => Dialect::Service1,
        false => Dialect::Problem,
    }
}

/// `/api/api/…` is `/api/…`, because service 1's base address may be read as ending in `/api`; a trailing slash is
/// served like none.
pub(crate) fn normalise(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path();
    let shorter = path.strip_prefix("/api/api/").map(|rest| format!("/api/{rest}"));
    let shorter = shorter.as_deref().unwrap_or(path);
    let trimmed = if shorter.len() > 1 && !shorter.starts_with("/api/docs") {
        shorter.trim_end_matches('/')
    } else {
        shorter
    };
    let wanted = if trimmed.is_empty() { "/" } else { trimmed };
    if wanted != path {
        let with_query = match request.uri().query() {
            Some(query) => format!("{wanted}?{query}"),
            None => wanted.to_owned(),
        };
        if let Ok(uri) = with_query.parse::<Uri>() {
            *request.uri_mut() = uri;
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides_the_dialect_where_no_route_does() {
        for path in ["/api", "/api/nothing", "/api/v1x", "/ws/agent"] {
            assert_eq!(dialect(path), Dialect::Service1, "{path}");
        }
        for path in ["/api/v1", "/api/v1/nothing", "/nothing", "/"] {
            assert_eq!(dialect(path), Dialect::Problem, "{path}");
        }
    }

    #[test]
    fn paths_are_read_generously() {
        for (given, expected) in [
            ("/api/api/info", "/api/info"),
            ("/api/jobs/", "/api/jobs"),
            ("/api/api/jobs/?limit=1", "/api/jobs?limit=1"),
            ("/", "/"),
            ("/api/docs/", "/api/docs/"),
        ] {
            let request = Request::builder().uri(given).body(Body::empty()).unwrap();
            assert_eq!(normalise(request).uri().to_string(), expected);
        }
    }
}
