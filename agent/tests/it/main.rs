//! The agent against a stand-in gateway that is strict about the protocol.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod cancelling;
mod confinement;
mod connecting;
mod downloading;
mod enrolling;
mod folder;
mod gateway;
mod gateway_files;
mod gateway_mail;
mod harness;
mod proxy;
mod redelivery;
mod resuming;
mod trees;
mod uploading;
