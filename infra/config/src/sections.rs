use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::Secret;

/// The HTTP server.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// Peers whose X-Forwarded-For header is believed.
    pub trusted_proxies: Vec<IpAddr>,
    /// Where browsers reach the console; links in messages start with it. Empty for `sso.public_url`.
    pub public_url: String,
    /// Web origins that may call the interface.
    pub cors_origins: Vec<String>,
    /// Time limit for running requests when the server stops, in seconds.
    pub drain_seconds: u64,
    /// Connections in all; 0 for three quarters of the limit of open files.
    pub max_connections: u32,
    /// Connections of one IPv4 address or IPv6 /64, trusted proxies apart.
    pub max_connections_per_address: u32,
    /// Connections of an address at which an agent is connected.
    pub max_connections_per_agent_address: u32,
    /// Seconds for the header of a request.
    pub header_seconds: u32,
    /// Seconds that a connection may stay without a request.
    pub idle_seconds: u32,
    /// Time limit without a byte of a body, in either direction, in seconds.
    pub stall_seconds: u32,
    /// Bytes a second that the body of a request must have on average; 0 for any. Agents are exempt.
    pub min_body_bytes_per_second: u32,
    /// Address of an endpoint for operators without authentication: metrics, liveness, readiness.
    #[serde(deserialize_with = "empty_is_none")]
    pub metrics_address: Option<SocketAddr>,
}

/// PostgreSQL.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Address, with password.
    pub url: Secret,
    /// Address of a replica for reads, with password; empty disables it.
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
    /// Open sockets and followers of the log, of one user at one gateway.
    pub sockets_per_user: u32,
    /// Messages that one socket of a user is read per second.
    pub socket_messages_per_second: u32,
    /// Queries of one user at the same time.
    pub reads_per_user: u32,
    /// Seconds of queries of one user in a second, on average; 0 for any number.
    pub read_seconds_per_user: u32,
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
    /// Days that aggregates per hour and day outlive their datapoints at most, by the day of arrival; 0 for ever.
    pub rollup_retention_days: u32,
}

/// Values that name their series by labels.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Whether channels are made for unknown series.
    pub create_channels: bool,
    /// Channels made this way at most.
    pub max_channels: u32,
}

/// Requests to addresses that users name.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Egress {
    /// Networks that may be reached besides the public Internet.
    pub allowed_networks: Vec<String>,
}

/// Deliveries of webhooks.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Webhooks {
    /// Requests in progress in the whole installation.
    pub concurrent_requests: u32,
    /// Requests in progress for one subscription.
    pub concurrent_per_subscription: u32,
}

/// The server that sends mails.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// Its name or address; empty for none.
    pub server: String,
    /// 0 for the usual one.
    pub port: u16,
    pub security: MailSecurity,
    /// Empty for a server that asks for no login.
    pub username: String,
    pub password: Secret,
    /// The sender of all mails, with or without a name.
    pub sender: String,
    /// A certificate (PEM) that is trusted besides those of the system; empty for none.
    pub ca_file: PathBuf,
}

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// Before anything is sent, after a greeting in clear; without it nothing is sent.
    Starttls,
    /// From the beginning.
    Tls,
    None,
}

/// Packages of plugins.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plugins {
    /// The Python that examines packages: a path, or a name to search for.
    pub python: String,
}

/// Processes that parse untrusted input.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Whether plugins and documents of anonymous callers are examined on a kernel that cannot confine them.
    pub allow_unconfined: bool,
}

/// Firmware updates.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Firmware {
    /// The minisign key of signed bundles; empty accepts unsigned ones.
    pub public_key: String,
    /// Largest bundle, in bytes.
    pub max_file_bytes: u64,
    /// Time limit for fetching a bundle, in seconds.
    pub download_seconds: u64,
    /// The program that is run when another version has come into force; empty disables it.
    pub hook: String,
    /// Its time limit, in seconds.
    pub hook_seconds: u64,
}

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
    /// Address of an OTLP collector; empty disables tracing.
    pub otlp_endpoint: String,
    /// Part of the traces begun here that is recorded.
    pub sample_ratio: f64,
}

fn empty_is_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}
