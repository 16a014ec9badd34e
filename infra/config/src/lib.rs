//! Configuration: one struct per concern, all defaults in one commented TOML compiled in, a file and the environment
//! over them.

mod layers;
mod secret;
mod storage;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use toml::Value;

use layers::{merge, parse, set_from_environment};
pub use secret::Secret;
pub use storage::Storage;

const DEFAULTS: &str = include_str!("signalbox.default.toml");
const PREFIX: &str = "SIGNALBOX_";

/// The whole configuration.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The HTTP server.
    pub server: Server,
    /// Files on disk, and those that all machines share.
    pub storage: Storage,
    /// PostgreSQL.
    pub database: Database,
    /// NATS.
    pub nats: Nats,
    /// Logins and tokens.
    pub identity: Identity,
    /// Logins at an OpenID provider.
    pub sso: Sso,
    /// Rate limits.
    pub limits: Limits,
    /// File transfer.
    pub transfer: Transfer,
    /// Channels and datapoints.
    pub monitoring: Monitoring,
    /// Requests to addresses that users name.
    pub egress: Egress,
    /// Documents.
    pub extraction: Extraction,
    /// Packages of plugins.
    pub plugins: Plugins,
    /// Firmware updates.
    pub firmware: Firmware,
    /// What is logged.
    pub log: Log,
    /// Traces.
    pub telemetry: Telemetry,
}

/// The HTTP server.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// Peers whose X-Forwarded-For header is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// Web origins that may call the interface.
    pub cors_origins: Vec<String>,
    /// Seconds that requests may take to finish when the server stops.
    pub drain_seconds: u64,
    /// Where this process tells its numbers to whoever asks.
    #[serde(deserialize_with = "empty_is_none")]
    pub metrics_address: Option<SocketAddr>,
}

/// PostgreSQL.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Address, with password.
    pub url: Secret,
    /// Address of a replica that gateways read from, with password; empty for none.
    pub replica_url: Secret,
    /// Connections of this process at most.
    pub max_connections: u32,
}

/// NATS.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Address, with password; those of all servers of a cluster.
    pub url: Secret,
    /// Servers that keep a copy of each stream.
    pub replicas: usize,
}

/// Logins and tokens.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Issuer and audience in tokens.
    pub issuer: String,
    /// How long a login lasts, in hours.
    pub token_hours: u32,
    /// What newly made API tokens begin with.
    pub api_token_prefix: ApiTokenPrefix,
    /// Password hashes computed at the same time.
    pub concurrent_hashes: usize,
}

/// What an API token begins with, so that people and programs tell it from other credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum ApiTokenPrefix {
    /// `sb_`.
    #[serde(rename = "sb_")]
    Signalbox,
    /// `wm_`, as programs of the WebMACS family expect it.
    #[serde(rename = "wm_")]
    Webmacs,
}

impl ApiTokenPrefix {
    /// Every prefix that an API token may have.
    pub const ALL: [Self; 2] = [Self::Signalbox, Self::Webmacs];

    /// The prefix as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signalbox => "sb_",
            Self::Webmacs => "wm_",
        }
    }
}

/// Logins at an OpenID provider.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sso {
    /// The provider's issuer; empty for no single sign-on.
    pub issuer: String,
    /// What people call the provider.
    pub provider_name: String,
    /// This service as a client of the provider.
    pub client_id: String,
    /// Its secret; empty for a public client.
    pub client_secret: Secret,
    /// What the provider is asked for.
    pub scopes: String,
    /// Where browsers reach this service.
    pub public_url: String,
    /// Where browsers reach the front end; empty for the same place.
    pub frontend_url: String,
    /// Whether people get an account with their first login.
    pub create_users: bool,
    /// Role of such an account.
    pub default_role: SsoRole,
}

/// What somebody may do who comes from an OpenID provider for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SsoRole {
    /// Read.
    Viewer,
    /// Read and write.
    Operator,
}

/// Rate limits.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Of one user.
    pub requests_per_minute: u32,
    /// At once.
    pub request_burst: u32,
    /// Of one agent token.
    pub agent_requests_per_minute: u32,
    /// At once.
    pub agent_request_burst: u32,
    /// Of one credential, to record datapoints.
    pub ingest_requests_per_minute: u32,
    /// At once.
    pub ingest_request_burst: u32,
    /// Attempts per minute.
    pub logins_per_account: u32,
    /// Attempts per minute.
    pub logins_per_address: u32,
    /// Documents per minute of one address without a login.
    pub anonymous_extractions_per_minute: u32,
}

/// File transfer.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Seconds without progress before an absent agent's attempt is given up.
    pub stall_seconds: u32,
    /// Hours that staged bytes outlive their transfer.
    pub retention_hours: u32,
    /// Seconds by which a firing may be late.
    pub catch_up_seconds: u32,
}

/// Channels and datapoints.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Monitoring {
    /// Days that datapoints are kept; 0 for ever.
    pub retention_days: u32,
}

/// Requests to addresses that users name.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Egress {
    /// Networks that may be reached besides the public Internet.
    pub allowed_networks: Vec<String>,
}

/// Documents: who reads them, and what one of them may take.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Extraction {
    /// Whether a login or token is needed.
    pub require_auth: bool,
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Processes that parse; 0 for one per core.
    pub parsers: usize,
    /// Jobs that have not ended.
    pub max_open_jobs: u32,
    /// Hours that the text of a job is kept.
    pub result_hours: u32,
    /// Hours that the document of a job is kept after its end.
    pub input_hours: u32,
    /// Hours that a text answers for the same document; 0 for not at all.
    pub cache_hours: u32,
    /// Texts that do so, in MiB.
    pub cache_mb: u32,
    /// Seconds that a document may wait for one of them.
    pub patience_seconds: u64,
    /// Address space of such a process, in MiB.
    pub memory_mb: u64,
    /// Time on the processor for one document, in seconds.
    pub cpu_seconds: u64,
    /// Time on the clock for one document, in seconds.
    pub wall_seconds: u64,
    /// Pages of a document.
    pub max_pages: usize,
    /// Pixels of a picture, in millions.
    pub max_megapixels: u32,
    /// Path of libpdfium.so; empty to look for it.
    pub pdfium: String,
    /// Folder of Tesseract's language data; empty to look for it.
    pub tessdata: String,
    /// Address of an Apache Tika server; empty for none.
    pub tika_url: String,
    /// Seconds that Tika may take for a document.
    pub tika_seconds: u64,
    /// Address of Google Cloud Vision.
    pub google_vision_url: String,
    /// Its key; empty for none.
    pub google_vision_key: Secret,
    /// Seconds that it may take for a page.
    pub google_vision_seconds: u64,
    /// Address of an OpenAI-compatible service, up to and with its version; empty for none.
    pub llm_url: String,
    /// Its key, if it needs one.
    pub llm_key: Secret,
    /// The model that is asked.
    pub llm_model: String,
    /// Seconds that it may take for a piece of a document.
    pub llm_seconds: u64,
    /// Letters of such a piece, about: pieces end between blocks.
    pub llm_piece_letters: usize,
}

/// Packages of plugins.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plugins {
    /// The Python that looks at packages: a path, or a name to look for.
    pub python: String,
}

/// Firmware updates.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Firmware {
    /// The minisign key that bundles have to be signed with; empty for none.
    pub public_key: String,
    /// Largest bundle, in bytes.
    pub max_file_bytes: u64,
    /// Seconds that fetching a bundle may take.
    pub download_seconds: u64,
    /// The program that is run when another version has come into force; empty for none.
    pub hook: String,
    /// Seconds that it may take.
    pub hook_seconds: u64,
}

/// What is logged.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Filter as in `RUST_LOG`.
    pub filter: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Traces.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Address of an OTLP collector; empty for none.
    pub otlp_endpoint: String,
    /// Part of the traces begun here that is recorded.
    pub sample_ratio: f64,
}

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

impl Config {
    /// Defaults, then the file at `path`, then `environment`.
    ///
    /// # Errors
    /// [`ConfigError`] names the file or the key that is wrong.
    pub fn load(path: Option<&Path>, environment: &HashMap<String, String>) -> Result<Self, ConfigError> {
        let mut values = parse(DEFAULTS)?;
        if let Some(path) = path {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
            merge(&mut values, parse(&text)?);
        }
        // Names of our own last: they win over those that other programs know too.
        let (ours, shared): (Vec<_>, Vec<_>) =
            environment.iter().partition(|(name, _)| name.starts_with(PREFIX));
        for (name, value) in shared.into_iter().chain(ours) {
            set_from_environment(&mut values, name, value)?;
        }
        let config: Self =
            Value::Table(values).try_into().map_err(|error: toml::de::Error| invalid(error.message()))?;
        config.validate()
    }

    fn validate(self) -> Result<Self, ConfigError> {
        if self.database.max_connections < 4 {
            return Err(invalid("database.max_connections must be at least 4"));
        }
        if !matches!(self.nats.replicas, 1 | 3 | 5) {
            return Err(invalid("nats.replicas must be 1, 3 or 5: JetStream needs a majority to agree"));
        }
        if !self.extraction.llm_url.is_empty() && self.extraction.llm_model.is_empty() {
            return Err(invalid("extraction.llm_model must name a model when extraction.llm_url is set"));
        }
        self.storage.validate()?;
        let endpoint = &self.telemetry.otlp_endpoint;
        let is_http = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        if !endpoint.is_empty() && !is_http {
            return Err(invalid(
                "telemetry.otlp_endpoint must begin with http:// or https://; OTLP over gRPC is not spoken",
            ));
        }
        if !(0.0..=1.0).contains(&self.telemetry.sample_ratio) {
            return Err(invalid("telemetry.sample_ratio must be a number from 0 to 1"));
        }
        let positive = [
            ("identity.token_hours", self.identity.token_hours),
            ("limits.requests_per_minute", self.limits.requests_per_minute),
            ("limits.request_burst", self.limits.request_burst),
            ("limits.agent_requests_per_minute", self.limits.agent_requests_per_minute),
            ("limits.agent_request_burst", self.limits.agent_request_burst),
            ("limits.ingest_requests_per_minute", self.limits.ingest_requests_per_minute),
            ("limits.ingest_request_burst", self.limits.ingest_request_burst),
            ("limits.logins_per_account", self.limits.logins_per_account),
            ("limits.logins_per_address", self.limits.logins_per_address),
            ("limits.anonymous_extractions_per_minute", self.limits.anonymous_extractions_per_minute),
            ("extraction.max_megapixels", self.extraction.max_megapixels),
            ("extraction.max_open_jobs", self.extraction.max_open_jobs),
            ("extraction.result_hours", self.extraction.result_hours),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((key, _)) => Err(invalid(&format!("{key} must be at least 1"))),
            None => Ok(self),
        }
    }
}

fn empty_is_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}

fn invalid(message: &str) -> ConfigError {
    ConfigError::Invalid(message.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load(None, &environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_defaults_are_valid_and_every_key_has_a_comment() {
        assert_eq!(load(&[]).unwrap().server.address.port(), 8080);
        let lines: Vec<_> = DEFAULTS.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(" = ")) {
            let explained = line.starts_with('#')
                || lines[..index].iter().rev().take(2).any(|above| above.starts_with('#'));
            assert!(explained, "{line}");
        }
    }

    #[test]
    fn the_environment_wins() {
        let config = load(&[
            ("SIGNALBOX_SERVER__ADDRESS", "0.0.0.0:9000"),
            ("SIGNALBOX_SERVER__CORS_ORIGINS", "https://a, https://b"),
            ("DATABASE_URL", "postgres://x"),
        ])
        .unwrap();
        assert_eq!(config.server.address.port(), 9000);
        assert_eq!(config.server.cors_origins.len(), 2);
        assert_eq!(config.database.url.expose(), "postgres://x");
    }

    #[test]
    fn a_collector_is_found_by_the_name_that_all_programs_know_and_sooner_by_ours() {
        let shared = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://shared:4318");
        assert_eq!(load(&[shared]).unwrap().telemetry.otlp_endpoint, "http://shared:4318");
        let ours = ("SIGNALBOX_TELEMETRY__OTLP_ENDPOINT", "https://ours");
        assert_eq!(load(&[shared, ours]).unwrap().telemetry.otlp_endpoint, "https://ours");
        assert_eq!(
            load(&[("SIGNALBOX_TELEMETRY__SAMPLE_RATIO", "0.25")]).unwrap().telemetry.sample_ratio,
            0.25
        );
        for (key, wrong) in
            [("OTLP_ENDPOINT", "collector:4317"), ("SAMPLE_RATIO", "1.5"), ("SAMPLE_RATIO", "NaN")]
        {
            let error = load(&[(&format!("SIGNALBOX_TELEMETRY__{key}"), wrong)]).unwrap_err().to_string();
            assert!(error.contains(&format!("telemetry.{}", key.to_lowercase())), "{error}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_and_secrets_are_not_shown() {
        let error = load(&[("SIGNALBOX_SERVER__ADRESS", "x")]).unwrap_err().to_string();
        assert!(error.contains("SIGNALBOX_SERVER__ADRESS"), "{error}");
        assert!(load(&[("SIGNALBOX_LIMITS__REQUEST_BURST", "many")]).is_err());
        let shown = format!("{:?}", load(&[("NATS_URL", "nats://u:hidden@h")]).unwrap());
        assert!(!shown.contains("hidden"));
    }
}
