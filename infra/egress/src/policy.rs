use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Class, class_of};

/// Which addresses may be reached: those of the public Internet, and networks that the operator of the service names.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    allowed: Vec<IpNet>,
    no_loopback: bool,
}

/// A text that names no network.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not a network: write it like 10.1.0.0/16, 192.168.7.9 or fd00::/8")]
pub struct InvalidNetwork(String);

impl Policy {
    /// The public Internet and `networks`, each an address or a prefix with its length.
    ///
    /// # Errors
    /// [`InvalidNetwork`] names the text that does not parse.
    pub fn allowing<T: AsRef<str>>(networks: &[T]) -> Result<Self, InvalidNetwork> {
        let parse = |text: &str| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or_else(|_| address()).map_err(|_| InvalidNetwork(text.to_owned()))
        };
        let allowed = networks.iter().map(|text| parse(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { allowed, no_loopback: false })
    }

    /// The same without the addresses of this machine itself, whatever networks are allowed.
    #[must_use]
    pub fn without_loopback(self) -> Self {
        Self { no_loopback: true, ..self }
    }

    /// Whether `address` may be reached.
    ///
    /// # Errors
    /// The class for which it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Class> {
        // `::ffff:127.0.0.1` is the same machine as `127.0.0.1`, and allowed or not with it.
        let address = address.to_canonical();
        // Linux takes 0.0.0.0 and :: for this machine, too.
        if self.no_loopback && (address.is_loopback() || address.is_unspecified()) {
            return Err(Class::Loopback);
        }
        if self.allowed.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        class_of(address).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_allowed_and_nothing_beside_it() {
        let policy = Policy::allowing(&["127.0.0.0/8", "::1", "10.1.0.0/16", "192.168.7.9"]).unwrap();
        for allowed in
            ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1", "10.1.255.255", "192.168.7.9", "8.8.8.8"]
        {
            assert_eq!(policy.check(allowed.parse().unwrap()), Ok(()), "{allowed}");
        }
        for denied in ["10.2.0.0", "192.168.7.8", "169.254.169.254", "64:ff9b::127.0.0.1", "fd00::1"] {
            assert!(policy.check(denied.parse().unwrap()).is_err(), "{denied}");
        }
    }

    #[test]
    fn loopback_can_be_excepted_from_what_is_allowed() {
        let policy =
            Policy::allowing(&["127.0.0.0/8", "0.0.0.0/32", "10.1.0.0/16"]).unwrap().without_loopback();
        assert_eq!(policy.check("10.1.2.3".parse().unwrap()), Ok(()));
        for denied in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert_eq!(policy.check(denied.parse().unwrap()), Err(Class::Loopback), "{denied}");
        }
    }

    #[test]
    fn a_network_that_does_not_parse_is_named() {
        for wrong in ["", "localhost", "10.0.0.0/33", "10.0.0"] {
            let error = Policy::allowing(&[wrong]).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{wrong}\"")), "{error}");
        }
    }
}
