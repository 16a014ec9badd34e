//! When alarms of a rule would have been pending and firing on recorded datapoints.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use signalbox_datapoint_log::{IdKey, moment, recorded_times};
use signalbox_domain::{
    automation::{
        AlarmJudge, AlarmMemory, AlarmState, AlarmStep, AlarmTerms, DatapointPlace, JudgedValue, RuleSpec,
        StepKind,
    },
    kernel::RuleId,
};
use signalbox_projections::monitoring::series::Datapoint;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{problem::Problem, services::replica::Database};

/// Firings that are shown at most.
pub(crate) const MAX_FIRINGS: usize = 1000;
/// Intervals that are shown at most.
pub(crate) const MAX_INTERVALS: usize = 1000;
/// Datapoints that are judged before the task yields.
const AT_ONCE: usize = 1000;

/// A firing that would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacktestFiringOut {
    pub(super) datapoint_public_id: String,
    pub(super) value: f64,
    /// When the value was measured; of an alarm rule, when an alarm would have fired.
    pub(super) time: DateTime<Utc>,
    /// When the datapoint arrived, which is what the cooldown counts from; of an alarm rule, that time of firing on the clock of
    /// the service.
    pub(super) received: DateTime<Utc>,
}

/// A time in which an alarm would have had a state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacktestIntervalOut {
    /// `pending` or `firing`.
    #[schema(value_type = crate::words::AlarmState)]
    state: &'static str,
    /// `condition` or `no_data`.
    #[schema(value_type = crate::words::AlarmReason)]
    reason: &'static str,
    /// When the alarm took the state.
    from: DateTime<Utc>,
    /// When it left the state; null when it still has it at the end.
    to: Option<DateTime<Utc>>,
}

/// Result of a back-test of an alarm rule.
#[derive(Debug, Default)]
pub(super) struct Tested {
    pub(super) total: usize,
    pub(super) firings: Vec<BacktestFiringOut>,
    pub(super) intervals: Vec<BacktestIntervalOut>,
}

/// A firing on or after the datapoint with this index.
struct Fired {
    index: usize,
    on: DateTime<Utc>,
    /// Time since the datapoint was measured.
    since: TimeDelta,
}

/// Judges `points` from `from` to `to`, in the order of measurement; those measured before `from` stand then.
pub(super) async fn judge(
    database: &Database,
    datapoint_ids: &IdKey,
    (spec, terms): (&RuleSpec, AlarmTerms),
    mut points: Vec<Datapoint>,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Tested, Problem> {
    points.sort_unstable_by_key(|point| point.point.order());
    // Of equal times the last one counts.
    points.reverse();
    points.dedup_by_key(|point| point.point.time);
    points.reverse();
    let mut tested = Tested::default();
    let mut fired = Vec::new();
    let mut judge = AlarmJudge::new(RuleId(Uuid::nil()), AlarmMemory::blank(0));
    let mut steps = Vec::new();
    let before = points.partition_point(|point| moment(point.point.time) < from);
    let standing: Vec<_> =
        points.iter().enumerate().take(before).map(|(index, point)| value(index, point)).collect();
    judge.change(Some(terms), (before as i64, 1), from, &standing, &mut steps);
    tested.take_in(&mut steps, &mut fired);
    for (index, point) in points.iter().enumerate().skip(before) {
        if index % AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        judge.judge(value(index, point), &mut steps);
        tested.take_in(&mut steps, &mut fired);
    }
    judge.end(to, &mut steps);
    tested.take_in(&mut steps, &mut fired);
    tested.act(database, datapoint_ids, spec, &points, &fired).await?;
    Ok(tested)
}

/// A point as its judge takes it; its place is the one in the order of measurement.
fn value(index: usize, point: &Datapoint) -> JudgedValue {
    let on = moment(point.point.time);
    let place = DatapointPlace { position: index as i64 + 1, index: 0 };
    JudgedValue { place, day: point.day, value: point.point.value, on, arrived: on }
}

impl Tested {
    fn take_in(&mut self, steps: &mut Vec<AlarmStep>, fired: &mut Vec<Fired>) {
        for step in steps.drain(..) {
            if let (StepKind::Fired, Some(newest)) = (step.kind, step.newest) {
                let index = newest.place.position as usize - 1;
                fired.push(Fired { index, on: step.on, since: step.on - newest.on });
            }
            self.show(&step);
        }
    }

    fn show(&mut self, step: &AlarmStep) {
        let reason = step.reason.as_str();
        // The one that it ends is among those of its reason the last.
        let mut earlier = self.intervals.iter_mut().rev();
        if let Some(open) = earlier.find(|known| known.reason == reason).filter(|known| known.to.is_none()) {
            open.to = Some(step.on);
        }
        let state = match step.kind {
            StepKind::Started => AlarmState::Pending,
            StepKind::Fired => AlarmState::Firing,
            StepKind::Cleared => return,
        };
        if self.intervals.len() < MAX_INTERVALS {
            self.intervals.push(BacktestIntervalOut {
                state: state.as_str(),
                reason,
                from: step.on,
                to: None,
            });
        }
    }

    /// Counts the firings between which the cooldown passes, by times of arrival.
    async fn act(
        &mut self,
        database: &Database,
        datapoint_ids: &IdKey,
        spec: &RuleSpec,
        points: &[Datapoint],
        fired: &[Fired],
    ) -> Result<(), Problem> {
        let places: Vec<_> =
            fired.iter().map(|fired| (points[fired.index].point.position, points[fired.index].day)).collect();
        let times: HashMap<i64, DateTime<Utc>> = recorded_times(&database.primary, &places).await?;
        let cooldown = TimeDelta::seconds(i64::from(spec.cooldown_seconds));
        let mut last: Option<DateTime<Utc>> = None;
        for Fired { index, on, since } in fired {
            let point = &points[*index];
            let Some(arrived) = times.get(&point.point.position) else { continue };
            let received = *arrived + *since;
            if !cooldown.is_zero() && last.is_some_and(|last| received - last < cooldown) {
                continue;
            }
            last = Some(received);
            self.total += 1;
            if self.firings.len() < MAX_FIRINGS {
                self.firings.push(BacktestFiringOut {
                    datapoint_public_id: datapoint_ids.id(point.place()).to_string(),
                    value: point.point.value,
                    time: *on,
                    received,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use signalbox_domain::{
        automation::{AlarmReason, AlarmSpec, Condition, Operator},
        kernel::{AlarmId, ChannelId},
    };

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn step(reason: AlarmReason, kind: StepKind, seconds: i64) -> AlarmStep {
        let terms = AlarmTerms {
            channel: ChannelId(Uuid::nil()),
            condition: Condition { operator: Operator::Gt, threshold: 1.0, threshold_high: None },
            alarm: AlarmSpec::default(),
        };
        let on = at(seconds);
        AlarmStep {
            alarm: AlarmId(Uuid::nil()),
            reason,
            kind,
            on,
            at: on,
            started_on: on,
            newest: None,
            terms,
        }
    }

    #[test]
    fn intervals_of_the_two_reasons_are_closed_apart() {
        use AlarmReason::{Condition, NoData};
        let mut tested = Tested::default();
        let mut steps = vec![
            step(Condition, StepKind::Started, 1),
            step(NoData, StepKind::Fired, 2),
            step(Condition, StepKind::Fired, 3),
            step(NoData, StepKind::Cleared, 4),
        ];
        tested.take_in(&mut steps, &mut Vec::new());
        let shown = |one: &BacktestIntervalOut| (one.state, one.reason, one.from, one.to);
        let shown: Vec<_> = tested.intervals.iter().map(shown).collect();
        let expected = [
            ("pending", "condition", at(1), Some(at(3))),
            ("firing", "no_data", at(2), Some(at(4))),
            ("firing", "condition", at(3), None),
        ];
        assert_eq!(shown, expected);
    }
}
