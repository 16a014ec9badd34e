//! Read models: tables that are folded from the log and can be thrown away and rebuilt.
//!
//! A [`Projection`] folds a batch of events into rows; the [`Runner`] keeps the live tables up to date, and
//! [`rebuild()`] fills a second copy beside them, compares and swaps. Both use the same fold, so live and replay
//! cannot differ. The `queries` of each context are what gateway and workers read.

pub mod automation;
mod contexts;
pub mod extraction;
pub mod fleet;
pub mod identity;
mod lease;
mod live;
mod lookup;
pub mod monitoring;
mod page;
mod projection;
mod rebuild;
pub mod register;
mod runner;
mod standing;
mod table;
pub mod transfer;
mod write;

pub use contexts::context_of;
pub use lease::{Lease, Leases};
pub use live::keep_up;
pub use lookup::Lookup;
pub use page::Page;
pub use projection::{ApplyError, Poison, Projection, Rows};
pub use rebuild::{
    Portions, RebuildError, RebuildReport, Watcher, compare, compare_watched, rebuild, rebuild_in,
    rebuild_watched,
};
pub use runner::{Runner, StepError, checkpoint};
pub use standing::standing;
pub use table::ReadRow;
