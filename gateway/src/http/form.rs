//! Forms with files: bounded, and read piece by piece.

use axum::{body::Body, extract::Request, http::header};
use multer::{Constraints, Field, Multipart, SizeLimit};
use signalbox_blob_store::BlobError;

use crate::http::{
    blobs::unusable,
    extract::content_length,
    problem::{Problem, ProblemKind},
};

/// Limit of a form's content besides its files.
const OTHER_FIELDS: u64 = 64 << 10;
/// Longest value of an option, and how many there may be.
const OPTION_BYTES: usize = 1000;
pub(crate) const OPTIONS: usize = 32;
/// Longest name of a file, in bytes.
const NAME_BYTES: usize = 255;

/// The form of `request`, whose files may have `whole` bytes together, and `most` each. Responds with `no_file` to
/// any other body.
pub(crate) fn multipart(
    request: Request,
    whole: u64,
    most: u64,
    no_file: fn() -> Problem,
) -> Result<Multipart<'static>, Problem> {
    if content_length(request.headers()).is_some_and(|length| length > whole + OTHER_FIELDS) {
        return Err(too_large(most));
    }
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|error| match error {
        multer::Error::NoBoundary => {
            Problem::malformed("the boundary of the multipart body is missing in Content-Type: let the HTTP client set that header")
        }
        _ => no_file(),
    })?;
    let limits = SizeLimit::new().whole_stream(whole + OTHER_FIELDS);
    let body: Body = request.into_body();
    Ok(Multipart::with_constraints(body.into_data_stream(), boundary, Constraints::new().size_limit(limits)))
}

/// A file without bytes.
pub(crate) fn empty() -> Problem {
    Problem::new(ProblemKind::Malformed, "empty_file", "Empty file")
}

/// The file name of a part.
pub(crate) fn filename(field: &Field<'static>) -> Result<String, Problem> {
    match field.file_name() {
        None => Err(Problem::field("file", "must be sent as a file, with a filename")),
        Some(name) if name.trim().is_empty() => Err(Problem::malformed("Filename is required")),
        Some(name) => Ok(plain_name(name)),
    }
}

/// The name without folders, as it is shown and never used as a path.
fn plain_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = name.chars().filter(|letter| !letter.is_control()).collect();
    while plain.len() > NAME_BYTES {
        plain.pop();
    }
    plain
}

/// The text of a field that is not a file.
pub(crate) async fn option(mut field: Field<'static>, most: u64) -> Result<String, Problem> {
    let name = field.name().unwrap_or_default().to_owned();
    let mut value = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|error| unreadable(&error, most))? {
        value.extend_from_slice(&piece);
        if value.len() > OPTION_BYTES {
            let is_known =
                name.len() < 40 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let fault = format!("is longer than {OPTION_BYTES} bytes");
            return Err(match is_known {
                true => Problem::field(&name, fault),
                false => Problem::invalid(format!("a field {fault}")),
            });
        }
    }
    String::from_utf8(value)
        .ok()
        .filter(|value| !value.contains('\0'))
        .ok_or_else(|| Problem::invalid("the fields of the form must be text in UTF-8"))
}

/// The problem of a form whose files may have `most` bytes.
pub(crate) fn unreadable(error: &multer::Error, most: u64) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => too_large(most),
        _ => Problem::malformed("the multipart body cannot be read: it is not well-formed or was cut off"),
    }
}

/// A file of more than `most` bytes.
pub(crate) fn too_large(most: u64) -> Problem {
    Problem::too_large(format!("File exceeds maximum size of {}MB", most >> 20))
}

/// Why a file of at most `most` bytes was not received.
pub(crate) fn refused(error: BlobError, most: u64) -> Problem {
    match &error {
        BlobError::TooLarge { .. } => too_large(most),
        BlobError::Interrupted { source, .. } => {
            match source.as_ref().and_then(|source| source.downcast_ref::<multer::Error>()) {
                Some(error) => unreadable(error, most),
                None => Problem::malformed("the multipart body was cut off"),
            }
        }
        _ => unusable(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_folders() {
        for (given, expected) in [
            ("a.pdf", "a.pdf"),
            ("/etc/passwd", "passwd"),
            ("..\\..\\x.doc", "x.doc"),
            ("Prüf\nbericht.pdf", "Prüfbericht.pdf"),
        ] {
            assert_eq!(plain_name(given), expected);
        }
    }
}
