//! Classifies a connection failure by the chain of an error's causes.

use std::{error::Error, fmt, io};

/// The usual reasons, each with its own remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    Resolve,
    Refused,
    Unroutable,
    Tls,
    Timeout,
    Other,
}

impl ConnectFailure {
    /// The first known reason among `error` and its causes.
    pub fn find(error: &(dyn Error + 'static)) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(found) = Self::of(error) {
                return found;
            }
            cause = error.source();
        }
        Self::Other
    }

    fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        if error.is::<rustls::Error>() {
            return Some(Self::Tls);
        }
        let text = error.to_string();
        // Neither the standard library nor the HTTP client has a kind of its own for names that do not resolve.
        if text.contains("dns error") || text.contains("failed to lookup address") {
            return Some(Self::Resolve);
        }
        let io = error.downcast_ref::<io::Error>()?;
        // An I/O error may wrap a more specific one, and `source` skips the wrapped error.
        let wrapped = io.get_ref().map(|inner| Self::find(inner)).filter(|found| *found != Self::Other);
        if wrapped.is_some() {
            return wrapped;
        }
        match io.kind() {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::TimedOut => Some(Self::Timeout),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some(Self::Unroutable),
            _ => None,
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Resolve => "the host name cannot be resolved",
            Self::Refused => "the connection was refused (is the gateway running, is the port right?)",
            Self::Unroutable => "there is no route to the host",
            Self::Tls => {
                "the TLS handshake failed (is the certificate valid and trusted, is it really https?)"
            }
            Self::Timeout => "the connection timed out",
            Self::Other => "the connection failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_reason_is_found_below_other_errors() {
        let refused = Outer(io::ErrorKind::ConnectionRefused.into());
        assert_eq!(ConnectFailure::find(&refused), ConnectFailure::Refused);
        let tls = Outer(io::Error::other(rustls::Error::DecryptError));
        assert_eq!(ConnectFailure::find(&tls), ConnectFailure::Tls);
        assert_eq!(ConnectFailure::find(&Outer(io::Error::other("?"))), ConnectFailure::Other);
    }
}
