//! Keys that sign and verify JWTs (HS256, RFC 7519), kept in the database, found by `kid`.

use signalbox_boxed::boxed;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use rand::{TryRngCore, rngs::OsRng};
use serde::{Deserialize, Serialize};
use signalbox_clock::Clock;
use signalbox_database::{
    SharedServerClock,
    ops::signing_keys::{self, secrets_in_force},
    server_time,
};
use sqlx::PgPool;
use uuid::Uuid;

/// The claims of a JWT. The role is informative for clients; the gateway reads it from the read model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) sub: Uuid,
    pub(crate) sid: Uuid,
    pub(crate) role: String,
    pub(crate) iss: String,
    pub(crate) aud: String,
    pub(crate) iat: i64,
    pub(crate) exp: i64,
    pub(crate) jti: Uuid,
}

/// The keys that are in force.
#[derive(Debug)]
pub(crate) struct Keys {
    pool: PgPool,
    clock: Clock,
    server_clock: SharedServerClock,
    issuer: String,
    ring: RwLock<Arc<Ring>>,
}

#[derive(Default)]
struct Ring {
    newest: Option<String>,
    secrets: HashMap<String, Vec<u8>>,
}

/// Why no JWT can be signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("no signing key is in force")]
    NoKey,
    #[error("the claims cannot be signed: {0}")]
    Encoding(#[from] jsonwebtoken::errors::Error),
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl Ring {
    /// The key that signs, and its `kid`.
    fn signing_key(&self) -> Option<(&str, &[u8])> {
        let kid = self.newest.as_deref()?;
        Some((kid, self.secrets.get(kid)?.as_slice()))
    }
}

impl Keys {
    /// Loads the keys; makes the first one if there is none.
    pub(crate) async fn open(
        pool: PgPool,
        clock: Clock,
        server_clock: SharedServerClock,
        issuer: String,
    ) -> Result<Self, sqlx::Error> {
        let keys = Self { pool, clock, server_clock, issuer, ring: RwLock::default() };
        keys.reload().await?;
        if keys.ring().newest.is_none() {
            rotate(&keys.pool, &keys.clock).await?;
            keys.reload().await?;
        }
        Ok(keys)
    }

    /// Looks for keys that another process has made or retired.
    pub(crate) async fn reload(&self) -> Result<(), sqlx::Error> {
        let rows = secrets_in_force(&self.pool).await?;
        let ring =
            Ring { newest: rows.first().map(|(kid, _)| kid.clone()), secrets: rows.into_iter().collect() };
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }

    /// A JWT for session `sid` of user `sub` that expires at `expires_at`.
    pub(crate) fn sign(
        &self,
        sub: Uuid,
        sid: Uuid,
        role: &str,
        expires_at: DateTime<Utc>,
    ) -> Result<String, SignError> {
        let ring = self.ring();
        let (kid, secret) = ring.signing_key().ok_or(SignError::NoKey)?;
        let claims = Claims {
            sub,
            sid,
            role: role.to_owned(),
            iss: self.issuer.clone(),
            aud: self.issuer.clone(),
            iat: self.server_clock.now().timestamp(),
            exp: expires_at.timestamp(),
            jti: self.clock.new_id(),
        };
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) };
        Ok(encode(&header, &claims, &EncodingKey::from_secret(secret))?)
    }

    /// The claims of `token`, if it is ours and has not expired.
    pub(crate) fn verify(&self, token: &str) -> Option<Claims> {
        self.decode(token).filter(|claims| claims.exp > self.server_clock.now().timestamp())
    }

    /// Whether `token` is ours, and its time has passed.
    pub(crate) fn has_expired(&self, token: &str) -> bool {
        self.decode(token).is_some_and(|claims| claims.exp <= self.server_clock.now().timestamp())
    }

    fn decode(&self, token: &str) -> Option<Claims> {
        let kid = decode_header(token).ok()?.kid?;
        let ring = self.ring();
        let secret = ring.secrets.get(&kid)?;
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.issuer]);
        // PostgreSQL's clock decides, because another gateway may have signed it.
        validation.validate_exp = false;
        Some(decode::<Claims>(token, &DecodingKey::from_secret(secret), &validation).ok()?.claims)
    }

    /// Hashes of `seed` for `purpose`: one for each key in force, the newest key's first. Not for credentials: a
    /// reader of the database could compute them.
    pub(crate) fn derive(&self, purpose: &str, seed: &[u8]) -> Vec<[u8; 32]> {
        let ring = self.ring();
        let is_newest = |kid: &str| ring.newest.as_deref() == Some(kid);
        let newest = ring.secrets.iter().filter(|(kid, _)| is_newest(kid));
        let others = ring.secrets.iter().filter(|(kid, _)| !is_newest(kid));
        newest.chain(others).filter_map(|(_, secret)| keyed_hash(secret, purpose, seed)).collect()
    }

    fn ring(&self) -> Arc<Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// HMAC-SHA256 of `purpose` and `seed`.
pub(crate) fn keyed_hash(secret: &[u8], purpose: &str, seed: &[u8]) -> Option<[u8; 32]> {
    use hmac::{Hmac, KeyInit, Mac};
    // HMAC takes keys of any length; the error is for other constructions.
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret).ok()?;
    mac.update(purpose.as_bytes());
    mac.update(b"\0");
    mac.update(seed);
    Some(mac.finalize().into_bytes().into())
}

/// Makes a new signing key, retires those before the last one, and gives back its `kid`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rotate(pool: &PgPool, clock: &Clock) -> Result<String, sqlx::Error> {
    let mut secret = [0; 32];
    OsRng.try_fill_bytes(&mut secret).map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
    let kid = clock.new_id().simple().to_string();
    signing_keys::rotate(pool, &kid, &secret, server_time(pool, clock).await?).await?;
    Ok(kid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_signs_with_its_newest_key_and_shows_none() {
        assert_eq!(Ring::default().signing_key(), None);
        let newest = Some("b".to_owned());
        let mut ring = Ring { newest, secrets: HashMap::from([("a".to_owned(), vec![201])]) };
        assert_eq!(ring.signing_key(), None);
        ring.secrets.insert("b".to_owned(), vec![202]);
        assert_eq!(ring.signing_key(), Some(("b", [202].as_slice())));
        let shown = format!("{ring:?}");
        assert!(!shown.contains("201") && !shown.contains("202"), "{shown}");
    }
}
