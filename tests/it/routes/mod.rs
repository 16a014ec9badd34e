//! Every route of the description against every kind of bad request. A route that is not in [`cases::case`] fails.

mod bodies;
mod cases;
mod credentials;
mod paths;

pub use self::cases::{Subjects, routes as all};
use crate::harness::World;

/// One resource of each kind.
pub async fn subjects(world: &World) -> Subjects {
    Subjects::new(world).await
}
