//! Sizes from the environment.

use std::env;

use anyhow::Context as _;

/// The number in the environment variable `name`, or `default`.
pub fn of(name: &str, default: u64) -> anyhow::Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}
