//! Configuration: one struct per concern, all defaults in one commented TOML compiled in, a file and the environment
//! over them.

mod error;
mod extraction;
mod identity;
mod layers;
mod load;
mod ranges;
mod secret;
mod sections;
mod sources;
mod storage;

use serde::{Deserialize, Serialize};

pub use error::ConfigError;
pub use extraction::Extraction;
pub use identity::{ApiTokenPrefix, Identity, Sso, SsoRole};
pub use secret::Secret;
pub use sections::{
    Database, Egress, Firmware, Ingest, Limits, Log, LogFormat, Mail, MailSecurity, Monitoring, Nats,
    Plugins, Sandbox, Server, Telemetry, Transfer, Webhooks,
};
pub use storage::Storage;

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
    /// Values that name their series by labels.
    pub ingest: Ingest,
    /// Deliveries of webhooks.
    pub webhooks: Webhooks,
    /// Messages to contacts by mail.
    pub mail: Mail,
    /// Requests to addresses that users name.
    pub egress: Egress,
    /// Documents.
    pub extraction: Extraction,
    /// Packages of plugins.
    pub plugins: Plugins,
    /// Processes that parse untrusted input.
    pub sandbox: Sandbox,
    /// Firmware updates.
    pub firmware: Firmware,
    pub log: Log,
    /// Traces.
    pub telemetry: Telemetry,
}
