use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};

const SECURITY: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    (
        "content-security-policy",
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    ),
];

/// Adds the usual security headers, where a handler has not set them.
pub(crate) fn secure(response: &mut Response) {
    for (name, value) in SECURITY {
        let name = HeaderName::from_static(name);
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
}
