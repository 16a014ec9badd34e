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
    /// A part of it does not parse or has the wrong type.
    #[error("the configuration is not valid: {0}")]
    Invalid(String),
}

pub(crate) fn invalid(message: &str) -> ConfigError {
    ConfigError::Invalid(message.trim().to_owned())
}
