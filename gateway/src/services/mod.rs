//! Services that handlers share through the state: made of pools, clocks and the bus. None of them takes the state, and none
//! knows how a request arrives.

pub(crate) mod agent_keys;
pub(crate) mod agent_work;
pub(crate) mod auth;
pub(crate) mod backtests;
pub(crate) mod catalog;
pub(crate) mod changes;
pub(crate) mod commands;
pub(crate) mod consistency;
pub(crate) mod failed_logins;
pub(crate) mod known_series;
pub(crate) mod limits;
pub(crate) mod live_agents;
pub(crate) mod live_values;
pub(crate) mod living_channels;
pub(crate) mod open_sockets;
pub(crate) mod pulse;
pub(crate) mod readiness;
pub(crate) mod replica;
pub(crate) mod series_ids;
pub(crate) mod shared_work;
pub(crate) mod shares;
pub(crate) mod sso;
pub(crate) mod wheels;
