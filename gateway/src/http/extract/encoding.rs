//! Bodies that their senders have compressed.

use std::io::Read as _;

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, header},
};
use flate2::read::MultiGzDecoder;
use tokio::task::spawn_blocking;

use crate::http::problem::Problem;

/// Whether `Content-Encoding` says that the body is compressed by gzip. Other compressions are refused; other words have no
/// meaning there: some clients write the encoding of the text.
pub(crate) fn is_zipped(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut is_zipped = false;
    let values = headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    for coding in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        match coding.trim_ascii().to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" if !is_zipped => is_zipped = true,
            b"br" | b"compress" | b"deflate" | b"gzip" | b"lz4" | b"snappy" | b"x-compress" | b"x-gzip"
            | b"zstd" => {
                return Err(Problem::malformed("Content-Encoding must be gzip, once, or identity"));
            }
            _ => {}
        }
    }
    Ok(is_zipped)
}

/// The bytes that `body` holds compressed by gzip, at most `most`.
pub(crate) fn unzipped(body: &[u8], most: usize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let read = MultiGzDecoder::new(body).take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|_| Problem::malformed("the body is not compressed by gzip, as Content-Encoding says"))?;
    if bytes.len() > most {
        return Err(Problem::too_large(format!("the decompressed body is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The content of `body` without the encoding that `headers` name.
pub(crate) async fn content(headers: &HeaderMap, body: Bytes, most: usize) -> Result<Bytes, Problem> {
    if body.is_empty() || !is_zipped(headers)? {
        return Ok(body);
    }
    let unzipping = spawn_blocking(move || unzipped(&body, most));
    unzipping.await.map_err(|error| Problem::internal(&error))?.map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn a_bomb_is_not_unpacked() {
        let zipped = |bytes: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(unzipped(&zipped(b"m v=1"), 9).unwrap(), b"m v=1");
        assert!(unzipped(&zipped(&[b' '; 9]), 9).is_ok());
        let bomb = unzipped(&zipped(&[b' '; 1 << 20]), 9).unwrap_err();
        assert!(bomb.detail().contains("larger than 9 bytes"), "{bomb:?}");
        for broken in [&b"m v=1"[..], &zipped(b"m v=1")[..12]] {
            assert!(unzipped(broken, 9).is_err());
        }
    }

    #[test]
    fn other_encodings_than_gzip_are_refused() {
        let zipped = |encoding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            is_zipped(&headers).ok()
        };
        assert_eq!(["gzip", "identity, GZIP"].map(zipped), [Some(true); 2]);
        assert_eq!(["identity", "UTF-8"].map(zipped), [Some(false); 2]);
        assert_eq!(["br", "zstd", "deflate, gzip", "gzip, gzip"].map(zipped), [None; 4]);
    }
}
