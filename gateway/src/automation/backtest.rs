//! When a rule would have fired on what was recorded.

use std::collections::HashMap;

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_datapoint_log::recorded_times;
use signalbox_domain::automation::{DatapointPlace, History, Judge, RuleSpec};
use signalbox_projections::monitoring::{
    queries::channel_number,
    series::{Datapoint, recorded},
};
use utoipa::ToSchema;

use super::rules::find;
use crate::{
    auth::Admin,
    extract::{JsonBody, Text},
    problem::{Problem, ProblemOut},
    state::{AppState, State as Gateway},
};

/// Datapoints that one back-test judges at most.
const MAX_POINTS: usize = 1_000_000;
/// Firings that are shown at most.
const MAX_FIRINGS: usize = 1000;

/// Which datapoints a rule is tested on.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct BacktestIn {
    /// Measured at or after, RFC 3339.
    #[schema(value_type = String)]
    from: DateTime<Utc>,
    /// Measured before, RFC 3339.
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
    /// The first 1,000 firings, in the order in which the datapoints came in.
    firings: Vec<BacktestFiringOut>,
}

/// A firing that would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacktestFiringOut {
    datapoint_public_id: String,
    value: f64,
    /// When the datapoint came in, which is what the cooldown counts from.
    time: DateTime<Utc>,
}

/// Tell when the rule as it is now, enabled, would have fired on recorded datapoints of its event.
#[utoipa::path(post, path = "/api/v1/rules/{id}/backtest", tag = "rules", security(("jwt" = [])), params(("id" = String, Path,)), request_body = BacktestIn, operation_id = "backtest_rule",
    responses((status = 200, body = BacktestOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn backtest(
    State(state): State<AppState>,
    _: Admin,
    Text(id): Text,
    JsonBody(window): JsonBody<BacktestIn>,
) -> Result<Json<BacktestOut>, Problem> {
    if window.from >= window.to {
        return Err(Problem::invalid("from must be before to"));
    }
    let row = find(&state, &id).await?;
    let spec = row.spec().ok_or_else(|| Problem::not_found("Rule"))?;
    let points = match channel_number(&state.pool, row.channel_id).await? {
        Some(channel) => recorded(&state.pool, channel, (window.from, window.to), MAX_POINTS).await?,
        None => Some(Vec::new()),
    };
    let too_many = || Problem::invalid(format!("from and to span more than {MAX_POINTS} datapoints"));
    let points = points.ok_or_else(too_many)?;
    Ok(Json(judge(&state, spec, &points).await?))
}

async fn judge(state: &Gateway, spec: RuleSpec, points: &[Datapoint]) -> Result<BacktestOut, Problem> {
    let spec = RuleSpec { enabled: true, ..spec };
    // When a point came in is asked for only where it matters.
    let matters: Vec<_> = points.iter().filter(|point| spec.condition.holds(point.point.value)).collect();
    let places: Vec<_> = matters.iter().map(|point| (point.point.position, point.day)).collect();
    let times: HashMap<i64, DateTime<Utc>> = recorded_times(&state.pool, &places).await?;
    let mut judge = Judge::new(&spec, &[], History::default());
    let (mut total, mut firings) = (0, Vec::new());
    for point in matters {
        let (place, value) = (point.place(), point.point.value);
        let Some(time) = times.get(&place.position).copied() else { continue };
        let at = DatapointPlace { position: place.position, index: place.index };
        if judge.fires(at, value, time) {
            total += 1;
            if firings.len() < MAX_FIRINGS {
                let datapoint_public_id = state.datapoint_ids.id(place).to_string();
                firings.push(BacktestFiringOut { datapoint_public_id, value, time });
            }
        }
    }
    Ok(BacktestOut { datapoints: points.len(), total, firings })
}
