//! Single sign-on: a browser is redirected to the OpenID provider and returns with a code; the gateway redeems it for
//! the person's identity, finds or creates the user, and redirects the browser to the front end with a code of its
//! own, which the front end exchanges for a login.
//!
//! Nothing of it lies in one gateway's memory: the state of a login is in the browser's cookie and in what the signing keys
//! make of it ([`attempt`]), the codes are in the database ([`codes`]).

mod accounts;
mod attempt;
mod codes;
mod failure;
pub(super) mod routes;

use axum::http::{HeaderMap, HeaderValue, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::services::sso::{FRONT_END, SingleSignOn};

/// Which requests carry a cookie.
#[derive(Debug, Clone, Copy)]
enum SameSite {
    /// Those of pages of the same site, and visits.
    Lax,
    /// All.
    None,
}

impl SameSite {
    fn as_str(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::None => "None",
        }
    }
}

impl SingleSignOn {
    /// The front end's address with a query.
    fn front_end(&self, query: &[(&str, &str)]) -> String {
        let pairs = query.iter().map(|(name, value)| format!("{name}={}", encode(value)));
        format!("{}?{}", self.front_end, pairs.collect::<Vec<_>>().join("&"))
    }

    /// Browsers keep others from setting a cookie of this name where there is TLS.
    fn cookie_name(&self) -> &'static str {
        if self.is_secure { "__Host-signalbox_sso" } else { "signalbox_sso" }
    }

    /// Requests of a front end that is served from elsewhere carry the cookie only so; browsers want TLS for it.
    fn same_site_of_front_end(&self) -> SameSite {
        let is_elsewhere = self.front_end != FRONT_END;
        if is_elsewhere && self.is_secure { SameSite::None } else { SameSite::Lax }
    }

    /// The header that has the browser keep `secret` for `seconds`.
    fn set_cookie(&self, secret: &str, seconds: i64, same_site: SameSite) -> Option<HeaderValue> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let (name, same_site) = (self.cookie_name(), same_site.as_str());
        let cookie =
            format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}");
        HeaderValue::from_str(&cookie).ok()
    }

    /// The secret in the browser's cookie.
    fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| name.trim() == self.cookie_name()).map(|(_, value)| value.trim())
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
