//! A whole system for benches and chaos: private servers, processes of our own programs, and a client.
//!
//! Everything it starts ends with its handle, and with this process, however that ends.

mod agent;
mod api;
mod cpu;
mod peers;
mod program;
mod servers;
mod signalbox;
mod wait;

pub use agent::AgentSettings;
pub use api::{AgentAccount, Api, Exchange};
pub use cpu::{own_seconds, seconds};
pub use peers::Peer;
pub use program::Program;
pub use servers::Servers;
pub use signalbox::{Role, Signalbox};
pub use signalbox_embedded::free_address;
pub use wait::{wait_for, wait_until};
