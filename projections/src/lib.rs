//! Read models: tables that are folded from the log and can be thrown away and rebuilt.
//!
//! A [`Projection`] folds a batch of events into rows; the [`Runner`] keeps the live tables up to date, and
//! [`rebuild()`] fills a second copy beside them, compares and swaps. Both use the same fold, so live and replay
//! cannot differ. The `queries` of each context are what gateway and workers read.

pub mod automation;
mod checkpoint;
mod contexts;
pub mod extraction;
pub mod fleet;
pub mod identity;
mod lack;
mod lease;
mod live;
mod lookup;
pub mod monitoring;
mod page;
mod projection;
mod rebuild;
pub mod register;
pub mod relay_checkpoint;
mod runner;
mod set_aside;
mod snapshot_holders;
mod standing;
mod table;
pub mod transfer;
mod withdrawals;
mod word;
mod write;

pub use checkpoint::{Progress, checkpoint, progress};
pub use contexts::{ProjectionVisitor, context_of, for_projection};
pub use lack::{Lack, lack, unapplied_streams};
pub use lease::{Lease, Leases};
pub use live::keep_up;
pub use lookup::Lookup;
pub use page::{Listed, Order, Page, SortField, Sorting};
pub use projection::{ApplyError, Poison, Projection, Rows};
pub use rebuild::{
    BatchSizes, RebuildError, RebuildReport, Watcher, compare, compare_watched, rebuild, rebuild_in,
    rebuild_watched,
};
pub use runner::{Runner, StepError};
pub use set_aside::{
    Retried, SetAside, begin_skipped, due_skipped, forget_skipped, is_set_aside, note_waiting,
    report_waiting, retry, retry_soon, set_aside_counts, set_aside_streams, skipping_followers,
};
pub use snapshot_holders::{OldestSnapshot, note_snapshot_holders, oldest_snapshot};
pub use standing::{LogLag, log_lags, positions, standing};
pub use table::ReadRow;
pub use withdrawals::withdrawing;
pub use word::{UnknownWord, Word, word};
