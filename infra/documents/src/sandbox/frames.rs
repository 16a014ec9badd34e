//! Messages over pipes: four bytes of length, then JSON. Bytes that follow a message are as many as it says.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest message. A document of 500 pages is about 2 MB of text.
const MAX_BYTES: usize = 512 << 20;

fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).map_err(|_| io::ErrorKind::InvalidData)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

fn checked(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// Writes a message.
pub(super) fn write<T: Serialize>(to: &mut (impl Write + ?Sized), message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}

/// Reads a message; none at the end.
pub(super) fn read<T: DeserializeOwned>(from: &mut (impl Read + ?Sized)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut bytes = vec![0; checked(length)?];
    from.read_exact(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Writes a message, without waiting in the thread.
pub(super) async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    to.write_all(&encode(message)?).await?;
    to.flush().await
}

/// Reads a message, without waiting in the thread.
pub(super) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let mut bytes = Vec::new();
    let expected = checked(length)? as u64;
    // Grows as bytes come: a child that lies about the length costs nothing.
    from.take(expected).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 != expected {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}
