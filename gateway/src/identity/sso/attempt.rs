//! The secrets of a login attempt at the provider.
//!
//! The browser keeps a secret in a cookie. State, nonce and PKCE verifier follow from it by the signing keys, so any gateway
//! finds them again, the verifier is never anywhere else, and a state is worth nothing in another browser.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use rand::{TryRngCore, rngs::OsRng};
use signalbox_openid::Attempt;
use subtle::ConstantTimeEq;

use crate::auth::Keys;

/// How long somebody may take to log in at the provider.
pub(super) const LIFE: TimeDelta = TimeDelta::minutes(10);

/// A secret of 256 bits, for a cookie or a code.
pub(super) fn random_secret() -> Result<String, rand::rand_core::OsError> {
    let mut bytes = [0; 32];
    OsRng.try_fill_bytes(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The login that starts now in the browser that keeps `secret`; `None` before there is a key.
pub(super) fn begin(keys: &Keys, secret: &str, now: DateTime<Utc>) -> Option<Attempt> {
    attempts(keys, secret, (now + LIFE).timestamp()).next()
}

/// The login that `state` was made for, if that was in the browser that keeps `secret`, and not too long ago.
pub(super) fn resume(keys: &Keys, secret: &str, state: &str, now: DateTime<Utc>) -> Option<Attempt> {
    let expires: i64 = state.split_once('.')?.0.parse().ok()?;
    let is_it = |attempt: &Attempt| attempt.state.as_bytes().ct_eq(state.as_bytes()).into();
    attempts(keys, secret, expires).find(is_it).filter(|_| expires > now.timestamp())
}

/// The attempt by each key that is in force, the newest first.
fn attempts(keys: &Keys, secret: &str, expires: i64) -> impl Iterator<Item = Attempt> {
    let seed = format!("{expires}.{secret}");
    let derive =
        |purpose| keys.derive(purpose, seed.as_bytes()).into_iter().map(|it| URL_SAFE_NO_PAD.encode(it));
    let (states, nonces, verifiers) = (derive("SSO state"), derive("SSO nonce"), derive("SSO verifier"));
    states.zip(nonces).zip(verifiers).map(move |((signature, nonce), verifier)| Attempt {
        state: format!("{expires}.{signature}"),
        nonce,
        verifier,
    })
}
