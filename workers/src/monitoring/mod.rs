//! Datapoints as they grow old.

mod retention;

pub use self::retention::{Retention, oldest_kept, retention_entry};
