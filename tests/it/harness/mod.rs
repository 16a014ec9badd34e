//! A whole service in this process, its clients and its agents.

mod answer;
mod client;
mod conformance;
mod fileflux;
mod folder;
mod link;
mod plug;
mod plugin_controller;
mod real_agent;
mod real_gateway;
mod receiver;
mod service;
mod stand_in;
pub mod webmacs;
mod wheel;
mod world;

pub use answer::Answer;
pub use client::{Client, encode};
pub use conformance::description;
pub use fileflux::{FileFlux, Habits};
pub use folder::{Folder, bytes, sha256};
pub use link::Link;
pub use plug::Plug;
pub use plugin_controller::PluginController;
pub use real_agent::{RealAgent, Transport};
pub use real_gateway::RealGateway;
pub use receiver::{Got, Manner, Receiver};
pub use signalbox_test_support::{eventually, eventually_some, seconds};
pub use stand_in::{Reply, Seen, StandIn};
pub use wheel::Wheel;
pub use world::{ADMIN, AgentAccount, PASSWORD, World};
