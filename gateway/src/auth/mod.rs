//! Authentication of requests: users by JWT or API token, agents by token.

mod agent;
mod charge;
mod extractors;

pub(crate) use extractors::{Admin, Reader, Writer, presented};

pub use crate::services::auth::*;
