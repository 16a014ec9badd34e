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
    /// Remove it; its datapoints stay.
    Delete,
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
    },
}

event_kinds!(ChannelEvent, ChannelEventKind {
    // Since version 2, a channel may have labels and a description; since version 3, a retention time of its own.
    ChannelCreated = "channel_created", "3";
    ChannelUpdated = "channel_updated", "3";
    ChannelDeleted = "channel_deleted", "1";
});
