//! Users and their sessions, as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::IdentityProjection;
pub use rows::{SessionRow, UserRow};
