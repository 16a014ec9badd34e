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
    /// The end of the row at `position`, after all of its points.
    pub fn end_of(position: i64) -> Self {
        Self { position, index: i32::MAX as u32 }
    }
}

/// A value that arrived on a channel, with the context that receivers need.
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
    pub value: f64,
    /// Sender of the value: the name of an API token, or `api`.
    pub device: String,
    /// Time of arrival.
    pub occurred_at: DateTime<Utc>,
}
