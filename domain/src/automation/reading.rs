use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::kernel::ChannelId;

/// Where a datapoint is in the datapoint log; the order is the order of commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatapointPlace {
    /// Position of its row.
    #[serde(rename = "datapoint_position")]
    pub position: i64,
    /// Place within the row.
    #[serde(rename = "datapoint_index")]
    pub index: u32,
}

impl DatapointPlace {
    /// The end of the row at `position`, behind all of its points.
    pub fn end_of(position: i64) -> Self {
        Self { position, index: i32::MAX as u32 }
    }
}

/// A value that came in on a channel, with what its receivers want to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The datapoint's public id.
    pub datapoint_id: String,
    /// Where it is in the log.
    #[serde(flatten)]
    pub place: DatapointPlace,
    /// Its channel.
    pub channel_id: ChannelId,
    /// The channel's name at that time.
    pub channel_name: String,
    /// What was measured.
    pub value: f64,
    /// Who sent it: the name of an API token, or `api`.
    pub device: String,
    /// When it came in.
    pub occurred_at: DateTime<Utc>,
}
