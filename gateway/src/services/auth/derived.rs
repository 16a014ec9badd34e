//! Tokens of earlier versions, which are derived from a signing key and the token's id: a reader of the database can
//! compute them. They stay valid until they expire or are revoked.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_config::ApiTokenPrefix;
use signalbox_database::ops::signing_keys::all_secrets;
use signalbox_projections::{identity::queries::api_token_hashes, transfer::queries::agent_token_hashes};
use sqlx::PgPool;
use uuid::Uuid;

use super::{hash_secret, keyed_hash};

/// How many valid tokens follow from a signing key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DerivedTokens {
    /// API tokens of users.
    pub api: usize,
    /// Tokens of agents.
    pub agent: usize,
}

/// Finds the valid tokens that follow from a signing key, retired ones too.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn derived_tokens(pool: &PgPool, now: DateTime<Utc>) -> Result<DerivedTokens, sqlx::Error> {
    let keys = all_secrets(pool).await?;
    let (api, agent) = (api_token_hashes(pool, now).await?, agent_token_hashes(pool, now).await?);
    let follows =
        |(id, sha256): &&(Uuid, String), purpose: &str, write: &dyn Fn(&[u8; 32]) -> Vec<String>| {
            let secrets = keys.iter().filter_map(|key| keyed_hash(key, purpose, id.as_bytes()));
            secrets.flat_map(|secret| write(&secret)).any(|text| hash_secret(&text).as_str() == *sha256)
        };
    let api_texts = |secret: &[u8; 32]| {
        let text = URL_SAFE_NO_PAD.encode(secret);
        ApiTokenPrefix::ALL.iter().map(|prefix| format!("{}{text}", prefix.as_str())).collect()
    };
    let agent_texts = |secret: &[u8; 32]| vec![hex::encode(secret)];
    Ok(DerivedTokens {
        api: api.iter().filter(|token| follows(token, "API token", &api_texts)).count(),
        agent: agent.iter().filter(|token| follows(token, "agent token", &agent_texts)).count(),
    })
}
