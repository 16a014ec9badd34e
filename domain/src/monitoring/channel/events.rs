use serde::{Deserialize, Serialize};

use super::{ChannelChanges, ChannelSpec, NewChannel};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ChannelCommand {
    /// Create the channel.
    Create(NewChannel),
    /// Change its settings.
    Change(ChannelChanges),
    /// Remove it.
    Delete {
        /// Whether its datapoints go with it; otherwise they stay.
        #[serde(default)]
        values: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChannelEvent {
    /// A channel exists now.
    ChannelCreated(NewChannel),
    /// Its settings were changed.
    ChannelUpdated {
        /// Before.
        from: ChannelSpec,
        /// Now.
        to: ChannelSpec,
    },
    /// The channel takes no more values.
    ChannelDeleted {
        /// Its name, which is free again.
        name: String,
        /// Whether its datapoints are removed, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        values: bool,
    },
}

event_kinds!(ChannelEvent, ChannelEventKind {
    // Since version 2, a channel may have labels and a description; since version 3, a retention time of its own.
    ChannelCreated = "channel_created", "3";
    ChannelUpdated = "channel_updated", "3";
    // Since version 2, the datapoints of a channel may go with it.
    ChannelDeleted = "channel_deleted", "2";
});
