//! A whole service in this process, its clients and its agents.

mod answer;
mod browser;
mod bucket;
mod bundle;
mod client;
mod collector;
mod command;
mod conformance;
mod event_stream;
mod examples;
mod fileflux;
mod folder;
mod link;
mod lost_answers;
mod mail_server;
mod normal;
mod openid_provider;
mod plug;
mod plugin_controller;
mod prometheus;
pub mod promtool;
mod read_models;
mod real_agent;
mod real_gateway;
mod receiver;
mod reference_receiver;
mod separate;
mod service;
mod settings;
mod stand_in;
mod victim;
mod victoria_metrics;
pub mod webmacs;
mod wheel;
mod worker_process;
mod world;

use signalbox_test_support::Setup;

pub use answer::Answer;
pub use browser::Browser;
pub use bucket::{in_bucket, segments};
pub use bundle::{Bundle, SigningKey};
pub use client::{Client, encode};
pub use collector::{Collector, Spanned};
pub use command::signalbox;
pub use conformance::{description, validator};
pub use event_stream::EventStream;
pub use fileflux::{FileFlux, Habits};
pub use folder::{Folder, bytes, sha256};
pub use link::Link;
pub use lost_answers::LostAnswers;
pub use mail_server::{MailServer, Reaction};
pub use openid_provider::{OpenIdProvider, Surfer};
pub use plug::Plug;
pub use plugin_controller::PluginController;
pub use prometheus::Prometheus;
pub use read_models::ReadModels;
pub use real_agent::{RealAgent, Transport};
pub use real_gateway::RealGateway;
pub use receiver::{Behaviour, Got, Receiver};
pub use reference_receiver::{ReferenceReceiver, Report};
pub use separate::Separate;
pub use settings::program;
pub use signalbox_test_support::{eventually, eventually_some, seconds};
pub use stand_in::{Reply, Seen, StandIn};
pub use victim::{Victim, VictimGateway, VictimKind};
pub use victoria_metrics::VictoriaMetrics;
pub use wheel::Wheel;
pub use worker_process::WorkerProcess;
pub use world::{ADMIN, AgentAccount, PASSWORD, World};

/// Whether what happened `times` was done once, or again because one who did it was killed.
pub fn is_once(times: u64) -> bool {
    times == 1 || times > 1 && Setup::of_this_run().kills().is_some()
}
