//! When a rule would have fired on what was recorded.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::{IdKey, moment, recorded_times};
use signalbox_domain::automation::{AlarmTerms, DatapointPlace, History, Judge, RuleSpec};
use signalbox_projections::{
    automation::RuleRow,
    monitoring::{
        queries::channel_number,
        series::{Datapoint, newest_until, recorded},
    },
};
use utoipa::ToSchema;

use super::{
    alarm_backtest::{self, BacktestFiringOut, BacktestIntervalOut, MAX_FIRINGS, Tested},
    rules::RuleIn,
};
use crate::{
    auth::Admin,
    extract::{JsonBody, Text},
    problem::{Problem, ProblemKind, ProblemOut},
    resource::find,
    services::{backtests::Backtests, replica::Database},
};

/// Datapoints that one back-test judges at most.
const MAX_POINTS: usize = 1_000_000;

/// Which datapoints a rule is tested on.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct BacktestIn {
    /// Measured at or after, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    #[schema(value_type = String)]
    from: DateTime<Utc>,
    /// Measured before, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    #[schema(value_type = String)]
    to: DateTime<Utc>,
}

/// A rule that is not saved, and which datapoints it is tested on.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DraftBacktestIn {
    rule: RuleIn,
    /// Measured at or after, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    #[schema(value_type = String)]
    from: DateTime<Utc>,
    /// Measured before, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    #[schema(value_type = String)]
    to: DateTime<Utc>,
}

/// When a rule would have fired.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacktestOut {
    /// Datapoints that were judged.
    datapoints: usize,
    /// How often it would have fired.
    total: usize,
    /// The first 1,000 firings, in the order in which the datapoints arrived; of an alarm rule in the order of time.
    firings: Vec<BacktestFiringOut>,
    /// For an alarm rule only: the first 1,000 intervals in which an alarm would have been pending or firing, by the clock of
    /// the event. Its datapoints are judged in the order of measurement, of equal times the one recorded last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    intervals: Option<Vec<BacktestIntervalOut>>,
}

/// Show when the rule as it is now, enabled, would have fired on recorded datapoints of its event. `from`, `to` and `time` are
/// times of measurement. The datapoints are judged in the order in which they arrived, and the cooldown counts from when they
/// arrived, as it does live: `received`.
#[utoipa::path(post, path = "/api/v1/rules/{id}/backtest", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = BacktestIn, operation_id = "backtest_rule",
    responses((status = 200, body = BacktestOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn backtest(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(datapoint_ids): State<IdKey>,
    _: Admin,
    Text(id): Text,
    JsonBody(window): JsonBody<BacktestIn>,
) -> Result<Json<BacktestOut>, Problem> {
    window.check()?;
    let row = find::<RuleRow>(&database, &id).await?;
    let spec = row.spec()?;
    Ok(Json(test(&database, &server_clock, &datapoint_ids, spec, &window).await?))
}

/// Show when a rule that is not saved would have fired, as `POST /api/v1/rules/{id}/backtest` does for one that is. A newer
/// request of the same user cancels it: status 409, code `superseded`.
#[utoipa::path(post, path = "/api/v1/rules/backtest", tag = "rules", security(("jwt" = [])), request_body = DraftBacktestIn, operation_id = "backtest_draft",
    responses((status = 200, body = BacktestOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn backtest_draft(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(datapoint_ids): State<IdKey>,
    State(backtests): State<Arc<Backtests>>,
    Admin(current): Admin,
    JsonBody(DraftBacktestIn { rule, from, to }): JsonBody<DraftBacktestIn>,
) -> Result<Json<BacktestOut>, Problem> {
    let window = BacktestIn { from, to };
    window.check()?;
    let superseded = backtests.begin(current.id);
    let tested = async {
        let spec = rule.specify(&database).await.map_err(|problem| problem.within("rule"))?;
        test(&database, &server_clock, &datapoint_ids, spec, &window).await
    };
    tokio::select! {
        () = superseded.cancelled() => {
            Err(Problem::new(ProblemKind::Conflict, "superseded", "A newer back-test of the same user has replaced this one."))
        }
        tested = tested => tested.map(Json),
    }
}

impl BacktestIn {
    fn check(&self) -> Result<(), Problem> {
        if self.from < self.to { Ok(()) } else { Err(Problem::field("from", "must be before to")) }
    }
}

async fn test(
    database: &Database,
    server_clock: &SharedServerClock,
    datapoint_ids: &IdKey,
    spec: RuleSpec,
    window: &BacktestIn,
) -> Result<BacktestOut, Problem> {
    let channel = channel_number(&database.primary, spec.channel).await?;
    let points = match channel {
        Some(channel) => recorded(&database.primary, channel, (window.from, window.to), MAX_POINTS).await?,
        None => Some(Vec::new()),
    };
    let too_many = || Problem::field("from", format!("and to span more than {MAX_POINTS} datapoints"));
    let points = points.ok_or_else(too_many)?;
    let spec = RuleSpec { enabled: true, ..spec };
    match spec.alarm_terms() {
        Some(terms) => {
            let count = points.len();
            let now = server_clock.now();
            let (standing, end) = match channel {
                Some(channel) => (
                    standing(database, channel, &terms, window.from).await?,
                    end(database, channel, now, window.to).await?,
                ),
                None => (Some(Vec::new()), window.to.min(now)),
            };
            let points = standing.ok_or_else(too_many)?.into_iter().chain(points).collect();
            let tested =
                alarm_backtest::judge(database, datapoint_ids, (&spec, terms), points, (window.from, end))
                    .await?;
            let Tested { total, firings, intervals } = tested;
            Ok(BacktestOut { datapoints: count, total, firings, intervals: Some(intervals) })
        }
        None => judge(database, datapoint_ids, &spec, &points).await,
    }
}

/// The newest datapoint measured before `from`, and for a slope those of its window; `None` if these are too many.
async fn standing(
    database: &Database,
    channel: i32,
    terms: &AlarmTerms,
    from: DateTime<Utc>,
) -> Result<Option<Vec<Datapoint>>, Problem> {
    let before = from - TimeDelta::microseconds(1);
    let newest = newest_until(&database.primary, &[channel], before).await?;
    let Some(newest) = newest.first() else { return Ok(Some(Vec::new())) };
    let Some(window) = terms.alarm.rate_window() else { return Ok(Some(vec![*newest])) };
    let begin = moment(newest.point.time) - window;
    Ok(recorded(&database.primary, channel, (begin, from), MAX_POINTS).await?)
}

/// `to`, or the present if that is earlier. The clock of a device may be ahead, and alarms live by the clock of the channel: the time
/// of its newest datapoint, and what has passed since that arrived. One that is behind does not shorten the window, because the past
/// may have been recorded just now.
async fn end(
    database: &Database,
    channel: i32,
    now: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<DateTime<Utc>, Problem> {
    if to <= now {
        return Ok(to);
    }
    let mut present = now;
    // The newest one may be some minutes ahead of `to`, too.
    let newest = newest_until(&database.primary, &[channel], to + TimeDelta::days(1)).await?;
    if let Some(Datapoint { point, day, .. }) = newest.first() {
        let arrived = recorded_times(&database.primary, &[(point.position, *day)]).await?;
        if let Some(arrived) = arrived.get(&point.position) {
            present = present.max(moment(point.time) + (now - *arrived).max(TimeDelta::zero()));
        }
    }
    Ok(to.min(present))
}

async fn judge(
    database: &Database,
    datapoint_ids: &IdKey,
    spec: &RuleSpec,
    points: &[Datapoint],
) -> Result<BacktestOut, Problem> {
    // When a point came in is asked for only where it matters.
    let matters: Vec<_> = points.iter().filter(|point| spec.condition.holds(point.point.value)).collect();
    let places: Vec<_> = matters.iter().map(|point| (point.point.position, point.day)).collect();
    let times: HashMap<i64, DateTime<Utc>> = recorded_times(&database.primary, &places).await?;
    let mut judge = Judge::new(spec, &[], History::default());
    let (mut total, mut firings) = (0, Vec::new());
    for point in matters {
        let (place, value) = (point.place(), point.point.value);
        let Some(received) = times.get(&place.position).copied() else { continue };
        let at = DatapointPlace { position: place.position, index: place.index };
        if judge.fires(at, value, received) {
            total += 1;
            if firings.len() < MAX_FIRINGS {
                let datapoint_public_id = datapoint_ids.id(place).to_string();
                let time = moment(point.point.time);
                firings.push(BacktestFiringOut { datapoint_public_id, value, time, received });
            }
        }
    }
    Ok(BacktestOut { datapoints: points.len(), total, firings, intervals: None })
}
