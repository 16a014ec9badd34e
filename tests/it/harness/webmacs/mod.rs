//! Stand-ins for clients of the WebMACS family: a controller, a browser that shows live values, and the load test.
//! They read answers as strictly as the originals, send what those send, and note what would have broken one of them;
//! a test fails on any complaint.

mod browser;
mod controller;
mod load_test;
mod strict;

pub use browser::Browser;
pub use controller::{Account, Controller, Telemetry};
pub use load_test::LoadTest;
