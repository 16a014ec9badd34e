//! The log of datapoints: a batch is an event, a series is a read model.
//!
//! * [`codec`] turns points into a few bytes each.
//! * [`Appender`] gathers the batches of concurrent senders and commits them as one row; positions are gapless and in
//!   commit order.
//! * [`read_after`] reads the log in order, for read models, sockets and rules; [`IdKey`] names single points.
//! * [`reserve`] recognises values that are sent again in other batches.
//! * [`add_days`] and [`drop_days`] make and drop its partitions.
//!
//! It knows channels only as integers and does not check that they exist; the gateway does.

mod append;
mod clear;
pub mod codec;
mod end_at;
mod id;
mod partitions;
mod point;
mod read;
mod recent;
mod traces;

pub use append::{AppendFailed, Appended, Appender, Batch};
pub use clear::clear_points;
pub use end_at::{LogEnd, end_at};
pub use id::IdKey;
pub use partitions::{add_day, add_days, drop_days, drop_old_batches, drop_table_days};
pub use point::{ChunkPoint, Origin, Place, Point, micros, moment};
pub use read::{
    Committed, Entry, Head, LogRow, Tombstone, UnreadableRow, append_tombstone, check_block, decode_payload,
    head, read_after, read_points_after, read_row, read_rows, recorded_times,
};
pub use recent::{Reserved, forget_values, reserve};
pub use traces::{forget_traces, trace_of_point};
