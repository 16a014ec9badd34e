//! Codes that a front end exchanges for a login: within 60 s, once, on any gateway, and only from the browser that
//! logged in at the provider, which has a secret in a cookie: a link with another user's code logs no one in. Only
//! hashes are stored. The time is PostgreSQL's, because another gateway may redeem the code.

use chrono::TimeDelta;
use signalbox_database::ops::login_codes::{self, LoginCode};
use signalbox_domain::kernel::UserId;

use super::attempt::random_secret;
use crate::{auth::hash_secret, problem::Problem, services::replica::Database};

/// How long a code is valid.
pub(super) const LIFE: TimeDelta = TimeDelta::seconds(60);

/// A code, and the secret of the browser that may have it exchanged.
pub(super) struct Issued {
    pub(super) code: String,
    pub(super) browser: String,
}

/// A new code for `user`.
pub(super) async fn issue(database: &Database, user: UserId) -> Result<Issued, Problem> {
    let secret = || random_secret().map_err(|error| Problem::internal(&error));
    let issued = Issued { code: secret()?, browser: secret()? };
    let expires_at = database.time().await? + LIFE;
    let (code, browser) = (hash_secret(&issued.code), hash_secret(&issued.browser));
    let code = LoginCode { code_sha256: code.as_str(), browser_sha256: browser.as_str() };
    login_codes::store(&database.primary, code, user.0, expires_at).await?;
    Ok(issued)
}

/// The user of `code`, if the browser has this secret. The code is void from then on, whether it was in time or not.
pub(super) async fn redeem(
    database: &Database,
    code: &str,
    browser: Option<&str>,
) -> Result<Option<UserId>, sqlx::Error> {
    let now = database.time().await?;
    let browser = browser.map(|secret| hash_secret(secret).to_string()).unwrap_or_default();
    let code = hash_secret(code);
    let code = LoginCode { code_sha256: code.as_str(), browser_sha256: &browser };
    Ok(login_codes::redeem(&database.primary, code, now).await?.map(UserId))
}
