use std::{
    fs::File,
    io::{self, Read, Seek},
};

use minisign_verify::{PublicKey, Signature};
use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;

const BUFFER: usize = 256 * 1024;

/// Why a bundle must not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Its bytes are other ones.
    #[error("the SHA-256 of the bundle is {actual}, but {expected} was announced: get the bundle again")]
    Checksum {
        /// The announced digest.
        expected: Sha256Hex,
        /// The digest of the received bytes.
        actual: Sha256Hex,
    },
    /// A signature is required.
    #[error("the bundle has no signature: sign it with the key that firmware.public_key belongs to")]
    Unsigned,
    /// The signature is not of this bundle by this key.
    #[error(
        "the signature is not one of this bundle by the key of firmware.public_key: sign it with that key"
    )]
    Signature,
    /// The disk failed.
    #[error("the bundle cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl VerifyError {
    /// Stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Checksum { .. } => "checksum_mismatch",
            Self::Unsigned => "signature_missing",
            Self::Signature => "signature_invalid",
            Self::Io(_) => "storage",
        }
    }
}

/// Whether `text` has the form of a minisign signature; the signature itself is not verified.
pub fn is_signature(text: &str) -> bool {
    Signature::decode(text).is_ok()
}

/// Checks that `bundle` has the digest `expected`, and a signature by `key` if there is one. Leaves it at its beginning.
pub(crate) fn verify(
    bundle: &mut File,
    expected: &Sha256Hex,
    key: Option<&PublicKey>,
    signature: Option<&str>,
) -> Result<(), VerifyError> {
    let signature = match (key, signature) {
        (Some(_), Some(text)) => Some(Signature::decode(text).map_err(|_| VerifyError::Signature)?),
        (Some(_), None) => return Err(VerifyError::Unsigned),
        (None, _) => None,
    };
    let mut signed = match (key, &signature) {
        (Some(key), Some(signature)) => {
            Some(key.verify_stream(signature).map_err(|_| VerifyError::Signature)?)
        }
        _ => None,
    };
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
    bundle.rewind()?;
    loop {
        let count = bundle.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        if let Some(signed) = &mut signed {
            signed.update(&buffer[..count]);
        }
    }
    bundle.rewind()?;
    let actual = Sha256Hex::from_bytes(&hasher.finalize());
    if actual != *expected {
        return Err(VerifyError::Checksum { expected: expected.clone(), actual });
    }
    match signed {
        Some(mut signed) => signed.finalize().map_err(|_| VerifyError::Signature),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    /// Of the text `test`, made by minisign.
    const SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1633700835\tfile:test\tprehashed
wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==
";

    fn check(bytes: &[u8], digest_of: &[u8], signature: Option<&str>) -> Result<(), &'static str> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let expected = Sha256Hex::from_bytes(&Sha256::digest(digest_of));
        let key = PublicKey::from_base64(KEY).unwrap();
        verify(&mut file, &expected, Some(&key), signature).map_err(|error| error.code())?;
        let mut again = Vec::new();
        file.read_to_end(&mut again).unwrap();
        assert_eq!(again, bytes);
        Ok(())
    }

    #[test]
    fn a_bundle_is_taken_with_its_digest_and_its_signature_only() {
        assert_eq!(check(b"test", b"test", Some(SIGNATURE)), Ok(()));
        assert_eq!(check(b"test", b"tent", Some(SIGNATURE)), Err("checksum_mismatch"));
        assert_eq!(check(b"tent", b"tent", Some(SIGNATURE)), Err("signature_invalid"));
        assert_eq!(check(b"test", b"test", None), Err("signature_missing"));
        for changed in [
            "",
            "x",
            &SIGNATURE.replace("9r3g7V", "9r3g7W"),
            &SIGNATURE.replace("timestamp:16", "timestamp:17"),
            // Of another key.
            &SIGNATURE.replace("RUQf6L", "RUQf6M"),
            // As minisign signed long ago, which cannot be verified piece by piece.
            &SIGNATURE.replace("RUQf6L", "RWQf6L"),
        ] {
            assert_eq!(check(b"test", b"test", Some(changed)), Err("signature_invalid"), "{changed}");
        }
        assert!(is_signature(SIGNATURE) && is_signature(&SIGNATURE.replace('\n', "\r\n")));
        assert!(!is_signature("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"));
    }

    #[test]
    fn without_a_key_the_digest_counts() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"bytes").unwrap();
        let (right, wrong) = (Sha256::digest(b"bytes"), Sha256::digest(b"other"));
        verify(&mut file, &Sha256Hex::from_bytes(&right), None, Some("whatever")).unwrap();
        let error = verify(&mut file, &Sha256Hex::from_bytes(&wrong), None, None).unwrap_err();
        assert_eq!(error.code(), "checksum_mismatch");
    }
}
