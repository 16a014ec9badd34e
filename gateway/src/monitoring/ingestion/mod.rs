//! The seam through which values enter, whatever the protocol: they are checked against the channels in memory and the claims,
//! encoded, and sent to the log. A value that [`take`] reports as accepted is committed.
//!
//! A way in is an adapter: it parses its protocol into [`Item`]s, names its [`Source`], and writes what [`Taken`] says in the
//! shape that its clients expect. One whose values name their series by labels hands over [`SeriesKeys`] and [`SeriesValue`]s.

mod arrival;
mod check;
mod item;
mod keys;
mod series;
mod source;

pub(crate) use self::{
    check::Refusal,
    item::{DatapointIn, Item, MAX_ID},
    keys::{Notation, SeriesKeys},
    series::{RefusedValues, SeriesValue, take_series},
    source::{Repetition, Source},
};

use std::sync::Arc;

use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::IdKey;
use signalbox_messaging::Bus;
use signalbox_projections::monitoring::series::Datapoint;

use self::check::{Checked, check};
use crate::{
    context_services::services,
    problem::Problem,
    services::{
        catalog::Catalogs, commands::Commands, consistency::ReadGate, known_series::KnownSeries,
        living_channels::LivingChannels, replica::Database,
    },
};

/// The outcome of a batch.
#[derive(Debug)]
pub(crate) struct Taken {
    /// How many items are in the log.
    pub(crate) accepted: usize,
    /// Indexes of the others.
    pub(crate) refused: Vec<(usize, Refusal)>,
    /// The first accepted item with its place.
    pub(crate) first: Option<Datapoint>,
}

services! {
    /// Services that values are taken by.
    IngestionServices {
        bus: Bus,
        catalogs: Arc<Catalogs>,
        clock: Clock,
        commands: Commands,
        config: Arc<Config>,
        database: Database,
        gate: Arc<ReadGate>,
        known_series: Arc<KnownSeries>,
        living_channels: Arc<LivingChannels>,
        server_clock: SharedServerClock,
        datapoint_ids: IdKey,
    }
}

/// Records `items` of `source`, together; those that are wrong are left out.
pub(crate) async fn take(
    services: &IngestionServices,
    source: &Source<'_>,
    items: &[Item],
) -> Result<Taken, Problem> {
    let Checked { points, refused } = check(
        &services.database,
        &services.catalogs,
        &services.living_channels,
        items,
        services.server_clock.now(),
    )
    .await?;
    let accepted = points.len();
    let first = match accepted {
        0 => None,
        _ => source.record(&services.commands, &services.bus, items, points).await?,
    };
    Ok(Taken { accepted, refused, first })
}
