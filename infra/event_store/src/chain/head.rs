use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_boxed::boxed;
use sqlx::{PgPool, Row};

use super::Hash;

/// The bytes before the 32 bytes of an Ed25519 key in DER form (RFC 8410).
const PUBLIC_KEY_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The end of the hash chain: stands for the log up to its position, and for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Position of the event.
    pub position: i64,
    /// The event's hash.
    pub hash: Hash,
    /// When it was chained.
    pub written_at: DateTime<Utc>,
}

/// A head as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHead {
    /// Position of the event.
    pub position: i64,
    /// The event's hash, as 64 hexadecimal digits.
    pub hash: String,
    /// When it was chained.
    pub written_at: DateTime<Utc>,
    /// Ed25519 signature, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The public key of the signature, in base64. A verifier must have it from another source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

/// Why a head was not signed or is not believed.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The file is not a private key.
    #[error("this is not an Ed25519 private key in PEM: `openssl genpkey -algorithm ed25519` makes one")]
    PrivateKey,
    /// The file is not a public key.
    #[error("this is not an Ed25519 public key in PEM: `openssl pkey -pubout` writes it")]
    PublicKey,
    /// There is no signature to check.
    #[error("the published head is not signed")]
    Unsigned,
    /// The signature is of another key, or of another head.
    #[error("the published head was not signed with this key, or was changed afterwards")]
    Signature,
}

/// The end of the chain; `None` when nothing is chained.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn chain_head(pool: &PgPool) -> Result<Option<Head>, sqlx::Error> {
    let row = sqlx::query(
        "SELECT last_position, substr(hashes, octet_length(hashes) - 31) AS hash, written_at
           FROM log_chain ORDER BY first_position DESC LIMIT 1",
    )
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let hash = Hash::from_bytes(row.try_get("hash")?);
    let hash = hash.ok_or_else(|| sqlx::Error::Decode("a hash of the chain is too short".into()))?;
    Ok(Some(Head { position: row.try_get("last_position")?, hash, written_at: row.try_get("written_at")? }))
}

impl Head {
    /// The head as it is published, without a signature.
    pub fn unsigned(&self) -> SignedHead {
        SignedHead {
            position: self.position,
            hash: self.hash.to_string(),
            written_at: self.written_at,
            signature: None,
            public_key: None,
        }
    }

    /// The head, signed with the private key in `pem`.
    ///
    /// # Errors
    /// [`HeadError::PrivateKey`].
    pub fn sign(&self, pem: &str) -> Result<SignedHead, HeadError> {
        let der = decode_pem(pem).ok_or(HeadError::PrivateKey)?;
        // OpenSSL's files have no public key to compare with.
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| HeadError::PrivateKey)?;
        let mut head = self.unsigned();
        head.signature = Some(STANDARD.encode(key.sign(&head.signed_text())));
        head.public_key = Some(STANDARD.encode(key.public_key()));
        Ok(head)
    }
}

impl SignedHead {
    fn signed_text(&self) -> Vec<u8> {
        let Self { position, hash, written_at, .. } = self;
        format!("signalbox log head 1\n{position}\n{hash}\n{}\n", written_at.timestamp_micros()).into_bytes()
    }

    /// Checks the signature with the public key in `pem`.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn check(&self, pem: &str) -> Result<(), HeadError> {
        let der = decode_pem(pem).ok_or(HeadError::PublicKey)?;
        let key = der.strip_prefix(&PUBLIC_KEY_PREFIX).filter(|key| key.len() == 32);
        let key = UnparsedPublicKey::new(&ED25519, key.ok_or(HeadError::PublicKey)?);
        let signature = self.signature.as_ref().ok_or(HeadError::Unsigned)?;
        let signature = STANDARD.decode(signature).map_err(|_| HeadError::Signature)?;
        key.verify(&self.signed_text(), &signature).map_err(|_| HeadError::Signature)
    }
}

fn decode_pem(pem: &str) -> Option<Vec<u8>> {
    let text: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(text).ok()
}
