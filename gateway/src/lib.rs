//! The way in: HTTP, WebSocket and long polling become commands on the bus; read models become answers.
//!
//! A gateway holds no state that another one lacks, but for caches and notes of some seconds. Any number
//! of them may run behind any load balancer.

mod auth;
mod automation;
mod change;
mod changes;
mod context;
mod context_services;
mod existence;
mod extraction;
mod first_admin;
mod fleet;
mod health;
mod history;
mod http;
mod idempotency;
mod identity;
mod incomplete;
mod metrics;
mod monitoring;
mod openapi;
mod past;
mod register;
mod replica;
mod resource;
mod resumed;
mod revocation;
mod routes;
mod serve;
mod services;
mod staged;
mod state;
mod target;
mod tasks;
mod throttle;
mod transfer;
mod watching;
mod words;

use self::{
    http::{
        answer, blobs, client_address, connections, extract, form, headers, network, paths, policy, problem,
        settings,
    },
    services::{consistency, limits, open_sockets, readiness, shares},
};
pub use auth::{
    DerivedTokens, HashError, Passwords, WeakPassword, check_new_password, derived_tokens, new_api_token,
    rotate as rotate_signing_key,
};
pub use automation::webhook_event_schemas;
pub use first_admin::{FirstAdmin, FirstAdminError, NewAdmin, ensure_admin};
pub use metrics::{Operations, serve_operations};
pub use openapi::{openapi, policies};
pub use policy::{Policy, RateClass, Repetition};
pub use problem::Dialect;
pub use readiness::Readiness;
pub use register::LogEventOut;
pub use routes::RoutePolicy;
pub use serve::{Gateway, GatewayError, Pages, SandboxedParsers};
pub use services::replica::FRESH;
