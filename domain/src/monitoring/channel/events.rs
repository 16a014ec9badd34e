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
    Delete {
        /// Whether its datapoints go with it, as gateways of the release before ask for it.
        #[serde(default)]
        values: bool,
    },
    /// Remove its datapoints, and the channel first if it still exists. A word of its own: handlers of older releases ignore a
    /// field that they do not know, and would report a removal of which they did half.
    DeleteValues,
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
        /// Whether its datapoints are removed, too. Written by one release only, see [`Self::ChannelValuesDeleted`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        values: bool,
    },
    /// The datapoints of the channel, which was deleted, are removed. A kind of its own: projections of older releases set it aside
    /// in place of folding half of it.
    ChannelValuesDeleted,
}

event_kinds!(ChannelEvent, ChannelEventKind {
    // Since version 2, a channel may have labels and a description; since version 3, a retention time of its own.
    ChannelCreated = "channel_created", "3";
    ChannelUpdated = "channel_updated", "3";
    // Since version 2, the datapoints of a channel may go with it.
    ChannelDeleted = "channel_deleted", "2";
    ChannelValuesDeleted = "channel_values_deleted", "1";
});
