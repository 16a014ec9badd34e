//! Evaluates rules on every datapoint, in the order of commit.
//!
//! Reads the datapoint log after its shards' marks, and the rules; sends `Judge` to the rules that fire, then moves
//! the marks. Channels are divided into shards, and shards among all processes that evaluate, so that more processes
//! evaluate more.
//!
//! A rule's history is kept in memory, and only values on which it fires are sent, with the version that they fire
//! at. A rule at another version, because a user has changed it or another process evaluates the same, is sent all
//! values of its channel and evaluates them itself. Either way the aggregate decides, so firings are exact, whichever
//! process evaluates, however often: shards and checkpoints are an economy. If the process crashes, another one
//! starts at the checkpoint, and rules skip the values that they have seen.
//!
//! Rules are read after the end of the log is, and contain their former specifications: so each value is judged by
//! every rule as it was when the value arrived, however far evaluation lags.

use std::time::{Duration, Instant};

use signalbox_datapoint_log::{head, read_points_after};
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    Projection,
    automation::{AutomationProjection, rule_shards::Mark},
    monitoring::MonitoringProjection,
    progress,
};
use tokio::sync::Mutex;

use super::{
    firings::{Judged, Row},
    shards::Shards,
    watches::Watches,
};
use crate::{Context, Worker, WorkerError, failures::Failures};

/// Points and rows of one step.
const POINTS: i64 = 200_000;
const ROWS: i64 = 2000;
/// How often it is checked whether rows of the read models have changed without an event.
const REVISION: Duration = Duration::from_secs(1);

/// The evaluation of rules; one in each process.
#[derive(Debug, Default)]
pub struct RuleEvaluation {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shards: Shards,
    watches: Watches,
    /// Rules that cannot be sent to.
    failures: Failures,
    /// Of the read models of rules and channels, when they were last looked at.
    revision: Option<(Instant, i64)>,
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
            // The watches in memory may be out of date.
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
        self.note_revision(context).await?;
        self.failures.report(context, RuleEvaluation::NAME).await?;
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
        judged.send(context, &rows, &mut self.watches, &self.failures).await?;
        self.shards.advance(context, &reach, to).await?;
        Ok(true)
    }
}

impl State {
    /// Forgets the rules when rows have changed that have old positions.
    async fn note_revision(&mut self, context: &Context) -> Result<(), WorkerError> {
        if self.revision.is_some_and(|(at, _)| at.elapsed() < REVISION) {
            return Ok(());
        }
        let rules = progress(&context.pool, AutomationProjection::NAME).await?.revision;
        let channels = progress(&context.pool, MonitoringProjection::NAME).await?.revision;
        if self.revision.is_some_and(|(_, before)| before != rules + channels) {
            self.watches = Watches::default();
        }
        self.revision = Some((Instant::now(), rules + channels));
        Ok(())
    }
}

/// The next rows after `from` up to row `upto`, and their end.
async fn read(context: &Context, from: Mark, upto: i64) -> Result<Option<(Mark, Vec<Row>)>, WorkerError> {
    let Mark { position, day, total } = from;
    let mut connection = context.pool.acquire().await?;
    let mut rows = read_points_after(&mut connection, (position, day, total), POINTS, ROWS).await?;
    drop(connection);
    rows.retain(|row| row.position <= upto);
    let to = rows.last().map(|last| Mark { position: last.position, day: last.day, total: last.total });
    Ok(to.map(|to| (to, rows.iter().map(Row::of).collect())))
}
