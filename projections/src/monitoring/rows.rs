use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::{
    kernel::{ChannelId, UserId},
    monitoring::{ChannelType, Labels},
};
use signalbox_from_row::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Word, table::ReadRow};

/// A channel. A deleted one stays as it was last, because its datapoints stay too.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ChannelRow {
    /// Key.
    pub id: ChannelId,
    /// The integer that stands for it in the datapoint log.
    pub number: i32,
    pub owner_id: UserId,
    /// Unique name.
    pub name: String,
    pub channel_type: Word<ChannelType>,
    /// Unit of its values.
    pub unit: Option<String>,
    /// Lower bound for displays.
    pub min_value: Option<f64>,
    /// Upper bound for displays.
    pub max_value: Option<f64>,
    /// Labels by key.
    pub labels: Json<Labels>,
    /// Free text of users.
    pub description: Option<String>,
    /// Days that its values are kept, in place of the general number; 0 for ever.
    pub retention_days: Option<i32>,
    /// Since when it takes no more values.
    pub deleted_at: Option<DateTime<Utc>>,
    /// Whether its datapoints were deleted with it.
    pub values_deleted: bool,
    /// Version of the aggregate.
    pub version: i64,
    /// Position of its newest event in the log.
    pub position: i64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for ChannelRow {
    const TABLE: &'static str = "channels";

    fn id(&self) -> Uuid {
        self.id.0
    }
}
