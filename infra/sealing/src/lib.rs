//! Seals secrets that events carry: AES-256-GCM with a random nonce, under a key that is kept beside the log, in
//! `ops.sealing_keys`, like the keys that sign tokens.
//!
//! A sealed text is `v1.<key>.<base64 of nonce, ciphertext and tag>`. It opens only for the resource that it was
//! sealed for, so that one resource's secret cannot be copied into another. Keys are never deleted, because the log
//! never is. Do not use it for passwords, which never have to be read again.

use signalbox_boxed::boxed;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use rand::{TryRngCore, rngs::OsRng};
use signalbox_clock::Clock;
use signalbox_config::Secret;
use signalbox_database::ops::sealing_keys::{add_sealing_key, sealing_keys};
use sqlx::PgPool;
use uuid::Uuid;

const VERSION: &str = "v1";

/// Seals and opens. Clones share the keys.
#[derive(Clone)]
pub struct Sealer {
    pool: PgPool,
    ring: Arc<RwLock<Ring>>,
}

#[derive(Default)]
struct Ring {
    newest: String,
    keys: HashMap<String, Arc<RandomizedNonceKey>>,
}

/// Why a secret was not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The keys cannot be read.
    #[error("the sealing keys cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// The machine gives no random numbers, or the cipher refuses.
    #[error("the cipher failed")]
    Cipher,
    /// It was not sealed here, or for another resource, or has been changed.
    #[error("the sealed secret does not open: was its key lost, or was it changed?")]
    Broken,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Loads the keys; creates the first one if there are none.
    ///
    /// # Errors
    /// [`SealError`].
    #[boxed]
    pub async fn open(pool: &PgPool, clock: &Clock) -> Result<Self, SealError> {
        let sealer = Self { pool: pool.clone(), ring: Arc::default() };
        if !sealer.load().await? {
            make_key(pool, clock).await?;
            sealer.load().await?;
        }
        Ok(sealer)
    }

    /// `secret`, sealed for `resource`.
    ///
    /// # Errors
    /// [`SealError::Cipher`].
    pub fn seal(&self, resource: Uuid, secret: &str) -> Result<String, SealError> {
        self.seal_bytes(resource, secret.as_bytes())
    }

    /// `secret`, which need not be text, sealed for `resource`.
    ///
    /// # Errors
    /// [`SealError::Cipher`].
    pub fn seal_bytes(&self, resource: Uuid, secret: &[u8]) -> Result<String, SealError> {
        let (name, key) = {
            let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
            let key = ring.keys.get(&ring.newest).ok_or(SealError::Cipher)?;
            (ring.newest.clone(), key.clone())
        };
        let mut text = secret.to_vec();
        let sealed = key.seal_in_place_append_tag(Aad::from(resource.as_bytes()), &mut text);
        let nonce = sealed.map_err(|_| SealError::Cipher)?;
        let bytes = [nonce.as_ref().as_slice(), &text].concat();
        Ok(format!("{VERSION}.{name}.{}", STANDARD_NO_PAD.encode(bytes)))
    }

    /// Opens a text sealed for `resource`. Reloads the keys if the key is unknown, because another process may have
    /// created it.
    ///
    /// # Errors
    /// [`SealError::Broken`] for what does not open.
    #[boxed]
    pub async fn unseal(&self, resource: Uuid, sealed: &str) -> Result<Secret, SealError> {
        let opened = self.unseal_bytes(resource, sealed).await?;
        String::from_utf8(opened).map(Secret::new).map_err(|_| SealError::Broken)
    }

    /// The bytes that were sealed for `resource`.
    ///
    /// # Errors
    /// [`SealError::Broken`] for what does not open.
    #[boxed]
    pub async fn unseal_bytes(&self, resource: Uuid, sealed: &str) -> Result<Vec<u8>, SealError> {
        let mut parts = sealed.splitn(3, '.');
        let (Some(VERSION), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(SealError::Broken);
        };
        if self.key(name).is_none() {
            self.load().await?;
        }
        let key = self.key(name).ok_or(SealError::Broken)?;
        open_bytes(&key, resource, text).ok_or(SealError::Broken)
    }

    fn key(&self, name: &str) -> Option<Arc<RandomizedNonceKey>> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).keys.get(name).cloned()
    }

    /// Whether there is a key.
    async fn load(&self) -> Result<bool, SealError> {
        let mut ring = Ring::default();
        for (name, secret) in sealing_keys(&self.pool).await? {
            let key = RandomizedNonceKey::new(&AES_256_GCM, &secret).map_err(|_| SealError::Cipher)?;
            ring.newest.clone_from(&name);
            ring.keys.insert(name, Arc::new(key));
        }
        let found = !ring.keys.is_empty();
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        Ok(found)
    }
}

fn open_bytes(key: &RandomizedNonceKey, resource: Uuid, text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD_NO_PAD.decode(text).ok()?;
    let (nonce, ciphertext) = bytes.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut ciphertext = ciphertext.to_vec();
    key.open_in_place(nonce, Aad::from(resource.as_bytes()), &mut ciphertext)
        .ok()
        .map(|opened| opened.to_vec())
}

/// Two processes may each make a first one; both are kept, and the newer one seals.
async fn make_key(pool: &PgPool, clock: &Clock) -> Result<(), SealError> {
    let mut secret = [0; 32];
    OsRng.try_fill_bytes(&mut secret).map_err(|_| SealError::Cipher)?;
    add_sealing_key(pool, &clock.new_id().simple().to_string(), &secret, clock.now()).await?;
    Ok(())
}
