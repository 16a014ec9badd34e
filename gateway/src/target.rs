//! Addresses that users name.

use signalbox_config::Config;
use signalbox_domain::kernel::clean_text;
use signalbox_egress::{Policy, Target};

use crate::problem::Problem;

/// Longest address, in characters.
pub(crate) const MAX_LENGTH: usize = 2048;

/// The address in `field`, as it was given, and as it is read.
pub(crate) fn parsed(field: &str, url: &str) -> Result<(String, Target), Problem> {
    let url = clean_text(url, MAX_LENGTH).map_err(|error| Problem::field(field, error))?;
    // They are left out as the address is read, so that another one than the shown one would be requested.
    if url.contains(char::is_control) {
        return Err(Problem::field(field, "must not contain control characters, such as line breaks"));
    }
    let target = url.parse::<Target>().map_err(|error| Problem::field(field, error))?;
    Ok((url, target))
}

/// The address in `field`, as it was given, if it may be reached; and as it is read. Names are looked up, and looked at, when the
/// request is made.
pub(crate) fn reachable(config: &Config, field: &str, url: &str) -> Result<(String, Target), Problem> {
    reachable_from(config, field, url, false)
}

/// [`reachable`]; with `no_loopback` not the addresses of this machine itself, whatever networks are allowed.
pub(crate) fn reachable_from(
    config: &Config,
    field: &str,
    url: &str,
    no_loopback: bool,
) -> Result<(String, Target), Problem> {
    let (url, target) = parsed(field, url)?;
    let policy = Policy::allowing(&config.egress.allowed_networks);
    let policy = policy.map_err(|error| Problem::internal(&error))?;
    let policy = if no_loopback { policy.without_loopback() } else { policy };
    if target.literal().is_some_and(|address| policy.check(address).is_err()) {
        return Err(Problem::field(field, "must be an address of the public Internet"));
    }
    Ok((url, target))
}
