//! Configuration in layers: the compiled-in defaults, a TOML file, then environment and flags.

use crate::{
    address::{Address, AddressError},
    secret::Token,
    timing::Timing,
};
use clap::ValueEnum;
use serde::Deserialize;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Read when no other file is named, and then only if it exists.
pub const DEFAULT_PATH: &str = "/etc/signalbox/agent.toml";

const DEFAULTS: &str = include_str!("agent.default.toml");

/// How the agent talks to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// WebSocket, with long polling while that fails.
    Auto,
    /// WebSocket alone.
    Websocket,
    /// Long polling alone.
    Polling,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("The configuration file {0} cannot be read: {1}.")]
    Unreadable(PathBuf, io::Error),
    #[error("The configuration file {0} is not valid: {1}.")]
    Invalid(PathBuf, String),
    #[error("The configuration is not valid: {fault}.")]
    Value { key: String, fault: String },
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(
        "No agent token is configured: run 'signalbox-agent enroll', or set 'token' or SIGNALBOX_AGENT_TOKEN."
    )]
    NoToken,
    #[error("The agent token must be one word of visible characters.")]
    BadToken,
    #[error("No roots are configured: name at least one directory that transfers may use.")]
    NoRoots,
    #[error("'{key}' must be between {low} and {high}, not {value}.")]
    Range { key: &'static str, low: u64, high: u64, value: u64 },
    #[error("'reconnect_max_seconds' must not be less than 'reconnect_base_seconds'.")]
    ReconnectOrder,
}

/// The agent's settings, validated.
#[derive(Debug, Clone)]
pub struct Config {
    pub address: Address,
    pub token: Token,
    pub roots: Vec<PathBuf>,
    pub transport: Transport,
    pub parallel_files: usize,
    pub concurrent_transfers: usize,
    pub timing: Timing,
}

/// The settings as they stand in a file, before any check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    token: String,
    roots: Vec<PathBuf>,
    transport: Transport,
    parallel_files: u64,
    concurrent_transfers: u64,
    poll_timeout_seconds: u64,
    reconnect_base_seconds: u64,
    reconnect_max_seconds: u64,
    unauthorized_retry_seconds: u64,
    websocket_tries: u64,
    websocket_probe_seconds: u64,
    connect_timeout_seconds: u64,
    stall_timeout_seconds: u64,
    silence_timeout_seconds: u64,
}

impl Config {
    /// Puts the layers together: defaults, the file (`path`, or the default one when it exists), `overrides`.
    pub fn load(path: Option<&Path>, overrides: toml::Table) -> Result<Self, ConfigError> {
        let mut file = read_table(path)?;
        let mut table = file.clone();
        file.retain(|key, _| !overrides.contains_key(key));
        table.extend(overrides);
        Self::from_table(table).map_err(|error| match error {
            ConfigError::Value { key, fault } if key.is_empty() || file.contains_key(&key) => {
                ConfigError::Invalid(path.unwrap_or(Path::new(DEFAULT_PATH)).to_owned(), fault)
            }
            error => error,
        })
    }

    /// Checks settings, with the defaults for those that are not there.
    pub fn from_table(settings: toml::Table) -> Result<Self, ConfigError> {
        let mut table = defaults()?;
        table.extend(settings);
        let settings: Settings = table.try_into().map_err(wrong_type)?;
        settings.check()
    }
}

/// The settings of a file; empty if no file is named and the default one does not exist.
pub fn read_table(path: Option<&Path>) -> Result<toml::Table, ConfigError> {
    let file = path.unwrap_or(Path::new(DEFAULT_PATH));
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok(toml::Table::new());
        }
        Err(error) => return Err(ConfigError::Unreadable(file.to_owned(), error)),
    };
    parse(&text, file)
}

fn defaults() -> Result<toml::Table, ConfigError> {
    parse(DEFAULTS, Path::new("agent.default.toml"))
}

fn parse(text: &str, file: &Path) -> Result<toml::Table, ConfigError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        // `message()` leaves out the quoted line, which may hold the token.
        ConfigError::Invalid(file.to_owned(), format!("line {line}: {}", one_line(error.message())))
    })
}

/// The error without the value, which may be the token. It names an unknown key in its fault alone.
fn wrong_type(error: toml::de::Error) -> ConfigError {
    // The library has no other way to the key than its message.
    let shown = error.to_string();
    let key = shown.trim_end().rsplit_once("\nin `").and_then(|(_, key)| key.strip_suffix('`'));
    let fault = match error.message().rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => format!("expected {expected}"),
        _ => one_line(error.message()),
    };
    match key {
        Some(key) => ConfigError::Value { key: key.to_owned(), fault: format!("'{key}': {fault}") },
        None => ConfigError::Value { key: String::new(), fault },
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Settings {
    fn check(self) -> Result<Config, ConfigError> {
        let address = Address::parse(&self.url)?;
        if self.token.trim().is_empty() {
            return Err(ConfigError::NoToken);
        }
        let token = Token::new(&self.token).ok_or(ConfigError::BadToken)?;
        if self.roots.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        let timing = self.timing()?;
        Ok(Config {
            address,
            token,
            transport: self.transport,
            parallel_files: within("parallel_files", self.parallel_files, 1, 64)? as usize,
            concurrent_transfers: within("concurrent_transfers", self.concurrent_transfers, 1, 256)? as usize,
            roots: self.roots,
            timing,
        })
    }

    fn timing(&self) -> Result<Timing, ConfigError> {
        if self.reconnect_max_seconds < self.reconnect_base_seconds {
            return Err(ConfigError::ReconnectOrder);
        }
        let seconds = |key, value, high| within(key, value, 1, high).map(Duration::from_secs);
        Ok(Timing {
            poll: seconds("poll_timeout_seconds", self.poll_timeout_seconds, 120)?,
            reconnect_base: seconds("reconnect_base_seconds", self.reconnect_base_seconds, 3_600)?,
            reconnect_max: seconds("reconnect_max_seconds", self.reconnect_max_seconds, 3_600)?,
            unauthorized: seconds("unauthorized_retry_seconds", self.unauthorized_retry_seconds, 3_600)?,
            websocket_tries: within("websocket_tries", self.websocket_tries, 1, 100)? as u32,
            websocket_probe: seconds("websocket_probe_seconds", self.websocket_probe_seconds, 86_400)?,
            connect: seconds("connect_timeout_seconds", self.connect_timeout_seconds, 300)?,
            stall: seconds("stall_timeout_seconds", self.stall_timeout_seconds, 3_600)?,
            silence: seconds("silence_timeout_seconds", self.silence_timeout_seconds, 3_600)?,
            ..Timing::default()
        })
    }
}

fn within(key: &'static str, value: u64, low: u64, high: u64) -> Result<u64, ConfigError> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(ConfigError::Range { key, low, high, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(overrides: &str) -> Result<Config, ConfigError> {
        // A file of its own, so that an agent configured on this machine plays no part.
        Config::load(Some(Path::new("/dev/null")), toml::from_str(overrides).unwrap())
    }

    #[test]
    fn a_token_is_all_that_must_be_added_to_the_defaults() {
        let config = load("token = 'abc'").unwrap();
        assert_eq!(config.address.as_text(), "http://127.0.0.1:8080");
        assert_eq!((config.parallel_files, config.concurrent_transfers), (4, 8));
        assert_eq!(config.transport, Transport::Auto);
        assert_eq!(config.timing.silence, Duration::from_secs(30));
    }

    #[test]
    fn every_default_is_explained_by_a_comment() {
        let mut explained = false;
        for line in DEFAULTS.lines() {
            explained = line.starts_with('#') || (explained && !line.is_empty());
            assert!(explained || line.is_empty(), "no comment above: {line}");
        }
    }

    #[test]
    fn the_token_does_not_appear_in_debug_output() {
        let config = load("token = 'verysecret'").unwrap();
        assert!(!format!("{config:?}").contains("verysecret"));
    }

    #[test]
    fn faults_are_reported_in_one_sentence() {
        for (overrides, part) in [
            ("", "No agent token"),
            ("token = 'a b'", "one word"),
            ("token = 'a'\nroots = []", "No roots"),
            ("token = 'a'\nurl = 'h:1'", "must begin with http"),
            ("token = 'a'\nparallel_files = 0", "'parallel_files' must be between 1 and 64, not 0"),
            ("token = 'a'\npoll_timeout_seconds = 121", "between 1 and 120"),
            ("token = 'a'\nreconnect_base_seconds = 70", "must not be less"),
            ("token = 'a'\ntransport = 'pigeon'", "pigeon"),
            ("token = 'a'\nrootz = []", "rootz"),
        ] {
            let text = load(overrides).unwrap_err().to_string();
            assert!(text.contains(part), "{overrides}: {text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_fault_of_a_file_names_it_with_key_or_line_and_no_value() {
        let file = std::env::temp_dir().join(format!("signalbox-agent-{}.toml", std::process::id()));
        let error_of = |text: &str, overrides: &str| {
            std::fs::write(&file, text).unwrap();
            Config::load(Some(file.as_path()), toml::from_str(overrides).unwrap()).unwrap_err().to_string()
        };
        let name = file.to_str().unwrap();
        for (text, part) in [
            ("token = 98765432109", "'token': expected a string"),
            ("token = 'a'\nparallel_files = '98765432109'", "'parallel_files': expected u64"),
            ("token = 'a'\nrootz = ['98765432109']", "rootz"),
            ("url = 'http://a'\ntoken = a98765432109", "line 2: "),
        ] {
            let error = error_of(text, "");
            assert!(error.contains(name) && error.contains(part), "{error}");
            assert!(!error.contains("98765432109"), "{error}");
        }
        let error = error_of("url = 'http://a'\ntoken = 'a'", "url = 5");
        assert!(error.contains("'url'") && !error.contains(name), "{error}");
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_named_file_must_exist() {
        let error = Config::load(Some(Path::new("/nonexistent/agent.toml")), toml::Table::new()).unwrap_err();
        assert!(matches!(error, ConfigError::Unreadable(..)));
    }
}
