use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};

use super::digits;
use crate::http::problem::Problem;

/// Versions of a resource, of which it must have one. None of them means that no version fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versions(Vec<i64>);

impl Versions {
    pub(crate) fn contains(&self, version: i64) -> bool {
        self.0.contains(&version)
    }

    /// The version, if there is only one.
    pub(crate) fn single(&self) -> Option<i64> {
        if let [version] = self.0[..] { Some(version) } else { None }
    }
}

impl From<i64> for Versions {
    fn from(version: i64) -> Self {
        Self(vec![version])
    }
}

/// The versions that `If-Match` insists on; `None` for any.
pub(crate) struct IfMatch(pub(crate) Option<Versions>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(if_match(&parts.headers)))
    }
}

fn if_match(headers: &HeaderMap) -> Option<Versions> {
    if !headers.contains_key(header::IF_MATCH) {
        return None;
    }
    let lines = headers.get_all(header::IF_MATCH).iter().map(|line| line.to_str().unwrap_or_default());
    let mut versions = Vec::new();
    for line in lines {
        if line.trim() == "*" {
            return None;
        }
        // A tag that we never gave out matches nothing.
        versions.extend(tags(line).filter_map(digits::<i64>));
    }
    Some(Versions(versions))
}

/// The tags in a list of them, without quotes. Clients that leave these out, or take a tag for a weak one, are understood.
fn tags(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = list;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let tag = rest.strip_prefix("W/").unwrap_or(rest);
        let (found, after) = match tag.strip_prefix('"') {
            // Quoted tags may contain commas.
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => tag.split_once(',').unwrap_or((tag, "")),
        };
        let is_end = rest.is_empty();
        rest = after;
        (!is_end).then_some(found.trim())
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn versions(lines: &[&'static str]) -> Option<Versions> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::IF_MATCH, HeaderValue::from_static(line));
        }
        if_match(&headers)
    }

    #[test]
    fn if_match_names_one_version_or_several() {
        let some = |versions: &[i64]| Some(Versions(versions.to_vec()));
        assert_eq!(versions(&[]), None);
        assert_eq!(versions(&["*"]), None);
        for (lines, expected) in [
            (&["\"7\""][..], &[7][..]),
            (&["W/\"7\""], &[7]),
            (&["7"], &[7]),
            (&["\"7\", \"9\""], &[7, 9]),
            (&[" \"7\",W/\"8\" , 9,"], &[7, 8, 9]),
            (&["\"7\"", "\"8\""], &[7, 8]),
            (&["\"a,3,b\", \"4\""], &[4]),
            (&["\"nonsense\", \"5\""], &[5]),
            (&["\"nonsense\""], &[]),
            (&["\"3"], &[3]),
            (&[""], &[]),
        ] {
            assert_eq!(versions(lines), some(expected), "{lines:?}");
        }
    }
}
