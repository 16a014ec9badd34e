//! Channels that values come in on. The specification calls a channel an "event"; here that word means a domain event.

mod channel;

pub use channel::{
    Channel, ChannelChanges, ChannelCommand, ChannelEvent, ChannelSpec, ChannelType, NewChannel,
};
