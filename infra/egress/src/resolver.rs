use std::{io, net::SocketAddr, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

use crate::{Class, Policy};

/// Why a name was not resolved to an address that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the address {address} is {class} and may not be reached")]
pub(crate) struct Denied {
    pub(crate) address: std::net::IpAddr,
    pub(crate) class: Class,
}

/// The resolver of the operating system.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Lets only addresses through that may be reached. The connection is made to one of the addresses that were checked here,
/// so a name that resolves to another one a moment later gains nothing.
pub(crate) struct Guarded {
    inner: Arc<dyn Resolve>,
    policy: Arc<Policy>,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Resolve>, policy: Arc<Policy>) -> Self {
        Self { inner, policy }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, policy) = (self.inner.resolve(name), self.policy.clone());
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await?.collect();
            if found.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            // One denied address condemns the name: mixed answers are a sign of an attack.
            for address in found.iter().map(SocketAddr::ip) {
                policy.check(address).map_err(|class| Denied { address, class })?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
