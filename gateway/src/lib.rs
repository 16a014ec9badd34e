//! The way in: HTTP, WebSocket and long polling become commands on the bus; read models become answers.
//!
//! A gateway holds no state that another one lacks: what it remembers, it remembers for less than a second. Any number
//! of them may run behind any load balancer.

mod answer;
mod auth;
mod automation;
mod blobs;
mod changes;
mod client_address;
mod connections;
mod consistency;
mod context;
mod existence;
mod extract;
mod extraction;
mod first_admin;
mod fleet;
mod form;
mod headers;
mod health;
mod history;
mod idempotency;
mod identity;
mod incomplete;
mod limits;
mod metrics;
mod monitoring;
mod openapi;
mod past;
mod paths;
mod policy;
mod problem;
mod readiness;
mod register;
mod replica;
mod revocation;
mod serve;
mod shares;
mod staged;
mod state;
mod target;
mod tasks;
mod throttle;
mod transfer;

pub use auth::{
    DerivedTokens, HashError, Passwords, SigningKey, WeakPassword, check_new_password, derived_tokens,
    new_api_token, rotate as rotate_signing_key, signing_keys,
};
pub use first_admin::{FirstAdmin, FirstAdminError, NewAdmin, ensure_admin};
pub use metrics::{Operations, serve_operations};
pub use openapi::openapi;
pub use readiness::Readiness;
pub use register::LogEventOut;
pub use replica::FRESH;
pub use serve::{Gateway, GatewayError, Pages, SandboxedParsers};
