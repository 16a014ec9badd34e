//! Evaluates rules on every datapoint, in the order of commit.
//!
//! Reads the datapoint log behind its shards, and the rules; sends `Judge` to the rules that fire, then moves the shards.
//! Channels are divided into shards, and shards among all processes that evaluate, so that more processes evaluate more.
//!
//! A rule's history is kept in memory, and only values on which it fires are sent, with the version that they fire at. A
//! rule that is at another version, because somebody has changed it or another process evaluates the same, is sent all
//! values of its channel and judges by itself. Either way the aggregate decides, so firings are exact, whoever evaluates,
//! however often: shards and checkpoints are an economy. If the process dies, another one begins at the checkpoint, and
//! rules pass over what they have seen.
//!
//! Rules are read after the end of the log is, and know what they were for earlier values: so each value is judged by every
//! rule as it was when the value came in, however far evaluation is behind.

use std::time::Duration;

use signalbox_datapoint_log::{head, read_points_after};
use signalbox_messaging::Wakeup;
use tokio::sync::Mutex;

use super::{
    firings::{Judged, Row},
    shards::{Mark, Shards},
    watches::Watches,
};
use crate::{Context, Worker, WorkerError};

/// Points and rows of one step.
const POINTS: i64 = 200_000;
const ROWS: i64 = 2000;

/// The evaluation of rules; one in each process.
#[derive(Debug, Default)]
pub struct RuleEvaluation {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shards: Shards,
    watches: Watches,
}

impl Worker for RuleEvaluation {
    const NAME: &'static str = "rules";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        matches!(wakeup, Wakeup::DatapointsAppended { .. })
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut state = self.state.lock().await;
        let done = state.step(context).await;
        if done.is_err() {
            // What is remembered of rules may not be so.
            state.watches = Watches::default();
        }
        done
    }
}

impl State {
    async fn step(&mut self, context: &Context) -> Result<bool, WorkerError> {
        if self.shards.renew(context).await? {
            self.watches = Watches::default();
        }
        let Some(reach) = self.shards.hindmost() else { return Ok(false) };
        let end = head(&context.pool).await?;
        if end.position <= reach.mark.position {
            return Ok(false);
        }
        self.watches.refresh(&context.pool, reach.mark.position).await?;
        if self.watches.is_empty() && reach.next.is_none() {
            // The day stays an earlier one.
            let to = Mark { position: end.position, total: end.points, ..reach.mark };
            self.shards.advance(context, &reach, to).await?;
            return Ok(false);
        }
        let upto = reach.next.unwrap_or(end.position).min(end.position);
        let Some((to, rows)) = read(context, reach.mark, upto).await? else { return Ok(false) };
        let judged = Judged::of(&rows, &reach, &mut self.watches);
        judged.send(context, &rows, &mut self.watches).await?;
        self.shards.advance(context, &reach, to).await?;
        Ok(true)
    }
}

/// The next rows behind `from` up to row `upto`, and where they end.
async fn read(context: &Context, from: Mark, upto: i64) -> Result<Option<(Mark, Vec<Row>)>, WorkerError> {
    let Mark { position, day, total } = from;
    let mut rows = read_points_after(&context.pool, (position, day, total), POINTS, ROWS).await?;
    rows.retain(|row| row.position <= upto);
    let to = rows.last().map(|last| Mark { position: last.position, day: last.day, total: last.total });
    Ok(to.map(|to| (to, rows.iter().map(Row::of).collect())))
}
