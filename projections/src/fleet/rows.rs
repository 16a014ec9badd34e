use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::{
    fleet::{Direction, InstanceConfig, InstanceStatus, PluginClass},
    kernel::{ChannelId, MappingId, UserId},
};
use signalbox_from_row::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Word, table::ReadRow};

/// An installed package.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct PackageRow {
    /// Key, of its wheel in the blob store too.
    pub id: Uuid,
    /// The user who uploaded it.
    pub owner_id: UserId,
    /// Name of the distribution.
    pub name: String,
    /// Version of the distribution.
    pub package_version: String,
    /// File name of the wheel.
    pub file_name: String,
    /// Size of the wheel in bytes.
    pub size: i64,
    /// Digest of the wheel.
    pub sha256: String,
    /// The plugin classes found in the wheel.
    pub classes: Json<Vec<PluginClass>>,
    /// Position of its installation in the log.
    pub position: i64,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was installed.
    pub created_at: DateTime<Utc>,
}

impl ReadRow for PackageRow {
    const TABLE: &'static str = "plugin_packages";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// A plugin instance, without its mappings.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct InstanceRow {
    /// Key.
    pub id: Uuid,
    pub owner_id: UserId,
    /// Id of its class, which may have been uninstalled since.
    pub plugin_id: String,
    /// Display name.
    pub name: String,
    /// Whether its values are simulated.
    pub demo_mode: bool,
    /// Whether a controller is to run it.
    pub enabled: bool,
    /// How the device is reached, and the like.
    pub config: Option<Json<InstanceConfig>>,
    /// As it was last reported.
    pub status: Word<InstanceStatus>,
    /// The fault reported then.
    pub error: Option<String>,
    /// Version of the aggregate, which changes with its mappings too.
    pub version: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When people last changed it.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for InstanceRow {
    const TABLE: &'static str = "plugin_instances";

    fn id(&self) -> Uuid {
        self.id
    }
}

/// A channel of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct MappingRow {
    /// Key.
    pub id: MappingId,
    pub instance_id: Uuid,
    /// Position of its making in the log.
    pub position: i64,
    /// The plugin's own key for the channel.
    pub channel_id: String,
    /// Display name.
    pub channel_name: String,
    pub direction: Word<Direction>,
    /// Unit of its values; may be empty.
    pub unit: String,
    /// The linked channel of the service.
    pub event_id: Option<ChannelId>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl ReadRow for MappingRow {
    const TABLE: &'static str = "channel_mappings";

    fn id(&self) -> Uuid {
        self.id.0
    }
}
