//! Receives a document: its size is checked and its checksum is computed while it arrives; large ones are written to
//! disk.

use std::{
    io::{self, Cursor, SeekFrom},
    pin::Pin,
    task::{Context, Poll},
};

use axum::extract::Request;
use multer::Field;
use sha2::{Digest, Sha256};
use signalbox_config::Config;
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncSeek, AsyncSeekExt, AsyncWriteExt, ReadBuf},
};

use super::options::Pairs;
use crate::{
    form::{OPTIONS, empty, filename, multipart, option, too_large, unreadable},
    problem::Problem,
};

/// Up to this size a document stays in memory.
pub(super) const SMALL: usize = 1 << 20;
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
    /// An unnamed file: removed when it is closed, also by a crash.
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
pub(super) async fn receive(config: &Config, request: Request) -> Result<Upload, Problem> {
    let most = config.extraction.max_file_bytes;
    let mut form = multipart(request, most, most, missing)?;
    let mut others = Pairs::new();
    let mut file = None;
    while let Some(field) = form.next_field().await.map_err(|error| unreadable(&error, most))? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            if file.is_some() {
                return Err(Problem::field("file", "must be sent once: for more, send one request each"));
            }
            file = Some(receive_file(config, field, most).await?);
        } else if others.len() < OPTIONS {
            others.push((name, option(field, most).await?));
        }
    }
    let (bytes, length, filename, sha256) = file.ok_or_else(missing)?;
    Ok(Upload { bytes, length, filename, sha256, form: others })
}

pub(super) fn missing() -> Problem {
    Problem::field("file", "is required: send multipart/form-data with the document in a part named file")
}

async fn receive_file(
    config: &Config,
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
            disk = Some(open(config).await?);
        }
        match &mut disk {
            None => memory.extend_from_slice(&piece),
            Some(file) => {
                file.write_all(&std::mem::take(&mut memory)).await.map_err(|error| Problem::file(&error))?;
                file.write_all(&piece).await.map_err(|error| Problem::file(&error))?;
            }
        }
    }
    if length == 0 {
        return Err(empty());
    }
    let bytes = match disk {
        None => Bytes::Memory(Cursor::new(memory)),
        Some(mut file) => {
            file.flush().await.map_err(|error| Problem::file(&error))?;
            file.seek(SeekFrom::Start(0)).await.map_err(|error| Problem::file(&error))?;
            Bytes::Disk(file)
        }
    };
    Ok((bytes, length, filename, hex::encode(hasher.finalize())))
}

/// An unnamed file for bytes that are too many for memory.
pub(super) async fn open(config: &Config) -> Result<File, Problem> {
    let folder = config.storage.folder.clone();
    let opened = tokio::task::spawn_blocking(move || tempfile::tempfile_in(folder)).await;
    let file = opened.map_err(|error| Problem::internal(&error))?.map_err(|error| Problem::file(&error))?;
    Ok(File::from_std(file))
}
