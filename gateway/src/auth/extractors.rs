use std::borrow::Cow;

use axum::{
    extract::FromRequestParts,
    http::{HeaderName, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use signalbox_domain::identity::Role;

use super::{ApiTokens, CurrentUser, RequiredRole, charge::Charge};
use crate::{
    policy::Policy,
    problem::{Dialect, Problem},
    state::Services,
};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Prefix of the token in a subprotocol of a WebSocket.
const SOCKET_PROTOCOL: &str = "bearer.";

/// Any user: may read.
pub(crate) struct Reader(pub(crate) CurrentUser);

/// An operator or admin: may write.
pub(crate) struct Writer(pub(crate) CurrentUser);

/// An admin.
pub(crate) struct Admin(pub(crate) CurrentUser);

impl FromRequestParts<Services> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        remember(parts, state).await.map(Self)
    }
}

impl FromRequestParts<Services> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        with_role(parts, state, Role::Operator).await.map(Self)
    }
}

impl FromRequestParts<Services> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        with_role(parts, state, Role::Admin).await.map(Self)
    }
}

/// Checks the credential once per request, however many layers ask.
async fn remember(parts: &mut Parts, state: &Services) -> Result<CurrentUser, Problem> {
    if let Some(user) = parts.extensions.get::<CurrentUser>() {
        return Ok(user.clone());
    }
    let user = authenticate(parts, state).await?;
    parts.extensions.insert(user.clone());
    Ok(user)
}

async fn with_role(parts: &mut Parts, state: &Services, least: Role) -> Result<CurrentUser, Problem> {
    let user = remember(parts, state).await?;
    if let Some(required) = parts.extensions.get::<RequiredRole>() {
        required.raise(least);
    }
    if user.role >= least { Ok(user) } else { Err(Problem::forbidden()) }
}

async fn authenticate(parts: &Parts, state: &Services) -> Result<CurrentUser, Problem> {
    let missing = || match is_influx(parts) {
        true => "missing credentials: send Authorization: Token <token>",
        false => "missing credentials: send Authorization: Bearer <token>",
    };
    let token = presented(parts).ok_or_else(|| Problem::unauthenticated(missing()))?;
    let is_stranger = ApiTokens::looks_like_one(&token) && state.api_tokens.is_stranger(&token);
    let charge = if is_stranger { Charge::take(parts, state)? } else { Charge::NONE };
    let user = state.credentials.identify(&token).await?;
    charge.give_back(&state.clock, &state.limiter);
    Ok(user)
}

/// The JWT or API token that the request carries: `Authorization: Bearer …` or `X-API-Key: …`. Browsers can give a
/// WebSocket neither of them, so its handshake may offer the subprotocol `bearer.<token>` or ask with `?token=<token>`. Clients
/// of InfluxDB send `Authorization: Token …`, the token as password of Basic authentication, or as `?p=<token>`.
pub(crate) fn presented(parts: &Parts) -> Option<Cow<'_, str>> {
    let header = |name: &HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(value) = header(&header::AUTHORIZATION) {
        let (scheme, token) = value.trim().split_once(' ')?;
        let token = token.trim();
        return match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Some(token.into()),
            "token" if is_influx(parts) => Some(token.into()),
            "basic" if is_influx(parts) => password(token).map(Cow::from),
            _ => None,
        };
    }
    if let Some(key) = header(&API_KEY) {
        return Some(key.trim().into());
    }
    if is_influx(parts) {
        return query(parts, "p=");
    }
    let opens_socket = header(&header::UPGRADE).is_some_and(|what| what.eq_ignore_ascii_case("websocket"));
    if opens_socket { subprotocol(parts).or_else(|| query(parts, "token=")) } else { None }
}

fn subprotocol(parts: &Parts) -> Option<Cow<'_, str>> {
    let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut words = offered.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    words.find_map(|word| word.trim().strip_prefix(SOCKET_PROTOCOL)).map(Cow::from)
}

/// Whether the route is for clients of InfluxDB, which have ways of their own to present a token.
fn is_influx(parts: &Parts) -> bool {
    Policy::of(&parts.extensions).dialect == Dialect::Influx
}

/// The password of Basic authentication; the user name is ignored.
fn password(credentials: &str) -> Option<String> {
    let credentials = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    credentials.split_once(':').map(|(_, password)| password.to_owned())
}

fn query<'a>(parts: &'a Parts, prefix: &str) -> Option<Cow<'a, str>> {
    let value = parts.uri.query()?.split('&').find_map(|pair| pair.strip_prefix(prefix))?;
    percent_decode_str(value).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn find(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        find_at(Policy::PROBLEMS, uri, headers)
    }

    fn find_at(policy: Policy, uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().uri(uri).extension(policy);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        presented(&parts).map(Cow::into_owned)
    }

    #[test]
    fn a_credential_is_found_where_it_may_stand() {
        let socket = ("upgrade", "WebSocket");
        let token = Some("a.b-c".to_owned());
        assert_eq!(find("/", &[("authorization", "bearer  a.b-c ")]), token);
        assert_eq!(find("/", &[("x-api-key", "a.b-c")]), token);
        assert_eq!(find("/?token=x", &[socket, ("authorization", "Bearer a.b-c")]), token);
        assert_eq!(find("/?a=1&token=a%2Eb-c", &[socket]), token);
        assert_eq!(find("/", &[socket, ("sec-websocket-protocol", "chat, bearer.a.b-c")]), token);
    }

    #[test]
    fn clients_of_influxdb_present_tokens_in_their_ways() {
        let find = |uri: &str, headers: &[(&str, &str)]| find_at(Policy::INFLUX, uri, headers);
        let token = Some("a.b-c".to_owned());
        assert_eq!(find("/", &[("authorization", "Token a.b-c")]), token);
        assert_eq!(find("/", &[("authorization", "Bearer a.b-c")]), token);
        // user:a.b-c
        assert_eq!(find("/", &[("authorization", "Basic dXNlcjphLmItYw==")]), token);
        assert_eq!(find("/?db=x&u=user&p=a%2Eb-c", &[]), token);
        assert_eq!(find("/?p=x", &[("authorization", "Digest a.b-c")]), None);
        assert_eq!(find("/", &[("authorization", "Basic ???")]), None);
    }

    #[test]
    fn a_credential_is_not_found_where_it_may_not_stand() {
        assert_eq!(find("/?token=abc", &[]), None, "addresses of requests are logged by proxies");
        assert_eq!(find("/", &[("sec-websocket-protocol", "bearer.abc")]), None);
        assert_eq!(find("/", &[("authorization", "Basic YTpi")]), None);
        assert_eq!(find("/", &[("authorization", "abc"), ("x-api-key", "abc")]), None);
        assert_eq!(find("/", &[("authorization", "Token abc")]), None);
        assert_eq!(find("/?p=abc", &[]), None);
        assert_eq!(find("/?token=%FF", &[("upgrade", "websocket")]), None);
    }
}
