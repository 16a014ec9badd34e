//! The way in: HTTP, WebSocket and long polling become commands on the bus; read models become answers.
//!
//! A gateway holds no state that another one lacks: what it remembers, it remembers for less than a second. Any number
//! of them may run behind any load balancer.

mod answer;
mod auth;
mod automation;
mod blobs;
mod client_address;
mod consistency;
mod context;
mod docs;
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
mod limits;
mod metrics;
mod monitoring;
mod past;
mod problem;
mod register;
mod replica;
mod serve;
mod staged;
mod state;
mod target;
mod tasks;
mod throttle;
mod transfer;

pub use auth::{HashError, Passwords, new_api_token, rotate as rotate_signing_key};
pub use docs::openapi;
pub use first_admin::{FirstAdmin, FirstAdminError, ensure_admin};
pub use metrics::serve_metrics;
pub use register::LogEventOut;
pub use replica::FRESH;
pub use serve::{Gateway, GatewayError, Inspectors};
