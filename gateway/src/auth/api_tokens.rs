//! API tokens, looked up in the read model and remembered for less than a second, as sessions are.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use rand::{TryRngCore, rngs::OsRng};
use signalbox_clock::Clock;
use signalbox_config::ApiTokenPrefix;
use signalbox_domain::kernel::{Sha256Hex, UserId};
use signalbox_projections::identity::queries::{LiveApiToken, live_api_token};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Credential, Who, hash_secret, memory::Memory};

/// The secret of a new API token, and what is stored of it.
///
/// # Errors
/// The machine gives no random numbers.
pub fn new_api_token(prefix: ApiTokenPrefix) -> std::io::Result<(String, Sha256Hex)> {
    let mut random = [0; 32];
    OsRng.try_fill_bytes(&mut random).map_err(std::io::Error::other)?;
    let secret = format!("{}{}", prefix.as_str(), URL_SAFE_NO_PAD.encode(random));
    let hash = hash_secret(&secret);
    Ok((secret, hash))
}

/// The API tokens that this gateway has seen lately, and which of them were used.
#[derive(Debug)]
pub(crate) struct ApiTokens {
    pool: PgPool,
    clock: Clock,
    known: Memory<String, Option<Who>>,
    /// Holds tokens that exist, until they are noted: no more than there are.
    used: Mutex<HashMap<Uuid, DateTime<Utc>>>,
}

impl ApiTokens {
    pub(crate) fn new(pool: PgPool, clock: Clock) -> Self {
        Self { pool, clock, known: Memory::default(), used: Mutex::default() }
    }

    /// Whether `text` is an API token by its looks, and no JWT.
    pub(super) fn looks_like_one(text: &str) -> bool {
        ApiTokenPrefix::ALL.iter().any(|prefix| text.starts_with(prefix.as_str()))
    }

    /// The user whose token `secret` is, unless it is void.
    pub(super) async fn who(&self, secret: &str) -> Result<Option<Who>, sqlx::Error> {
        let (hash, now) = (hash_secret(secret).to_string(), self.clock.now());
        let who = match self.known.recall(&hash, now) {
            Some(known) => known,
            None => self.look_up(hash, now).await?,
        };
        if let Some(Who { credential: Credential::ApiToken(token), .. }) = &who {
            self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(*token, now);
        }
        Ok(who)
    }

    /// Forgets what is remembered of the token with this hash.
    pub(crate) fn forget(&self, secret_sha256: String) {
        self.known.forget(&secret_sha256);
    }

    /// Tokens used since the last call, and when.
    pub(crate) fn drain_used(&self) -> HashMap<Uuid, DateTime<Utc>> {
        std::mem::take(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn look_up(&self, hash: String, now: DateTime<Utc>) -> Result<Option<Who>, sqlx::Error> {
        let who = live_api_token(&self.pool, &hash, now).await?.and_then(who);
        self.known.remember(hash, who.clone(), now);
        Ok(who)
    }
}

fn who(live: LiveApiToken) -> Option<Who> {
    let LiveApiToken { token_id, user_id, number, email, username, role } = live;
    let (credential, role) = (Credential::ApiToken(token_id), role.parse().ok()?);
    Some(Who { user: UserId(user_id), credential, number, email, username, role })
}
