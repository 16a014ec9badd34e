use bytes::Bytes;
use sha2::{Digest, Sha256};
use signalbox_datapoint_log::{ChunkPoint, Origin, Point, Reserved, codec::encode_block, micros, reserve};
use signalbox_domain::kernel::UserId;
use signalbox_messaging::{Bus, IngestMessage};
use signalbox_projections::monitoring::series::Datapoint;
use uuid::Uuid;

use super::{IngestionServices, item::Item};
use crate::{
    auth::{Credential, CurrentUser},
    problem::Problem,
    services::commands::Commands,
};

/// The sender of a batch, and how the batch is recognised when it arrives again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) sender: &'a CurrentUser,
    pub(crate) repetition: Repetition<'a>,
}

/// Values that are reserved and sent together.
const SENT_TOGETHER: usize = 10_000;

/// How a batch that arrives again is recognised.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Repetition<'a> {
    /// By this id, which the adapter has made for the request.
    Id(Uuid),
    /// By the sender's name for it and its items: it is the same batch whenever and on whatever way it arrives.
    Key(&'a str),
}

impl Source<'_> {
    /// Appends `points`, those of `items` that were accepted, to the log; returns the first of them with its place.
    pub(super) async fn record(
        &self,
        commands: &Commands,
        bus: &Bus,
        items: &[Item],
        points: Vec<Point>,
    ) -> Result<Option<Datapoint>, Problem> {
        commands.reach_bus().await?;
        let id = match self.repetition {
            Repetition::Id(id) => id,
            Repetition::Key(key) => batch_id(self.sender.id, key, items),
        };
        send(bus, self.sender, id, points).await
    }
}

/// Appends those of `points` that have not been recorded in the last 24 h: their senders put them together anew when they repeat them.
pub(super) async fn record_new(
    services: &IngestionServices,
    sender: &CurrentUser,
    points: &[Point],
) -> Result<(), Problem> {
    let IngestionServices { bus, clock, commands, database, server_clock, .. } = services;
    commands.reach_bus().await?;
    for part in points.chunks(SENT_TOGETHER) {
        let batch = clock.new_id();
        let Reserved { new, unfinished } =
            reserve(&database.primary, batch, part, server_clock.now()).await?;
        // A sender that was cut off has repeated its values before the log had them, or a process crashed.
        for (batch, points) in unfinished {
            send(bus, sender, batch, points).await?;
        }
        if !new.is_empty() {
            send(bus, sender, batch, new).await?;
        }
    }
    Ok(())
}

/// Appends `points` as batch `batch_id`.
async fn send(
    bus: &Bus,
    sender: &CurrentUser,
    batch_id: Uuid,
    mut points: Vec<Point>,
) -> Result<Option<Datapoint>, Problem> {
    let origin = match sender.credential {
        Credential::ApiToken(token) => Origin::Token(token),
        Credential::Session(_) => Origin::User(sender.id.0),
    };
    let block = encode_block(origin, &mut points);
    let message = IngestMessage { batch_id, points: points.len() as u32, block: Bytes::from(block) };
    let outcome = bus.ingest(&message).await?;
    Ok(points.first().map(|first| {
        let (position, index) = (outcome.position, outcome.first_index);
        let point = ChunkPoint { time: first.time, value: first.value, position, index };
        Datapoint { channel: first.channel, day: outcome.day, point }
    }))
}

/// Names the batch of `items` that `sender` calls `key`. Stored ids were made like this: the bytes must not change.
fn batch_id(sender: UserId, key: &str, items: &[Item]) -> Uuid {
    let mut hasher = Sha256::new();
    hasher.update(key);
    for item in items {
        hasher.update(b"\0");
        hasher.update(item.value.to_le_bytes());
        hasher.update(item.channel.unwrap_or_default());
        hasher.update(item.time.map_or(i64::MIN, micros).to_le_bytes());
    }
    Uuid::new_v5(&sender.0, &hasher.finalize())
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn a_keyed_batch_is_named_by_sender_key_and_items() {
        let sender = UserId(Uuid::from_u128(1));
        let item = Item {
            channel: Some(Uuid::from_u128(2)),
            time: DateTime::from_timestamp_micros(1_800_000_000_000_000),
            value: 21.5,
        };
        let id = batch_id(sender, "key", &[item]);
        assert_eq!(id.to_string(), "e04d1ee8-d9e6-5dbb-96be-4b4c0024fdd6");
        let others = [
            batch_id(UserId(Uuid::from_u128(3)), "key", &[item]),
            batch_id(sender, "other", &[item]),
            batch_id(sender, "key", &[item, item]),
            batch_id(sender, "key", &[Item { channel: None, ..item }]),
            batch_id(sender, "key", &[Item { time: None, ..item }]),
            batch_id(sender, "key", &[Item { value: 21.6, ..item }]),
        ];
        assert!(others.iter().all(|other| *other != id), "{others:?}");
    }
}
