//! The domain of Signalbox: its commands, its events, and the decisions between them.
//!
//! Every aggregate is a [`kernel::Decider`]: a pure state machine that turns a command into events
//! (`decide`) and an event into the next state (`evolve`). There is no I/O, no clock and no randomness
//! here; times, ids and hashes arrive as values inside commands.
//!
//! The second level of modules repeats the contexts that every other layer has under the same names.

pub mod automation;
pub mod catalog;
pub mod extraction;
pub mod fleet;
pub mod identity;
pub mod kernel;
pub mod monitoring;
pub mod transfer;
