use serde::Deserialize;
use url::Url;

/// A provider's metadata: OpenID Connect Discovery 1.0, section 3.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Url,
    pub(crate) token_endpoint: Url,
    pub(crate) jwks_uri: Url,
    pub(crate) userinfo_endpoint: Option<Url>,
    #[serde(default = "basic")]
    token_endpoint_auth_methods_supported: Vec<String>,
    /// Whether the redirect back names the issuer: RFC 9207.
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

fn basic() -> Vec<String> {
    vec!["client_secret_basic".to_owned()]
}

impl Metadata {
    /// Checks that it is the provider `issuer` who speaks, and that no address is weaker than the issuer's.
    pub(crate) fn check(self, issuer: &Url) -> Result<Self, String> {
        if self.issuer.trim_end_matches('/') != issuer.as_str().trim_end_matches('/') {
            return Err(format!("it calls itself {}", self.issuer));
        }
        let used = [&self.authorization_endpoint, &self.token_endpoint, &self.jwks_uri];
        for endpoint in used.into_iter().chain(&self.userinfo_endpoint) {
            let is_as_safe = endpoint.scheme() == "https" || endpoint.scheme() == issuer.scheme();
            if !is_as_safe || !endpoint.has_host() {
                return Err(format!("its address {endpoint} cannot be used"));
            }
        }
        Ok(self)
    }

    /// Whether a client's secret must be sent in the body, because the header is not supported.
    pub(crate) fn takes_secret_in_body_only(&self) -> bool {
        let takes = |method: &str| self.token_endpoint_auth_methods_supported.iter().any(|it| it == method);
        takes("client_secret_post") && !takes("client_secret_basic")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(issuer: &str, token_endpoint: &str) -> Metadata {
        let metadata = json!({"issuer": issuer, "authorization_endpoint": "https://id.example.org/auth",
            "token_endpoint": token_endpoint, "jwks_uri": "https://id.example.org/keys"});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn only_the_issuer_speaks_for_itself_and_never_weaker() {
        let issuer = Url::parse("https://id.example.org/realm").unwrap();
        let token = "https://id.example.org/token";
        for same in ["https://id.example.org/realm", "https://id.example.org/realm/"] {
            assert!(metadata(same, token).check(&issuer).is_ok(), "{same}");
        }
        assert!(metadata("https://id.example.org/other", token).check(&issuer).is_err());
        for weaker in ["http://id.example.org/token", "file:///token"] {
            assert!(metadata(issuer.as_str(), weaker).check(&issuer).is_err(), "{weaker}");
        }
    }
}
