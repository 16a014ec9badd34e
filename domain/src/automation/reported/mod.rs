mod events;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

pub use self::events::{ReadingCommand, ReadingEvent, ReadingEventKind};
use super::{DatapointPlace, Reading, report_window::is_interval_over};
use crate::kernel::{Decider, Rejection};

/// Least time between two reports of a channel.
pub const REPORT_INTERVAL: TimeDelta = TimeDelta::seconds(5);

/// The value of a channel that was last reported to webhooks. It has the channel's id.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ReportedReading {
    last: Option<(DatapointPlace, DateTime<Utc>)>,
}

impl Decider for ReportedReading {
    const TYPE: &'static str = "reading";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    // One every five seconds, for ever.
    const SNAPSHOT_EVERY: Option<i64> = Some(50);
    type Command = ReadingCommand;
    type Event = ReadingEvent;

    fn decide(&self, command: ReadingCommand) -> Result<Vec<ReadingEvent>, Rejection> {
        let ReadingCommand::Report { reading, at } = command;
        let is_due = self
            .last
            .is_none_or(|(place, reported_at)| reading.place > place && is_interval_over(reported_at, at));
        let report = ReadingEvent::ReadingReported { reading, reported_at: at };
        Ok(if is_due { vec![report] } else { Vec::new() })
    }

    fn evolve(&mut self, event: ReadingEvent) {
        let ReadingEvent::ReadingReported { reading, reported_at } = event;
        self.last = Some((reading.place, reported_at));
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::kernel::ChannelId;

    fn at(milliseconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)
    }

    fn report(state: &mut ReportedReading, position: i64, milliseconds: i64) -> bool {
        let reading = Reading {
            datapoint_id: position.to_string(),
            place: DatapointPlace { position, index: 0 },
            channel_id: ChannelId(Uuid::nil()),
            channel_name: "boiler".to_owned(),
            value: 1.0,
            device: "api".to_owned(),
            occurred_at: at(0),
        };
        let events = state.decide(ReadingCommand::Report { reading, at: at(milliseconds) }).unwrap();
        let reported = !events.is_empty();
        events.into_iter().for_each(|event| state.evolve(event));
        reported
    }

    #[test]
    fn a_newer_value_is_reported_once_in_five_seconds() {
        let mut state = ReportedReading::default();
        let reported = [(3, 0), (4, 4_999), (3, 6_000), (4, 5_000), (4, 60_000), (5, 60_000)]
            .map(|(position, milliseconds)| report(&mut state, position, milliseconds));
        assert_eq!(reported, [true, false, false, true, false, true]);
    }
}
