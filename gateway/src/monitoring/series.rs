use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use axum::{Json, extract::State};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::{IdKey, micros, moment};
use signalbox_projections::monitoring::series::{
    self, Aggregate, Bucket, BucketWindow, Datapoint, Figures, Summary, Window,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    datapoint_reads::time,
    datapoints::{DatapointOut, show},
};
use crate::{
    auth::Reader,
    extract::{JsonBody, Numeric, id, within},
    problem::{Problem, ProblemOut},
    services::{
        catalog::{Catalog, Catalogs},
        replica::Database,
    },
};

/// Events of one request for series.
pub(crate) const SERIES_EVENTS: RangeInclusive<usize> = 1..=20;
/// Minutes that a series may cover.
pub(crate) const SERIES_MINUTES: RangeInclusive<i64> = 1..=14_400;
/// Points of one series.
pub(crate) const SERIES_POINTS: RangeInclusive<i64> = 10..=2000;
/// Seconds of a step; at most a hundred years.
pub(crate) const SERIES_STEPS: RangeInclusive<i64> = 1..=100 * 365 * DAY;
/// Buckets of one series at most.
const MAX_BUCKETS: i64 = 11_000;

/// Microseconds of a second.
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// The steps of requests that name none, in seconds.
const STEPS: [i64; 16] = [
    1,
    5,
    10,
    30,
    60,
    5 * 60,
    15 * 60,
    30 * 60,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    7 * DAY,
    30 * DAY,
    365 * DAY,
];

/// Which datapoints are wanted, and how many. The range is either the last `minutes` or `from` to `to`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SeriesIn {
    /// 1 to 20 events.
    event_public_ids: Vec<String>,
    /// 1 to 14400; 60 if absent.
    #[schema(value_type = Option<i64>)]
    minutes: Option<Numeric<i64>>,
    /// Measured at or after, ISO 8601; instead of `minutes`.
    from: Option<String>,
    /// Measured before, ISO 8601; now if absent. Only with `from`.
    to: Option<String>,
    /// Points of each event at most, 10 to 2000; 500 if absent.
    #[schema(value_type = Option<i64>)]
    max_points: Option<Numeric<i64>>,
    /// Seconds of a bucket, instead of `max_points`; at most 11,000 buckets. If absent, the least of 1, 5, 10, 30 s, 1, 5, 15, 30 min,
    /// 1, 3, 6, 12 h, 1, 7, 30, 365 d that gives at most `max_points`, and the first bucket starts at a multiple of it.
    #[schema(value_type = Option<i64>)]
    step_seconds: Option<Numeric<i64>>,
    /// `none` (default): every so many-th is shown. Others stand for those in between. With `minutes`, `avg`, `min`, `max`
    /// and `minmax` show points, and the newest one is always the last. With `from`, with `step_seconds`, and for `sum`, `count`,
    /// `first` and `last`, the range is cut into equal buckets, each of which is labelled by its start and has no
    /// `public_id`; those without datapoints are left out. `minmax` shows both, the least first, if they differ.
    #[schema(value_type = Option<crate::words::Aggregate>)]
    aggregate: Option<AggregateIn>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AggregateIn {
    #[default]
    None,
    Avg,
    Min,
    Max,
    Minmax,
    Sum,
    Count,
    First,
    Last,
}

/// A value at a time, or what stands for several.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesPointOut {
    /// Null for a bucket.
    #[schema(value_type = Option<String>)]
    public_id: Option<Uuid>,
    value: f64,
    /// When it was measured, or when the bucket starts.
    #[serde(serialize_with = "super::datapoints::in_one_piece")]
    timestamp: DateTime<Utc>,
    #[schema(value_type = String)]
    event_public_id: Uuid,
    /// The experiment that ran then.
    #[schema(value_type = Option<String>)]
    experiment_public_id: Option<Uuid>,
}

/// From when, and before when.
type Range = (DateTime<Utc>, DateTime<Utc>);

/// From when to when, and how it is shown.
#[derive(Debug, PartialEq)]
enum Shape {
    /// Points, thinned out.
    Points { from: DateTime<Utc>, to: Option<DateTime<Utc>>, most: usize, aggregate: Aggregate },
    /// Steps, in seconds.
    Buckets { from: DateTime<Utc>, to: DateTime<Utc>, step: i64, aggregate: AggregateIn },
}

/// The datapoints of some events, oldest first, thinned out or aggregated.
#[utoipa::path(post, path = "/api/v1/datapoints/series", tag = "datapoints", security(("jwt" = [])), request_body = SeriesIn, operation_id = "datapoint_series",
    responses((status = 200, body = BTreeMap<String, Vec<SeriesPointOut>>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn series(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(catalogs): State<Arc<Catalogs>>,
    State(datapoint_ids): State<IdKey>,
    _: Reader,
    JsonBody(wanted): JsonBody<SeriesIn>,
) -> Result<Json<BTreeMap<String, Vec<SeriesPointOut>>>, Problem> {
    let shape = wanted.shape(server_clock.now())?;
    let catalog = catalogs.fresh().await?;
    let number = |text: &String| id(text).and_then(|id| catalog.channel(id)).map(|known| known.number);
    let numbers: BTreeMap<String, Option<i32>> =
        wanted.event_public_ids.iter().map(|id| (id.clone(), number(id))).collect();
    let channels = numbers.values().flatten().copied().collect();
    let found = match shape {
        Shape::Points { from, to, most: max_points, aggregate } => {
            let window = Window { channels, from, to, max_points, aggregate };
            Found::Points(database.read(|pool| series::series(pool, &window)).await?)
        }
        Shape::Buckets { from, to, step, aggregate } => {
            let window = BucketWindow {
                channels,
                from,
                to,
                step: TimeDelta::seconds(step),
                figures: aggregate.figures(),
            };
            Found::Buckets(database.read(|pool| series::buckets(pool, &window)).await?, aggregate)
        }
    };
    let shown = numbers.into_iter().map(|(id, number)| {
        (
            id,
            number
                .map(|number| found.shown(&server_clock, &datapoint_ids, &catalog, number))
                .unwrap_or_default(),
        )
    });
    Ok(Json(shown.collect()))
}

/// Points or buckets, by channel.
enum Found {
    Points(BTreeMap<i32, Vec<Datapoint>>),
    Buckets(BTreeMap<i32, Vec<Bucket>>, AggregateIn),
}

impl Found {
    fn shown(
        &self,
        server_clock: &SharedServerClock,
        datapoint_ids: &IdKey,
        catalog: &Catalog,
        channel: i32,
    ) -> Vec<SeriesPointOut> {
        match self {
            Self::Points(found) => {
                let points = found.get(&channel).into_iter().flatten();
                points.map(|point| show(server_clock, datapoint_ids, catalog, point).into()).collect()
            }
            Self::Buckets(found, aggregate) => {
                let now = server_clock.now();
                let event_public_id = catalog.numbered(channel).map(|known| known.id).unwrap_or_default();
                let shown = |bucket: &Bucket| {
                    let start = bucket.start;
                    let experiment = catalog.experiment_at(start, now).map(|span| span.id);
                    aggregate.values(&bucket.summary).into_iter().map(move |value| (start, value, experiment))
                };
                let buckets = found.get(&channel).into_iter().flatten().flat_map(shown);
                let out = |(timestamp, value, experiment_public_id)| SeriesPointOut {
                    public_id: None,
                    value,
                    timestamp,
                    event_public_id,
                    experiment_public_id,
                };
                buckets.map(out).collect()
            }
        }
    }
}

impl From<DatapointOut> for SeriesPointOut {
    fn from(point: DatapointOut) -> Self {
        let DatapointOut { public_id, value, timestamp, event_public_id, experiment_public_id } = point;
        Self { public_id: Some(public_id), value, timestamp, event_public_id, experiment_public_id }
    }
}

impl AggregateIn {
    /// Points of a bucket at most.
    fn points(self) -> i64 {
        if self == Self::Minmax { 2 } else { 1 }
    }

    fn figures(self) -> Figures {
        match self {
            Self::Avg | Self::Sum | Self::Count => Figures::Sums,
            Self::Min | Self::Max | Self::Minmax => Figures::Extremes,
            Self::None | Self::First | Self::Last => Figures::Ends,
        }
    }

    fn values(self, summary: &Summary) -> Vec<f64> {
        let (min, max) = (summary.min(), summary.max());
        match self {
            Self::None | Self::First => vec![summary.first().value],
            Self::Last => vec![summary.last().value],
            Self::Avg => vec![summary.avg()],
            Self::Min => vec![min],
            Self::Max => vec![max],
            Self::Minmax if min == max => vec![min],
            Self::Minmax => vec![min, max],
            Self::Sum => vec![summary.sum()],
            Self::Count => vec![summary.count() as f64],
        }
    }

    /// The aggregate that points are thinned out with, if it is one that shows points.
    fn of_points(self) -> Option<Aggregate> {
        match self {
            Self::None => Some(Aggregate::None),
            Self::Avg => Some(Aggregate::Avg),
            Self::Min => Some(Aggregate::Min),
            Self::Max => Some(Aggregate::Max),
            Self::Minmax => Some(Aggregate::MinMax),
            Self::Sum | Self::Count | Self::First | Self::Last => None,
        }
    }
}

impl SeriesIn {
    fn shape(&self, now: DateTime<Utc>) -> Result<Shape, Problem> {
        self.check_events()?;
        let (minutes, range) = self.range(now)?;
        let most = within("max_points", self.max_points.map(Numeric::get), 500, &SERIES_POINTS)?;
        let aggregate = self.aggregate.unwrap_or_default();
        let Some(step) = self.step_seconds.map(Numeric::get) else {
            let is_thinned = range.is_none() || aggregate == AggregateIn::None;
            if let Some(aggregate) = aggregate.of_points().filter(|_| is_thinned) {
                let from = range.map_or(now - TimeDelta::minutes(minutes), |(from, _)| from);
                let most = most as usize;
                return Ok(Shape::Points { from, to: range.map(|(_, to)| to), most, aggregate });
            }
            let (from, to) = range.unwrap_or((now - TimeDelta::minutes(minutes), now));
            let (from, step) = least_step(from, to, most / aggregate.points())?;
            return Ok(Shape::Buckets { from, to, step, aggregate });
        };
        let step = within("step_seconds", Some(step), 0, &SERIES_STEPS)?;
        if self.max_points.is_some() {
            return Err(Problem::field("step_seconds", "cannot be given together with max_points"));
        }
        if aggregate == AggregateIn::None {
            return Err(Problem::field("step_seconds", "needs an aggregate other than none"));
        }
        let (from, to) = range.unwrap_or((now - TimeDelta::minutes(minutes), now));
        if buckets(from, to, step) > MAX_BUCKETS {
            return Err(Problem::field(
                "step_seconds",
                format_args!(
                    "would make more than {MAX_BUCKETS} buckets: choose a larger step or a shorter range"
                ),
            ));
        }
        Ok(Shape::Buckets { from, to, step, aggregate })
    }

    fn check_events(&self) -> Result<(), Problem> {
        if !SERIES_EVENTS.contains(&self.event_public_ids.len()) {
            return Err(Problem::field("event_public_ids", "must hold 1 to 20 items"));
        }
        if self.event_public_ids.iter().any(|id| id.len() > 255 || id.contains('\0')) {
            return Err(Problem::field("event_public_ids", "must hold ids of events"));
        }
        Ok(())
    }

    /// The minutes up to `now`, and the range that is given instead.
    fn range(&self, now: DateTime<Utc>) -> Result<(i64, Option<Range>), Problem> {
        let minutes = within("minutes", self.minutes.map(Numeric::get), 60, &SERIES_MINUTES)?;
        let (from, to) = (time("from", self.from.as_deref())?, time("to", self.to.as_deref())?);
        let Some(from) = from else {
            return if to.is_some() {
                Err(Problem::field("from", "is required together with to"))
            } else {
                Ok((minutes, None))
            };
        };
        if self.minutes.is_some() {
            return Err(Problem::field("minutes", "cannot be given together with from"));
        }
        let to = to.unwrap_or(now);
        if from >= to {
            return Err(Problem::field("from", "must be before to, which is now if absent"));
        }
        Ok((minutes, Some((from, to))))
    }
}

/// How many steps of `step` seconds there are from `from` until `to`, the last of which may be a part.
fn buckets(from: DateTime<Utc>, to: DateTime<Utc>, step: i64) -> i64 {
    let (length, step) = (micros(to) - micros(from), step * SECOND);
    (length - 1).div_euclid(step) + 1
}

/// The least of [`STEPS`] that makes at most `most` buckets, and `from` rounded down to it.
fn least_step(from: DateTime<Utc>, to: DateTime<Utc>, most: i64) -> Result<(DateTime<Utc>, i64), Problem> {
    let rounded = |step: i64| moment(micros(from) - micros(from).rem_euclid(step * SECOND));
    let found = STEPS.into_iter().find(|step| buckets(rounded(*step), to, *step) <= most);
    found.map(|step| (rounded(step), step)).ok_or_else(|| {
        Problem::field(
            "from",
            "is too long before to for so few points: raise max_points or shorten the range",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use signalbox_domain::kernel::parse_time;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        parse_time(text).unwrap()
    }

    fn shape(mut body: Value) -> Result<Shape, Problem> {
        body["event_public_ids"] = json!(["x"]);
        serde_json::from_value::<SeriesIn>(body).unwrap().shape(at("2026-11-23T12:00:30Z"))
    }

    fn step(body: Value) -> (String, i64) {
        match shape(body).unwrap() {
            Shape::Buckets { from, step, .. } => (from.to_rfc3339(), step),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn least_step_that_fits_is_chosen_and_from_is_rounded_down() {
        let range = |from: &str, to: &str| json!({"from": from, "to": to, "aggregate": "avg"});
        for (from, to, expected) in [
            ("2026-11-23T11:00:00.5Z", "2026-11-23T11:00:09Z", ("2026-11-23T11:00:00+00:00", 1)),
            // 500 buckets of a second, and one microsecond more.
            ("2026-11-23T11:00:00Z", "2026-11-23T11:08:20Z", ("2026-11-23T11:00:00+00:00", 1)),
            ("2026-11-23T11:00:00Z", "2026-11-23T11:08:20.000001Z", ("2026-11-23T11:00:00+00:00", 5)),
            ("2026-11-23T11:00:07Z", "2026-11-23T12:00:00Z", ("2026-11-23T11:00:00+00:00", 10)),
            ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z", ("2020-01-01T00:00:00+00:00", DAY)),
            // Weeks begin where those since 1970 do.
            ("2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z", ("2019-12-26T00:00:00+00:00", 7 * DAY)),
        ] {
            assert_eq!(step(range(from, to)), (expected.0.to_owned(), expected.1), "{from} {to}");
        }
        let both =
            json!({"from": "2026-11-23T11:00:00Z", "to": "2026-11-23T11:08:20Z", "aggregate": "minmax"});
        assert_eq!(step(both).1, 5, "two points each");
        assert!(shape(range("0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z")).is_err());
    }

    #[test]
    fn given_step_starts_at_from() {
        let body = json!({"from": "2026-11-23T11:00:07Z", "aggregate": "sum", "step_seconds": "60"});
        assert_eq!(step(body), ("2026-11-23T11:00:07+00:00".to_owned(), 60));
        let body = json!({"minutes": 10, "aggregate": "avg", "step_seconds": 60});
        assert_eq!(step(body), ("2026-11-23T11:50:30+00:00".to_owned(), 60));
    }

    #[test]
    fn old_aggregates_of_minutes_and_none_show_points() {
        for aggregate in ["none", "avg", "min", "max", "minmax"] {
            let found = shape(json!({"minutes": 10, "aggregate": aggregate})).unwrap();
            assert!(matches!(found, Shape::Points { to: None, most: 500, .. }), "{aggregate}: {found:?}");
        }
        assert!(matches!(shape(json!({})).unwrap(), Shape::Points { aggregate: Aggregate::None, .. }));
        let range = shape(json!({"from": "2020-01-01T00:00:00Z"})).unwrap();
        assert!(matches!(range, Shape::Points { to: Some(_), .. }), "{range:?}");
        for aggregate in ["sum", "count", "first", "last"] {
            assert!(matches!(shape(json!({"aggregate": aggregate})).unwrap(), Shape::Buckets { .. }));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let from = "2026-11-23T11:00:00Z";
        for wrong in [
            json!({"from": from, "minutes": 60}),
            json!({"to": from}),
            json!({"to": from, "minutes": 60}),
            json!({"from": from, "to": from}),
            json!({"from": from, "to": "2026-11-23T10:00:00Z"}),
            json!({"from": "2026-11-23T13:00:00Z"}),
            json!({"from": "yesterday"}),
            json!({"from": from, "aggregate": "avg", "step_seconds": 60, "max_points": 100}),
            json!({"from": from, "aggregate": "none", "step_seconds": 60}),
            json!({"from": from, "step_seconds": 60}),
            json!({"from": from, "aggregate": "avg", "step_seconds": 0}),
            json!({"from": "2026-11-23T08:00:00Z", "to": "2026-11-23T11:03:21Z", "aggregate": "avg", "step_seconds": 1}),
        ] {
            assert!(shape(wrong.clone()).is_err(), "{wrong}");
        }
        let most = json!({"from": "2026-11-23T08:00:00Z", "to": "2026-11-23T11:03:20Z", "aggregate": "avg", "step_seconds": 1});
        assert!(shape(most).is_ok(), "11,000 buckets");
    }
}
