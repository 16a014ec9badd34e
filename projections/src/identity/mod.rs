//! Users, their sessions and their API tokens, as tables.

mod fold;
mod past;
pub mod queries;
mod rows;

pub use fold::{IdentityProjection, IdentityRows};
pub use rows::{ApiTokenRow, RemovedIdentityRow, SessionRow, UserRow};
