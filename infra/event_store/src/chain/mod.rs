//! Evidence of tampering: a chain of hashes beside the log.
//!
//! An event's hash covers the previous hash and all columns of the event. [`extend_chain`] follows the log and writes
//! hashes into `log_chain`, so that no append waits for it; [`verify_chain`] reads both again and reports the first
//! event that differs. A [`Head`] that was published before reveals a rewrite of log and chain together.

mod extend;
mod hash;
mod head;
mod verify;

pub use extend::{ChainError, extend_chain};
pub use hash::Hash;
pub use head::{Head, HeadError, SignedHead, chain_head};
pub use verify::{Fault, Verification, verify_chain};
