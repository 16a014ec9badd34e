//! Every route of the description against every kind of bad request. A route that is not in [`cases::case`] fails.

mod bodies;
mod cases;
mod credentials;
mod limits;
mod lists;
mod paths;
mod pointers;
mod policies;
mod repetition;
mod subjects;

pub use self::{cases::routes as all, subjects::Subjects};
use crate::harness::World;

/// One resource of each kind.
pub async fn subjects(world: &World) -> Subjects {
    Subjects::new(world).await
}
