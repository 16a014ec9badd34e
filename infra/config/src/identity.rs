use serde::{Deserialize, Serialize};

use crate::Secret;

/// Logins and tokens.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Issuer and audience in tokens.
    pub issuer: String,
    /// How long a login lasts, in hours.
    pub token_hours: u32,
    /// Prefix of new API tokens.
    pub api_token_prefix: ApiTokenPrefix,
    /// Password hashes computed at the same time.
    pub concurrent_hashes: usize,
}

/// The prefix of an API token, which distinguishes it from other credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum ApiTokenPrefix {
    /// `sb_`.
    #[serde(rename = "sb_")]
    Signalbox,
    /// `wm_`, as programs of the WebMACS family expect it.
    #[serde(rename = "wm_")]
    Webmacs,
}

impl ApiTokenPrefix {
    /// Every prefix that an API token may have.
    pub const ALL: [Self; 2] = [Self::Signalbox, Self::Webmacs];

    /// The prefix as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signalbox => "sb_",
            Self::Webmacs => "wm_",
        }
    }
}

/// Logins at an OpenID provider.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sso {
    /// The provider's issuer; empty for no single sign-on.
    pub issuer: String,
    /// Display name of the provider.
    pub provider_name: String,
    /// This service as a client of the provider.
    pub client_id: String,
    /// Its secret; empty for a public client.
    pub client_secret: Secret,
    /// The requested scopes.
    pub scopes: String,
    /// Where browsers reach this service.
    pub public_url: String,
    /// Where browsers reach the front end; empty for the same place.
    pub frontend_url: String,
    /// Whether people get an account with their first login.
    pub create_users: bool,
    /// Role of such an account.
    pub default_role: SsoRole,
}

/// The role of a user created by a first login through an OpenID provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SsoRole {
    /// Read.
    Viewer,
    /// Read and write.
    Operator,
}
