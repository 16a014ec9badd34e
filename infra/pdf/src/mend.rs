//! Files whose trailer cannot be read. It says where the catalog is, which is found without it.

/// `bytes` with another trailer behind all that they leave open; none if there is no catalog in them, or if they are encrypted, about
/// which a trailer says more.
pub(crate) fn with_trailer(bytes: &[u8]) -> Option<Vec<u8>> {
    if position_of_last(bytes, b"/Encrypt").is_some() {
        return None;
    }
    let (number, generation) = object_before(&bytes[..position_of_last(bytes, b"/Catalog")?])?;
    // First close what a damaged trailer leaves open: strings and a dictionary.
    let trailer = format!("\n>\n)\n>>\ntrailer\n<</Root {number} {generation} R>>\nstartxref\n0\n%%EOF\n");
    Some([bytes, trailer.as_bytes()].concat())
}

fn position_of_last(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).rposition(|part| part == pattern)
}

/// Number and generation of the last object that starts in `bytes`.
fn object_before(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut before = bytes;
    loop {
        before = &before[..position_of_last(before, b"obj")?];
        if let Some((generation, rest)) = number_at_end(before)
            && let Some((number, _)) = number_at_end(rest)
        {
            return Some((number, generation));
        }
    }
}

/// The number at the end of `bytes`, and what stands before it.
fn number_at_end(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let bytes = bytes.trim_ascii_end();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, number) = bytes.split_at(bytes.len() - digits);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pdf, texts};

    #[test]
    fn file_whose_trailer_is_damaged_is_read() {
        let whole = String::from_utf8(pdf("BT /F 12 Tf 50 700 Td (words) Tj ET", "", "", &[])).unwrap();
        for damaged in ["trailer<</ID[<904e5a\u{1}]", "trailer<</Info(never ends", "trailer<</Root 99 0 R"] {
            let file = whole.replace("trailer<<", damaged).replace("startxref\n", "startxref\n9");
            assert_eq!(texts(file.into_bytes()), ["words"], "{damaged}");
        }
    }

    #[test]
    fn odd_files_get_no_trailer() {
        for file in
            [&b""[..], b"/Catalog", b"obj /Catalog", b"1 endobj /Catalog", b"1 0 obj /Catalog /Encrypt"]
        {
            assert_eq!(with_trailer(file), None, "{}", String::from_utf8_lossy(file));
        }
    }
}
