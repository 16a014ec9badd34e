//! Documents become text.
pub mod block;
pub mod cleanup;
pub mod layout;
pub mod options;
pub mod write;
