//! Async functions that are compiled once.
//!
//! The body of an `async fn` is a type that every crate which awaits it compiles again, with all bodies that it awaits itself.
//! A public function that returns a boxed future is compiled where it is written. The price is one allocation a call, which
//! is small beside a query or a message.

pub use async_recursion::async_recursion as boxed;
