//! Datapoints as they grow old.

mod retention;

pub use self::retention::{Retention, removal_entry, retention_entry, rollup_entry};
