use std::sync::Arc;

use super::{ApiTokens, CurrentUser, Keys, Sessions};
use crate::http::problem::Problem;

/// Finds the user of a JWT or an API token. Clones share what is remembered.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) keys: Arc<Keys>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) api_tokens: Arc<ApiTokens>,
}

impl Credentials {
    /// The user whose JWT or API token this is. A socket asks again while it is open.
    pub(crate) async fn identify(&self, token: &str) -> Result<CurrentUser, Problem> {
        let refused = || Problem::unauthenticated("invalid or expired token");
        if ApiTokens::looks_like_one(token) {
            return self.api_tokens.user(token).await?.ok_or_else(refused);
        }
        let claims = self.keys.verify(token).ok_or_else(refused)?;
        self.sessions.user(claims.sid).await?.filter(|user| user.id.0 == claims.sub).ok_or_else(refused)
    }

    /// Whether a credential that is void is so because its time has passed.
    pub(crate) async fn has_expired(&self, token: &str) -> Result<bool, sqlx::Error> {
        if ApiTokens::looks_like_one(token) {
            return self.api_tokens.has_expired(token).await;
        }
        Ok(self.keys.has_expired(token))
    }
}
