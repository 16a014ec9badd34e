use signalbox_boxed::boxed;
use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_config::Sso;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded::byte_serialize};

use crate::{
    id_token::{self, Claims, Expected, Profile, TokenError},
    keys::{KeySet, Keys},
    metadata::Metadata,
    web::{self, WebError},
};

/// Where providers send browsers back to.
const CALLBACK: &str = "/api/v1/auth/sso/callback";
/// How long metadata and keys are remembered.
const METADATA_TTL: Duration = Duration::from_secs(3600);
/// How long a provider that did not answer is not asked again.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// Keys are fetched for an unknown name no more often than this.
const ROTATION: Duration = Duration::from_secs(10);

/// An OpenID provider, and this service as its client.
#[derive(Debug)]
pub struct Provider {
    issuer: Url,
    redirect_uri: String,
    settings: Sso,
    client: Client,
    clock: Clock,
    memory: Mutex<Option<Memory>>,
}

/// The secrets of one login. The provider sees the nonce, the state, and a hash of the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Returned with the browser's redirect.
    pub state: String,
    /// Returned in the ID token.
    pub nonce: String,
    /// Shows that the code was asked for by who redeems it: 43 to 128 unreserved characters.
    pub verifier: String,
}

/// The authenticated person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The provider's `iss`.
    pub issuer: String,
    /// The person's `sub`.
    pub subject: String,
    /// E-mail address, if the provider reports one.
    pub email: Option<String>,
    /// Whether the provider has verified it.
    pub is_email_verified: bool,
    /// Display name.
    pub name: Option<String>,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A setting is not an address.
    #[error("sso.{0} must be an address such as https://example.org")]
    Address(&'static str),
    /// Something is missing.
    #[error("sso.{0} must be set when sso.issuer is")]
    Missing(&'static str),
    /// Not OpenID Connect.
    #[error("sso.scopes must contain openid")]
    Scopes,
    /// No TLS library can be used.
    #[error("single sign-on cannot use TLS: {0}")]
    Client(#[from] reqwest::Error),
}

/// Reasons why a login failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginError {
    /// The provider cannot be asked.
    #[error("the identity provider cannot be used: {0}")]
    Unavailable(String),
    /// The provider does not know the code, or not as this client's.
    #[error("the identity provider does not take the code: {0}")]
    Refused(String),
    /// The provider's answer failed validation.
    #[error("the ID token is not believed: {0}")]
    Untrusted(#[from] TokenError),
}

#[derive(Debug)]
struct Memory {
    until: Duration,
    answer: Result<Arc<Known>, LoginError>,
}

#[derive(Debug)]
struct Known {
    metadata: Arc<Metadata>,
    keys: Keys,
    keys_at: Duration,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    id_token: String,
}

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(flatten)]
    profile: Profile,
}

impl Provider {
    /// The provider that `settings` name. It is not asked anything yet.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn new(settings: &Sso, clock: Clock) -> Result<Self, SettingsError> {
        let issuer = address("issuer", &settings.issuer)?;
        if settings.client_id.is_empty() {
            return Err(SettingsError::Missing("client_id"));
        }
        if settings.public_url.is_empty() {
            return Err(SettingsError::Missing("public_url"));
        }
        if !settings.scopes.split_whitespace().any(|scope| scope == "openid") {
            return Err(SettingsError::Scopes);
        }
        address("public_url", &settings.public_url)?;
        if issuer.scheme() != "https" {
            tracing::warn!("sso.issuer has no TLS: anyone on the network path can log in as any user");
        }
        let redirect_uri = format!("{}{CALLBACK}", settings.public_url.trim_end_matches('/'));
        let (settings, memory) = (settings.clone(), Mutex::default());
        Ok(Self { issuer, redirect_uri, settings, client: web::client()?, clock, memory })
    }

    /// The address to which a browser is redirected to log in.
    ///
    /// # Errors
    /// [`LoginError::Unavailable`].
    #[boxed]
    pub async fn authorization_url(&self, attempt: &Attempt) -> Result<Url, LoginError> {
        let known = self.known().await?;
        let mut url = known.metadata.authorization_endpoint.clone();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&attempt.verifier));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &self.settings.scopes)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// The authenticated person, by the `code` and the issuer that the browser has returned. `now` is the
    /// time by the clock that all gateways share.
    ///
    /// # Errors
    /// [`LoginError`].
    #[boxed]
    pub async fn redeem(
        &self,
        code: &str,
        issuer: Option<&str>,
        attempt: &Attempt,
        now: DateTime<Utc>,
    ) -> Result<Person, LoginError> {
        let known = self.known().await?;
        let metadata = &known.metadata;
        let named = metadata.authorization_response_iss_parameter_supported;
        if issuer.map_or(named, |issuer| issuer != metadata.issuer) {
            return Err(TokenError::Claim("iss").into());
        }
        let tokens: Tokens = self.tokens(metadata, code, attempt).await?;
        let claims = self.believe(known.clone(), &tokens.id_token, (attempt, now)).await?;
        let profile = match &metadata.userinfo_endpoint {
            Some(endpoint) if claims.profile.email.is_none() => {
                self.user_info(endpoint.clone(), &tokens.access_token, &claims.sub).await?
            }
            _ => claims.profile,
        };
        Ok(Person {
            issuer: metadata.issuer.clone(),
            subject: claims.sub,
            is_email_verified: profile.is_email_verified(),
            email: profile.email.clone(),
            name: profile.name(),
        })
    }

    async fn tokens(&self, metadata: &Metadata, code: &str, attempt: &Attempt) -> Result<Tokens, LoginError> {
        let Sso { client_id, client_secret, .. } = &self.settings;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", &attempt.verifier),
        ];
        let mut request = self.client.post(metadata.token_endpoint.clone());
        if client_secret.is_empty() {
            form.push(("client_id", client_id));
        } else if metadata.takes_secret_in_body_only() {
            form.extend([("client_id", client_id.as_str()), ("client_secret", client_secret.expose())]);
        } else {
            // RFC 6749, 2.3.1: encoded as in a form before they are put together.
            request = request.basic_auth(in_form(client_id), Some(in_form(client_secret.expose())));
        }
        web::json(request.form(&form)).await.map_err(|error| match error {
            WebError::Status(status)
                if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS =>
            {
                LoginError::Refused(error.to_string())
            }
            _ => unavailable(&error),
        })
    }

    /// The claims of a token. A key that is not known may be a new one.
    async fn believe(
        &self,
        known: Arc<Known>,
        token: &str,
        expected: (&Attempt, DateTime<Utc>),
    ) -> Result<Claims, LoginError> {
        match self.judge(&known, token, expected) {
            Err(TokenError::UnknownKey) => {
                let known = self.with_new_keys(known).await?;
                Ok(self.judge(&known, token, expected)?)
            }
            judged => Ok(judged?),
        }
    }

    fn judge(
        &self,
        known: &Known,
        token: &str,
        (attempt, now): (&Attempt, DateTime<Utc>),
    ) -> Result<Claims, TokenError> {
        let expected = Expected {
            issuer: &known.metadata.issuer,
            client_id: &self.settings.client_id,
            nonce: &attempt.nonce,
            now,
        };
        id_token::verify(token, &known.keys, expected)
    }

    /// The claims of the user info endpoint, for providers whose tokens lack them.
    async fn user_info(&self, endpoint: Url, token: &str, subject: &str) -> Result<Profile, LoginError> {
        let request = self.client.get(endpoint).bearer_auth(token);
        let profile: UserInfo = web::json(request).await.map_err(|error| unavailable(&error))?;
        if profile.sub != subject {
            return Err(TokenError::Claim("sub").into());
        }
        Ok(profile.profile)
    }

    async fn known(&self) -> Result<Arc<Known>, LoginError> {
        // Concurrent callers wait for the same answer.
        let mut memory = self.memory.lock().await;
        let now = self.clock.monotonic();
        if let Some(Memory { until, answer }) = &*memory
            && *until > now
        {
            return answer.clone();
        }
        let answer = self.discover().await.map_err(|error| unavailable(&error));
        let until = now + if answer.is_ok() { METADATA_TTL } else { FAILURE_TTL };
        *memory = Some(Memory { until, answer: answer.clone() });
        answer
    }

    async fn discover(&self) -> Result<Arc<Known>, WebError> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.as_str().trim_end_matches('/'));
        let metadata = web::json::<Metadata>(self.client.get(url)).await?;
        let metadata = Arc::new(metadata.check(&self.issuer).map_err(WebError::Unreadable)?);
        self.fetch_keys(metadata).await
    }

    async fn fetch_keys(&self, metadata: Arc<Metadata>) -> Result<Arc<Known>, WebError> {
        let keys = web::json::<KeySet>(self.client.get(metadata.jwks_uri.clone())).await?;
        Ok(Arc::new(Known { metadata, keys: keys.into(), keys_at: self.clock.monotonic() }))
    }

    /// The provider's metadata with newer keys than those of `old`, unless they were fetched a moment ago.
    async fn with_new_keys(&self, old: Arc<Known>) -> Result<Arc<Known>, LoginError> {
        let mut memory = self.memory.lock().await;
        if let Some(Memory { answer: Ok(known), .. }) = &*memory
            && known.keys_at > old.keys_at
        {
            return Ok(known.clone());
        }
        if self.clock.monotonic().saturating_sub(old.keys_at) < ROTATION {
            return Ok(old);
        }
        let known = self.fetch_keys(old.metadata.clone()).await.map_err(|error| unavailable(&error))?;
        if let Some(memory) = &mut *memory {
            memory.answer = Ok(known.clone());
        }
        Ok(known)
    }
}

fn address(name: &'static str, text: &str) -> Result<Url, SettingsError> {
    let url = Url::parse(text).map_err(|_| SettingsError::Address(name))?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    if is_web { Ok(url) } else { Err(SettingsError::Address(name)) }
}

fn unavailable(error: &WebError) -> LoginError {
    LoginError::Unavailable(error.to_string())
}

fn in_form(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}
