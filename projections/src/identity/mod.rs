//! Users and their sessions, as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::{IdentityProjection, IdentityRows};
pub use rows::{SessionRow, UserRow};
