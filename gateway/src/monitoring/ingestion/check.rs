use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_datapoint_log::{Point, micros};
use uuid::Uuid;

use super::{arrival::Arrival, item::Item};
use crate::{
    problem::Problem,
    services::{
        catalog::{Catalog, Catalogs},
        living_channels::LivingChannels,
        replica::Database,
    },
};

/// How far in the future a device's clock may be.
const AHEAD: TimeDelta = TimeDelta::minutes(10);

/// An item that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownEvent,
    TooFarAhead,
    BeforeTheEpoch,
}

impl Refusal {
    /// Why no channel takes a value of `time` that arrives at `now`; `None` if some may.
    pub(super) fn of_time(time: DateTime<Utc>, now: DateTime<Utc>) -> Option<Self> {
        if time.signed_duration_since(now) > AHEAD {
            return Some(Self::TooFarAhead);
        }
        (time < DateTime::UNIX_EPOCH).then_some(Self::BeforeTheEpoch)
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::UnknownEvent => "unknown event",
            Self::TooFarAhead => "timestamp is more than 10 minutes in the future",
            Self::BeforeTheEpoch => "timestamp is before 1970",
        }
    }
}

/// Points to be recorded, and the indexes of the other items.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) points: Vec<Point>,
    pub(super) refused: Vec<(usize, Refusal)>,
}

/// Checks items that arrive at `now`.
pub(super) async fn check(
    database: &Database,
    catalogs: &Catalogs,
    living_channels: &LivingChannels,
    items: &[Item],
    now: DateTime<Utc>,
) -> Result<Checked, Problem> {
    let mut catalog = catalogs.fresh().await?;
    let is_known = |catalog: &Catalog, id| catalog.live_channel(id).is_some();
    if !items.iter().filter_map(|item| item.channel).all(|id| is_known(&catalog, id)) {
        catalog = catalogs.newest().await?;
    }
    let mut deleted = Arc::default();
    if items.iter().filter_map(|item| item.channel).any(|id| is_known(&catalog, id)) {
        deleted = living_channels.deleted_since(&database.primary, catalog.held()).await?;
    }
    Ok(check_with(&catalog, items, &deleted, now))
}

/// Checks items against the channels that are known to the catalog and not `deleted`.
fn check_with(catalog: &Catalog, items: &[Item], deleted: &HashSet<Uuid>, now: DateTime<Utc>) -> Checked {
    let mut checked = Checked { points: Vec::with_capacity(items.len()), refused: Vec::new() };
    let mut arrival = Arrival::at(now);
    for (index, item) in items.iter().enumerate().rev() {
        let id = item.channel.filter(|id| deleted.is_empty() || !deleted.contains(id));
        let channel = id.and_then(|id| catalog.live_channel(id));
        let time = item.time.unwrap_or_else(|| arrival.time_of_last(item.channel));
        match (Refusal::of_time(time, now), channel) {
            (Some(refusal), _) => checked.refused.push((index, refusal)),
            (None, None) => checked.refused.push((index, Refusal::UnknownEvent)),
            (None, Some(channel)) => {
                checked.points.push(Point { channel: channel.number, time: micros(time), value: item.value })
            }
        }
    }
    checked.points.reverse();
    checked.refused.reverse();
    checked
}
