//! The service from outside: real servers, real agents, HTTP, WebSocket and long polling. The modules follow the
//! paths of the interface.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers fail the test")]

mod api;
mod command_line;
mod console;
mod demo_plant;
mod doctor_command;
mod extract_command;
mod generated_clients;
mod harness;
mod language_model;
mod log_command;
mod routes;
mod traces;
mod user_command;
