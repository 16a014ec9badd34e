use std::path::PathBuf;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML. The line is not quoted, because it may hold a secret.
    #[error("the configuration file {path} is not valid in line {line}: {fault}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Why.
        fault: String,
    },
    /// A setting does not exist, or its value cannot be used.
    #[error("the configuration is not valid: {0}")]
    Invalid(String),
}

pub(crate) fn invalid(message: &str) -> ConfigError {
    ConfigError::Invalid(message.trim().to_owned())
}

/// The path of the setting that `error` is about, e.g. `server.address`; empty for the whole document.
pub(crate) fn key_of(error: &toml::de::Error) -> String {
    // The library has no other way to the key than its message.
    let shown = error.to_string();
    let key = shown.trim_end().rsplit_once("\nin `").and_then(|(_, key)| key.strip_suffix('`'));
    key.unwrap_or_default().to_owned()
}

/// The fault that `error` is about, without the value, which may be a secret.
pub(crate) fn fault_of(error: &toml::de::Error) -> String {
    match error.message().rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => format!("expected {expected}"),
        _ => error.message().to_owned(),
    }
}
