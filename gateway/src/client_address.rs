use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{HeaderMap, request::Parts},
};

use crate::{problem::Problem, state::AppState};

/// The client's address: the peer's, or what a trusted proxy says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl FromRequestParts<AppState> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Ok(Self(client(peer, &parts.headers, &state.config.server.trusted_proxies)))
    }
}

/// The last address in X-Forwarded-For that is not a trusted proxy's, if the peer is one.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    if !trusted.contains(&peer) {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let addresses: Vec<IpAddr> = forwarded
        .flat_map(|value| value.split(','))
        .filter_map(|address| address.trim().parse().ok())
        .collect();
    addresses.into_iter().rev().find(|address| !trusted.contains(address)).unwrap_or(peer)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn forwarding_headers_count_only_from_a_trusted_proxy() {
        let proxy: IpAddr = "10.0.0.1".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 1.2.3.4, 10.0.0.1"));
        assert_eq!(client(proxy, &headers, &[proxy]), "1.2.3.4".parse::<IpAddr>().unwrap());
        let stranger: IpAddr = "9.9.9.9".parse().unwrap();
        assert_eq!(client(stranger, &headers, &[proxy]), stranger);
    }
}
