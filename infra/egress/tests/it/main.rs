//! The client against receivers and a DNS server that mean no good.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod answers;
mod dns;
mod names;
mod receiver;
