//! Streams of a file that cannot be decompressed: PDFium shows a page whose content is such a stream as an empty one.

use flate2::{Decompress, FlushDecompress, Status};

/// Streams that are looked at, and bytes that all of them decompress to, at most.
const MAX_STREAMS: usize = 20_000;
const MAX_BYTES: u64 = 64 << 20;
/// How far before a stream its dictionary starts, at most.
const DICTIONARY: usize = 2_048;
/// Bytes that are decompressed at a time.
const PIECE: usize = 64 * 1024;

/// Whether `bytes`, a PDF, has a stream that is compressed by Flate and is damaged or cut off. Of an encrypted file it is not known.
pub(crate) fn has_damaged_stream(bytes: &[u8]) -> bool {
    if find(bytes, b"/Encrypt").is_some() {
        return false;
    }
    let (mut rest, mut read) = (bytes, 0);
    for _ in 0..MAX_STREAMS {
        let Some(at) = find(rest, b"stream") else { return false };
        let (before, after) = rest.split_at(at);
        let after = &after[b"stream".len()..];
        rest = after;
        let Some(data) = after.strip_prefix(b"\r\n").or_else(|| after.strip_prefix(b"\n")) else { continue };
        if !is_flate(&before[before.len().saturating_sub(DICTIONARY)..]) {
            continue;
        }
        // A stream that is cut off has no end.
        let Some(end) = find(data, b"endstream") else { return true };
        if !is_whole(&data[..end], &mut read) {
            return true;
        }
        if read > MAX_BYTES {
            return false;
        }
        rest = &data[end + b"endstream".len()..];
    }
    false
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|part| part == pattern)
}

/// Whether the dictionary at the end of `before` names Flate as the first filter.
fn is_flate(before: &[u8]) -> bool {
    let start = before.windows(3).rposition(|part| part == b"obj").unwrap_or(0);
    let dictionary: Vec<u8> =
        before[start..].iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    [&b"/Filter/FlateDecode"[..], b"/Filter[/FlateDecode", b"/Filter/Fl/", b"/Filter/Fl>"]
        .iter()
        .any(|name| find(&dictionary, name).is_some())
}

/// Whether `data` decompresses to its end. Its checksum does not count: some writers leave it out. Adds to `read`.
fn is_whole(data: &[u8], read: &mut u64) -> bool {
    // RFC 1950: method 8, and a check of the two bytes.
    let [method, flags, compressed @ ..] = data else { return false };
    if method & 0x0F != 8 || (u16::from(*method) * 256 + u16::from(*flags)) % 31 != 0 {
        return false;
    }
    let mut inflater = Decompress::new(false);
    let mut piece = vec![0; PIECE];
    loop {
        let before = (inflater.total_in(), inflater.total_out());
        let at = usize::try_from(before.0).unwrap_or(compressed.len());
        match inflater.decompress(&compressed[at..], &mut piece, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        *read += inflater.total_out() - before.1;
        if *read > MAX_BYTES {
            return true;
        }
        if (inflater.total_in(), inflater.total_out()) == before {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn compressed(text: &str) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn file(dictionary: &str, streams: &[&[u8]]) -> Vec<u8> {
        let mut file = b"%PDF-1.5\n".to_vec();
        for stream in streams {
            file.extend(format!("4 0 obj\n<<{dictionary}>>\nstream\r\n").bytes());
            file.extend(*stream);
            file.extend(b"\nendstream\nendobj\n");
        }
        file
    }

    #[test]
    fn damaged_and_cut_streams_are_found_among_whole_ones() {
        let whole =
            compressed(&(0..1000).map(|line| format!("BT ({}) Tj ET\n", line * line)).collect::<String>());
        let scrambled: Vec<_> = whole.iter().map(|byte| byte ^ 0x55).collect();
        let cut = &whole[..10];
        let mut middle = whole.clone();
        let half = middle.len() / 2;
        middle[half..].iter_mut().for_each(|byte| *byte ^= 0x55);
        let mut no_checksum = whole.clone();
        no_checksum.truncate(whole.len() - 4);
        for dictionary in
            ["/Length 9/Filter/FlateDecode", "/Filter [ /FlateDecode /DCTDecode ]", "/Filter /Fl /Length 9"]
        {
            assert!(!has_damaged_stream(&file(dictionary, &[&whole, &no_checksum, &whole])), "{dictionary}");
            for damaged in [&scrambled, cut, &middle, &b""[..]] {
                assert!(has_damaged_stream(&file(dictionary, &[&whole, damaged, &whole])), "{dictionary}");
            }
        }
        let all = file("/Filter/FlateDecode", &[&whole, &whole]);
        assert!(has_damaged_stream(&all[..all.len() - 40]), "the last one has no end");
    }

    #[test]
    fn other_streams_and_encrypted_files_are_not_judged() {
        for dictionary in ["/Length 9", "/Filter/LZWDecode", "/Filter [/ASCII85Decode /FlateDecode]"] {
            assert!(!has_damaged_stream(&file(dictionary, &[b"no zlib"])), "{dictionary}");
        }
        let mut encrypted = file("/Filter/FlateDecode", &[b"no zlib"]);
        encrypted.extend(b"trailer<</Encrypt 9 0 R>>");
        assert!(!has_damaged_stream(&encrypted));
        assert!(!has_damaged_stream(b"a stream of words"));
    }
}
