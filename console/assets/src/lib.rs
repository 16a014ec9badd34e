//! The console's built pages, embedded in the program, and which request is answered with which of them.
//!
//! It is not the console: that is TypeScript, in the folder above, built by `tools/console`. The program hands [`respond`] to
//! its gateway, for requests that match none of its routes:
//!
//! ```
//! # use http::{HeaderMap, Method};
//! let no_page = signalbox_console::respond(&Method::GET, "/api/nothing", &HeaderMap::new());
//! assert!(no_page.is_none());
//! ```

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

/// A built file with its compressed forms.
struct File {
    path: &'static str,
    tag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

const INDEX: &str = "/index.html";
/// Below it, names contain a hash of the content.
const HASHED: &str = "/assets/";
/// Paths of other clients than browsers: a page there would hide a 404.
const RESERVED: [&str; 7] = ["/api", "/ws", "/health", "/livez", "/readyz", "/metrics", "/docs"];
const POLICY: &str = "default-src 'self'; img-src 'self' blob: data:; base-uri 'self'; form-action 'self'; \
     frame-ancestors 'none'; object-src 'none'";
const NOT_BUILT: &str = "<!doctype html><meta charset=utf-8><title>Signalbox</title><h1>The console has not been built</h1>\
     <p>Run <code>make build</code>, or <code>tools/console</code> and then cargo. The interface is described at \
     <a href=/api/docs>/api/docs</a>.";

/// The response to a request for `path`, or `None` where the console has no page: for other methods than GET and HEAD, for
/// paths of the interface, for assets that do not exist, and for clients that do not accept HTML.
#[must_use]
pub fn respond(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD)
        || RESERVED.iter().any(|reserved| is_below(path, reserved))
    {
        return None;
    }
    if let Some(file) = find(path) {
        return Some(serve(file, headers));
    }
    if path.starts_with(HASHED) || !accepts_html(headers) {
        return None;
    }
    Some(match find(INDEX) {
        Some(index) => serve(index, headers),
        None => not_built(),
    })
}

fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether HTML is named: `*/*` alone is what every program sends.
fn accepts_html(headers: &HeaderMap) -> bool {
    accepted(headers, header::ACCEPT, "text/html")
}

/// True if a weighted list of the header contains the value with a weight above 0.
fn accepted(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let lists = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        let weight =
            parts.find_map(|part| part.strip_prefix("q=")).and_then(|weight| weight.parse::<f32>().ok());
        is_wanted && weight.is_none_or(|weight| weight > 0.0)
    })
}

fn serve(file: &'static File, headers: &HeaderMap) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let lasts =
        if file.path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    for (name, value) in [
        (header::CONTENT_TYPE, media_type(file.path)),
        (header::CACHE_CONTROL, lasts),
        (header::ETAG, file.tag),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == file.tag)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let accepts = |encoding: &str| accepted(headers, header::ACCEPT_ENCODING, encoding);
    let (encoding, bytes) = match (file.brotli, file.gzip) {
        (Some(brotli), _) if accepts("br") => (Some("br"), brotli),
        (_, Some(gzip)) if accepts("gzip") => (Some("gzip"), gzip),
        _ => (None, file.plain),
    };
    if let Some(encoding) = encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    *response.body_mut() = Bytes::from_static(bytes);
    response
}

fn not_built() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(NOT_BUILT.as_bytes()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "png" => "image/png",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, path: &str, accept: &'static str) -> Option<StatusCode> {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
        respond(&method, path, &headers).map(|response| response.status())
    }

    const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

    #[test]
    fn pages_answer_browsers_at_any_other_path() {
        for path in ["/", "/files/jobs/4", "/sso-callback", "/apiary", "/healthy"] {
            assert!(status(Method::GET, path, BROWSER).is_some(), "{path}");
            assert!(status(Method::HEAD, path, BROWSER).is_some(), "{path}");
            assert_eq!(status(Method::POST, path, BROWSER), None, "{path}");
            assert_eq!(status(Method::GET, path, "*/*"), None, "{path}");
            assert_eq!(status(Method::GET, path, "text/html;q=0"), None, "{path}");
        }
    }

    #[test]
    fn paths_of_the_interface_have_no_page() {
        for path in [
            "/api",
            "/api/x",
            "/ws/x",
            "/health",
            "/livez",
            "/readyz",
            "/metrics",
            "/docs/a",
            "/assets/none.js",
        ] {
            assert_eq!(status(Method::GET, path, BROWSER), None, "{path}");
        }
    }

    #[test]
    fn built_files_are_compressed_and_revalidated() {
        for file in FILES {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, br"));
            let response = respond(&Method::GET, file.path, &headers).unwrap();
            let is_compressed =
                response.headers().get(header::CONTENT_ENCODING).is_some_and(|name| name == "br");
            assert_eq!(is_compressed, file.brotli.is_some(), "{}", file.path);
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(file.tag));
            let response = respond(&Method::GET, file.path, &headers).unwrap();
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
            assert!(response.body().is_empty());
        }
    }
}
