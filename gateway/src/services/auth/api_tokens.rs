//! API tokens, looked up in the read model and remembered for less than a second, as sessions are.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rand::{TryRngCore, rngs::OsRng};
use signalbox_clock::Clock;
use signalbox_config::ApiTokenPrefix;
use signalbox_database::SharedServerClock;
use signalbox_domain::kernel::Sha256Hex;
use signalbox_projections::identity::queries::{LiveApiToken, api_token_expiry, live_api_token};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Credential, CurrentUser, answers::Answers, hash_secret, token_uses::TokenUses};

/// After what time the log is searched again for what a token of an earlier version has done.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(600);

/// The secret of a new API token, and what is stored of it.
///
/// # Errors
/// The machine gives no random numbers.
pub fn new_api_token(prefix: ApiTokenPrefix) -> std::io::Result<(String, Sha256Hex)> {
    let mut random = [0; 32];
    OsRng.try_fill_bytes(&mut random).map_err(std::io::Error::other)?;
    let secret = api_token_text(prefix, &random);
    let hash = hash_secret(&secret);
    Ok((secret, hash))
}

/// How an API token of these bytes is written.
pub(crate) fn api_token_text(prefix: ApiTokenPrefix, random: &[u8; 32]) -> String {
    format!("{}{}", prefix.as_str(), URL_SAFE_NO_PAD.encode(random))
}

/// The API tokens that this gateway has seen lately, and which of them were used.
#[derive(Debug)]
pub(crate) struct ApiTokens {
    pool: PgPool,
    clock: Clock,
    server_clock: SharedServerClock,
    known: Answers<CurrentUser>,
    /// Holds tokens that exist, until they are noted: no more than there are.
    used: TokenUses,
    /// Tokens of earlier versions that were looked up in the log: whether they have run a controller. No more than there are.
    controllers: Mutex<HashMap<Uuid, (bool, Duration)>>,
}

impl ApiTokens {
    pub(crate) fn new(pool: PgPool, clock: Clock, server_clock: SharedServerClock) -> Self {
        Self {
            pool,
            clock,
            server_clock,
            known: Answers::default(),
            used: TokenUses::default(),
            controllers: Mutex::default(),
        }
    }

    /// Whether `text` is an API token by its looks, and no JWT.
    pub(crate) fn looks_like_one(text: &str) -> bool {
        ApiTokenPrefix::ALL.iter().any(|prefix| text.starts_with(prefix.as_str()))
    }

    /// The user whose token `secret` is, unless it is void.
    pub(super) async fn user(&self, secret: &str) -> Result<Option<CurrentUser>, sqlx::Error> {
        let hash = hash_secret(secret).to_string();
        let user = match self.known.recall(&hash, self.clock.monotonic()) {
            Some(known) => known,
            None => self.look_up(hash).await?,
        };
        if let Some(CurrentUser { credential: Credential::ApiToken(token), .. }) = &user {
            self.used.note(*token, self.server_clock.now());
        }
        Ok(user)
    }

    /// Whether the database has to be asked about `secret`, and it may be made up.
    pub(crate) fn is_stranger(&self, secret: &str) -> bool {
        self.known.is_stranger(&hash_secret(secret).to_string(), self.clock.monotonic())
    }

    /// Whether `secret` is a token that was not revoked and whose time has passed.
    pub(super) async fn has_expired(&self, secret: &str) -> Result<bool, sqlx::Error> {
        let expiry = api_token_expiry(&self.pool, &hash_secret(secret).to_string()).await?;
        Ok(expiry.is_some_and(|expiry| expiry <= self.server_clock.now()))
    }

    /// Forgets what is remembered of the token with this hash.
    pub(crate) fn forget(&self, secret_sha256: String) {
        self.known.forget(&secret_sha256);
    }

    /// Tokens in use, and when they were used last.
    pub(crate) fn used(&self) -> &TokenUses {
        &self.used
    }

    /// Whether token `id`, which is of an earlier version, has run a controller; the log was searched some minutes
    /// ago.
    pub(crate) fn has_run_controller(&self, id: Uuid) -> Option<bool> {
        let known = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, at) = known.get(&id)?;
        (self.clock.monotonic().saturating_sub(*at) < LOOK_UP_AGAIN).then_some(*found)
    }

    pub(crate) fn remember_controller(&self, id: Uuid, has_run: bool) {
        let mut known = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id, (has_run, self.clock.monotonic()));
    }

    async fn look_up(&self, hash: String) -> Result<Option<CurrentUser>, sqlx::Error> {
        let begun = self.clock.monotonic();
        let user = live_api_token(&self.pool, &hash, self.server_clock.now()).await?.and_then(user);
        self.known.remember(hash, user.clone(), begun);
        Ok(user)
    }
}

fn user(live: LiveApiToken) -> Option<CurrentUser> {
    let LiveApiToken { token_id, user_id, number, email, username, role, controller } = live;
    let (credential, role) = (Credential::ApiToken(token_id), role.known().ok()?);
    Some(CurrentUser { id: user_id, credential, number, email, username, role, controller })
}
