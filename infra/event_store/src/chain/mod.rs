//! Evidence of tampering: a chain of hashes beside the log.
//!
//! The hash of an event is made of the hash of the one before and of all columns of the event. [`extend_chain`] follows the
//! log and writes them into `log_chain`, so that no append waits for it; [`verify_chain`] reads both again and names the first event
//! that is not as it was. Whoever rewrites log and chain together is caught by a [`Head`] that was published before.

mod extend;
mod hash;
mod head;
mod verify;

pub use extend::{ChainError, extend_chain};
pub use hash::Hash;
pub use head::{Head, HeadError, SignedHead, chain_head};
pub use verify::{Fault, Verification, verify_chain};
