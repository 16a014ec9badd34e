//! Datapoints as chunks: points of one channel and one hour, folded from the datapoint log.
//!
//! [`Folder`] keeps the live chunks up to date; queries read chunks and the tail of the log that is not folded yet in one
//! snapshot, so they are never stale. [`rebuild_series`] folds the log again beside the live chunks, compares and swaps.
//! A row of a chunk is merged with its neighbours as they grow, so an hour has a few rows, and each point is rewritten a
//! few times. Large rows carry samples of 8 and 64 parts, so that a long window costs what it returns.

mod batch;
mod buckets;
mod chunk;
mod columns;
mod current;
mod cut_hours;
mod export;
mod fold;
mod follow;
mod hours;
mod incomplete;
mod kept;
mod latest;
mod list;
mod overdue;
mod own_numbers;
mod packing;
mod packs;
mod points;
mod ranked;
mod rebuild;
mod recorded;
mod removal;
mod retention;
mod rollups;
mod snapshot;
mod summary;
mod thin;
mod window;

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, Place, moment};

pub use buckets::{Bucket, BucketWindow, buckets};
pub use export::{Export, ExportSpan};
pub use follow::{FoldStep, Folder};
pub use incomplete::{Counts, counting, counting_skipped, note_skipped};
pub use kept::{Removal, drop_old_rollups, old_rollup_days};
pub use latest::{last_time, latest, newest_until};
pub use list::{ListFilter, Listed, list};
pub use overdue::{Overdue, next_run, oldest_kept, overdue};
pub use points::{all_points, count_points, count_points_by_hour};
pub use rebuild::{SeriesReport, compare_series_watched, rebuild_series, rebuild_series_watched};
pub use recorded::recorded;
pub use removal::{continue_removal, record_removals, remove_deleted};
pub use retention::{DroppedDays, LoggedDay, days_before, drop_in_turn, drop_old_days, is_turn};
pub use summary::{Figures, Summary};
pub use window::{Aggregate, Window, series};

/// A point of a channel with its place in the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Datapoint {
    /// The channel's integer.
    pub channel: i32,
    /// Day of its row in the log.
    pub day: NaiveDate,
    /// Time, value and place.
    pub point: ChunkPoint,
}

impl Datapoint {
    /// Where it is in the log; its public id follows from this.
    pub fn place(&self) -> Place {
        Place { day: self.day, position: self.point.position, index: self.point.index }
    }
}

/// Why datapoints cannot be read or folded.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// The database refused or did not answer.
    #[error("datapoints cannot be read or written: {0}")]
    Database(#[from] sqlx::Error),
    /// Another process has folded meanwhile.
    #[error("another process folds datapoints")]
    Overtaken,
    /// The log skips a position, which appends never cause.
    #[error("the datapoint log has a gap: position {after} is followed by {found}")]
    Gap {
        /// Position read last.
        after: i64,
        /// Position found next.
        found: i64,
    },
    /// A rebuild would bring back what is removed meanwhile.
    #[error("datapoints are being rebuilt")]
    Rebuilding,
    /// Numbers of days that channels have of their own may be other ones.
    #[error(
        "the read model `monitoring` does not show all events yet, so it is not known how long they keep their datapoints: wait \
         until it has caught up, see `signalbox projections status`, then try again"
    )]
    ChannelsBehind,
    /// The same, until its cause is removed.
    #[error(
        "events are set aside, so it is not known how long they keep their datapoints: `signalbox projections poison list` shows why"
    )]
    ChannelsSetAside,
    /// More points are pending than a query may fold by itself.
    #[error("{0} datapoints are not folded yet")]
    Behind(i64),
}

/// Microseconds of an hour.
pub(crate) const HOUR: i64 = 3_600_000_000;
/// Hours of a day.
const DAY: i32 = 24;

/// The first day of the log that may hold points measured at `time` or later. Points are measured no later than ten
/// minutes after their arrival, by the clock of a gateway; the clock that names the day may be a day behind.
pub(crate) fn first_day_since(time: i64) -> NaiveDate {
    moment(time.saturating_sub(25 * HOUR)).date_naive()
}

/// The hour that `time` is in, counted from 1970.
pub(crate) fn hour_of(time: i64) -> i32 {
    time.div_euclid(HOUR).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}
