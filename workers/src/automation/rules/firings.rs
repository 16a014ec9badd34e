use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use futures::{StreamExt, stream};
use signalbox_datapoint_log::{IdKey, LogRow, Origin, Place, Point};
use signalbox_domain::{
    automation::{DatapointPlace, Reading, Rule, RuleCommand},
    kernel::{ChannelId, ErrorKind, Rejection, RuleId},
};
use signalbox_projections::monitoring;
use uuid::Uuid;

use super::{RuleEvaluation, device::Devices, shards::Reach, watches::Watches};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::due_once};

/// Rules that are sent to at the same time.
const CONCURRENT: usize = 64;
/// Values in one command; more follow in the next.
const READINGS: usize = 250;

/// A row of the datapoint log, decoded.
#[derive(Debug)]
pub(super) struct Row {
    day: NaiveDate,
    position: i64,
    at: DateTime<Utc>,
    batches: Vec<(Origin, Vec<Point>)>,
}

/// The rules that fire on some rows, and the values that they fire on, in order.
#[derive(Debug, Default)]
pub(super) struct Judged {
    by_rule: BTreeMap<RuleId, Fired>,
}

#[derive(Debug)]
struct Fired {
    channel: ChannelId,
    /// The integer that stands for it in the log.
    number: i32,
    version: i64,
    values: Vec<Value>,
}

/// A value of a channel.
#[derive(Debug, Clone, Copy)]
struct Value {
    day: NaiveDate,
    place: DatapointPlace,
    value: f64,
    origin: Origin,
    at: DateTime<Utc>,
}

/// Names that receivers get together with values.
struct Names {
    key: IdKey,
    channels: HashMap<Uuid, String>,
    devices: Devices,
}

impl Row {
    /// The values of `row`.
    pub(super) fn of(row: &LogRow) -> Self {
        let batches = row.batches().unwrap_or_else(|error| {
            // The row stays unreadable, and later rows must be judged.
            tracing::error!(%error, "no rule judges what cannot be read");
            Vec::new()
        });
        Self { day: row.day, position: row.position, at: row.recorded_at, batches }
    }

    /// The values, in runs of one channel, with its integer.
    fn runs(&self) -> impl Iterator<Item = (i32, impl Iterator<Item = Value> + Clone)> {
        let mut next = 0;
        let runs = self.batches.iter().flat_map(|(origin, points)| {
            points.chunk_by(|one, next| one.channel == next.channel).map(move |run| (*origin, run))
        });
        runs.map(move |(origin, run)| {
            let first = next;
            next += run.len() as u32;
            let value = move |(point, index): (&Point, u32)| Value {
                day: self.day,
                place: DatapointPlace { position: self.position, index },
                value: point.value,
                origin,
                at: self.at,
            };
            (run[0].channel, run.iter().zip(first..).map(value))
        })
    }
}

impl Judged {
    /// Lets the rules on channels of `reach` judge `rows`.
    pub(super) fn of(rows: &[Row], reach: &Reach, watches: &mut Watches) -> Self {
        let mut judged = Self::default();
        for (number, values) in rows.iter().flat_map(Row::runs).filter(|(number, _)| reach.holds(*number)) {
            for watch in watches.on(number) {
                let judge = &mut watch.judge;
                let mut fires =
                    values.clone().filter(|value| judge.fires(value.place, value.value, value.at));
                if let Some(first) = fires.next() {
                    let fired = judged.by_rule.entry(watch.rule).or_insert_with(|| Fired {
                        channel: watch.channel,
                        number,
                        version: watch.version,
                        values: Vec::new(),
                    });
                    fired.values.push(first);
                    fired.values.extend(fires);
                }
            }
        }
        judged
    }

    /// Sends the firings: in order for each rule, many rules at once.
    pub(super) async fn send(
        self,
        context: &Context,
        rows: &[Row],
        watches: &mut Watches,
        failures: &Failures,
    ) -> Result<(), WorkerError> {
        if self.by_rule.is_empty() {
            return Ok(());
        }
        let names = &self.names(context, rows).await?;
        let send = |(rule, fired): (RuleId, Fired)| async move {
            (rule, fired.send(context, rule, rows, names).await)
        };
        let mut sent = stream::iter(self.by_rule).map(send).buffer_unordered(CONCURRENT);
        let mut is_known = true;
        while let Some((rule, sent)) = sent.next().await {
            let version = *sent.as_ref().unwrap_or(&None);
            // The marks move on over what is settled here, so values wait for the release that knows their rule.
            if let Err(error) = &sent
                && error.is_of_newer_release()
            {
                return sent.map(drop);
            }
            // A rule whose history cannot be read keeps no other rule waiting.
            failures.settle(rule.0, sent.map(|_| ()))?;
            match version {
                Some(version) => watches.settle(rule, version),
                None => is_known = false,
            }
        }
        if !is_known {
            *watches = Watches::default();
        }
        Ok(())
    }

    async fn names(&self, context: &Context, rows: &[Row]) -> Result<Names, sqlx::Error> {
        let channels: HashSet<_> = self.by_rule.values().map(|fired| fired.channel.0).collect();
        let origins = rows.iter().flat_map(|row| &row.batches).map(|(origin, _)| *origin);
        Ok(Names {
            key: IdKey::load(&context.pool).await?,
            devices: Devices::load(&context.pool, channels.iter().copied(), origins).await?,
            channels: monitoring::queries::channel_names(&context.pool, channels).await?,
        })
    }
}

impl Fired {
    /// Sends the values to `rule`; returns its version afterwards, if it is still as remembered.
    async fn send(
        mut self,
        context: &Context,
        rule: RuleId,
        rows: &[Row],
        names: &Names,
    ) -> Result<Option<i64>, WorkerError> {
        let first = self.values.first().map(|value| value.place);
        let span = context.span_of_point(RuleEvaluation::NAME, first).await;
        match span.around(self.send_values(context, rule, Some(self.version), names)).await {
            Err(rejection) if rejection.kind == ErrorKind::PreconditionFailed => {
                let runs = rows.iter().flat_map(Row::runs).filter(|(number, _)| *number == self.number);
                self.values = runs.flat_map(|(_, values)| values).collect();
                due_once(RuleEvaluation::NAME, self.send_values(context, rule, None, names).await)?;
                Ok(None)
            }
            sent => Ok(sent?),
        }
    }

    async fn send_values(
        &self,
        context: &Context,
        rule: RuleId,
        mut version: Option<i64>,
        names: &Names,
    ) -> Result<Option<i64>, Rejection> {
        let mut version_after = None;
        for values in self.values.chunks(READINGS) {
            let readings = values.iter().map(|value| names.reading(self.channel, value)).collect();
            let (first, last) = (values[0].place, values[values.len() - 1].place);
            // The rule records its judged values, so a key that never repeats is harmless.
            let key =
                format!("{version:?} {}-{} {}-{}", first.position, first.index, last.position, last.index);
            let command = RuleCommand::Judge { readings };
            let sent = context.send::<Rule>(RuleEvaluation::NAME, rule.0, version, &key, &command).await?;
            // At the version that was expected all of them fire, as they did here.
            version = version.map(|version| version + values.len() as i64);
            version_after = sent.version.filter(|sent| Some(*sent) == version);
        }
        Ok(version_after)
    }
}

impl Names {
    fn reading(&self, channel: ChannelId, value: &Value) -> Reading {
        let DatapointPlace { position, index } = value.place;
        Reading {
            datapoint_id: self.key.id(Place { day: value.day, position, index }).to_string(),
            place: value.place,
            channel_id: channel,
            channel_name: self.channels.get(&channel.0).cloned().unwrap_or_default(),
            value: value.value,
            device: self.devices.name(channel.0, value.origin),
            occurred_at: value.at,
        }
    }
}
