use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use axum::{
    extract::{FromRef, FromRequestParts},
    http::request::Parts,
};

use crate::http::{
    connections::Connection,
    network::{Network, client},
    problem::Problem,
};

/// The client's address: the peer's, or the one that a trusted proxy reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// Proxies whose reports of the client are believed.
#[derive(Debug, Clone)]
pub(crate) struct TrustedProxies(pub(crate) Arc<[IpAddr]>);

impl ClientAddress {
    /// The address of the client that sent `parts`.
    pub(crate) fn of(parts: &Parts, proxies: &TrustedProxies) -> Self {
        let connection = parts.extensions.get::<Connection>();
        let peer = connection.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Connection::peer);
        Self(client(peer, &parts.headers, &proxies.0))
    }

    /// The network that limits count this client in.
    pub(crate) fn network(self) -> Network {
        self.0.into()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ClientAddress
where
    TrustedProxies: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self::of(parts, &TrustedProxies::from_ref(state)))
    }
}
