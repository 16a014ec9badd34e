//! The only way out to an address that a user named (SSRF, server-side request forgery).
//!
//! A name is resolved once, every address is checked against the special ranges of RFC 6890, and the connection is made to
//! a checked address. No redirects, no proxies, no cookies; one limit of time until the head of the answer is there; of the body
//! of an answer to a POST no more is read than a connection needs to be used again. Networks that are not public can be allowed by configuration.
//!
//! It is not a client for addresses that the operator of the service configured (object storage, identity provider).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use signalbox_egress::{Egress, Policy};
//! let egress = Egress::new(Policy::allowing(&["10.1.0.0/16"])?)?;
//! let answer = egress.post(&"https://example.org/hook".parse()?, Default::default(), b"{}".to_vec()).await?;
//! # Ok(()) }
//! ```

mod class;
mod client;
mod policy;
mod resolver;
mod target;

pub use class::{Class, class_of};
pub use client::{Download, Egress, EgressError};
pub use policy::{InvalidNetwork, Policy};
pub use target::{InvalidTarget, Target};
