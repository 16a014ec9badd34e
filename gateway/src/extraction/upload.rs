//! Receives a document: its size is checked and its checksum is taken as it comes; what is not small goes to disk.

use std::{
    io::{self, Cursor, SeekFrom},
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, header},
};
use multer::{Constraints, Field, Multipart, SizeLimit};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncSeek, AsyncSeekExt, AsyncWriteExt, ReadBuf},
};

use super::options::Pairs;
use crate::{
    problem::{Problem, ProblemKind},
    state::State as Gateway,
};

/// Up to this size a document stays in memory.
const SMALL: usize = 1 << 20;
/// What a form may hold besides the document.
pub(super) const OTHER_FIELDS: u64 = 64 << 10;
/// Longest value of an option, and how many there may be.
const OPTION_BYTES: usize = 1000;
pub(super) const OPTIONS: usize = 32;
/// Longest name of a file, in bytes.
const NAME_BYTES: usize = 255;

/// A document that was received.
pub(super) struct Upload {
    pub(super) bytes: Bytes,
    pub(super) length: u64,
    pub(super) filename: String,
    pub(super) sha256: String,
    /// The other fields of the form.
    pub(super) form: Pairs,
}

/// Where its bytes are.
pub(super) enum Bytes {
    Memory(Cursor<Vec<u8>>),
    /// Without a name: gone when it is closed, however that comes about.
    Disk(File),
}

impl AsyncRead for Bytes {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Memory(bytes) => Pin::new(bytes).poll_read(context, buffer),
            Self::Disk(file) => Pin::new(file).poll_read(context, buffer),
        }
    }
}

impl AsyncSeek for Bytes {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        match self.get_mut() {
            Self::Memory(bytes) => Pin::new(bytes).start_seek(position),
            Self::Disk(file) => Pin::new(file).start_seek(position),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match self.get_mut() {
            Self::Memory(bytes) => Pin::new(bytes).poll_complete(context),
            Self::Disk(file) => Pin::new(file).poll_complete(context),
        }
    }
}

/// Reads the form of `request`.
pub(super) async fn receive(state: &Gateway, request: Request) -> Result<Upload, Problem> {
    let most = state.config.extraction.max_file_bytes;
    let mut form = multipart(request, most, most)?;
    let mut others = Pairs::new();
    let mut file = None;
    while let Some(field) = form.next_field().await.map_err(|error| unreadable(&error, most))? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            if file.is_some() {
                return Err(Problem::invalid("file must be sent once: for more, send one request each"));
            }
            file = Some(receive_file(state, field, most).await?);
        } else if others.len() < OPTIONS {
            others.push((name, option(field, most).await?));
        }
    }
    let (bytes, length, filename, sha256) = file.ok_or_else(missing)?;
    Ok(Upload { bytes, length, filename, sha256, form: others })
}

pub(super) fn missing() -> Problem {
    Problem::invalid("file is required: send multipart/form-data with the document in a part named file")
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The form of `request`, whose files may have `whole` bytes together, and `most` each.
pub(super) fn multipart(request: Request, whole: u64, most: u64) -> Result<Multipart<'static>, Problem> {
    if announced(request.headers()).is_some_and(|length| length > whole + OTHER_FIELDS) {
        return Err(too_large(most));
    }
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|_| missing())?;
    let limits = SizeLimit::new().whole_stream(whole + OTHER_FIELDS);
    let body: Body = request.into_body();
    Ok(Multipart::with_constraints(body.into_data_stream(), boundary, Constraints::new().size_limit(limits)))
}

async fn receive_file(
    state: &Gateway,
    mut field: Field<'static>,
    most: u64,
) -> Result<(Bytes, u64, String, String), Problem> {
    let filename = filename(&field)?;
    let mut hasher = Sha256::new();
    let (mut memory, mut disk, mut length) = (Vec::new(), None, 0_u64);
    while let Some(piece) = field.chunk().await.map_err(|error| unreadable(&error, most))? {
        hasher.update(&piece);
        length += piece.len() as u64;
        if length > most {
            return Err(too_large(most));
        }
        if disk.is_none() && memory.len() + piece.len() > SMALL {
            disk = Some(open(state).await?);
        }
        match &mut disk {
            None => memory.extend_from_slice(&piece),
            Some(file) => {
                file.write_all(&std::mem::take(&mut memory))
                    .await
                    .map_err(|error| Problem::internal(&error))?;
                file.write_all(&piece).await.map_err(|error| Problem::internal(&error))?;
            }
        }
    }
    if length == 0 {
        return Err(empty());
    }
    let bytes = match disk {
        None => Bytes::Memory(Cursor::new(memory)),
        Some(mut file) => {
            file.flush().await.map_err(|error| Problem::internal(&error))?;
            file.seek(SeekFrom::Start(0)).await.map_err(|error| Problem::internal(&error))?;
            Bytes::Disk(file)
        }
    };
    Ok((bytes, length, filename, hex::encode(hasher.finalize())))
}

async fn open(state: &Gateway) -> Result<File, Problem> {
    let folder = state.config.storage.folder.clone();
    let opened = tokio::task::spawn_blocking(move || tempfile::tempfile_in(folder)).await;
    let file =
        opened.map_err(|error| Problem::internal(&error))?.map_err(|error| Problem::internal(&error))?;
    Ok(File::from_std(file))
}

pub(super) fn empty() -> Problem {
    Problem::new(ProblemKind::Malformed, "empty_file", "Empty file")
}

/// What the file of a part is called.
pub(super) fn filename(field: &Field<'static>) -> Result<String, Problem> {
    match field.file_name() {
        None => Err(Problem::invalid("file must be sent as a file, with a filename")),
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

pub(super) async fn option(mut field: Field<'static>, most: u64) -> Result<String, Problem> {
    let name = field.name().unwrap_or_default().to_owned();
    let mut value = Vec::new();
    while let Some(piece) = field.chunk().await.map_err(|error| unreadable(&error, most))? {
        value.extend_from_slice(&piece);
        if value.len() > OPTION_BYTES {
            let known = name.len() < 40 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let name = if known { name.as_str() } else { "a field" };
            return Err(Problem::invalid(format!("{name} is longer than {OPTION_BYTES} bytes")));
        }
    }
    String::from_utf8(value)
        .ok()
        .filter(|value| !value.contains('\0'))
        .ok_or_else(|| Problem::invalid("the fields of the form must be text in UTF-8"))
}

pub(super) fn unreadable(error: &multer::Error, most: u64) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => too_large(most),
        _ => Problem::malformed("the multipart body cannot be read: it is not well-formed or was cut off"),
    }
}

pub(super) fn too_large(most: u64) -> Problem {
    Problem::too_large(format!("File exceeds maximum size of {}MB", most >> 20))
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
