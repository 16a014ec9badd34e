use signalbox_domain::{
    automation::{Rule, RuleEvent},
    kernel::Decider,
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;

use super::rules::{self, RuleRow};
use crate::{
    ApplyError, Poison, Projection, Rows,
    projection::decode_all,
    table::{Table, changed_ids},
};

/// Folds rules.
pub struct AutomationProjection;

enum Event {
    Rule(RuleEvent),
}

/// Rules in memory.
#[derive(Default)]
pub struct AutomationRows {
    rules: Table<RuleRow>,
}

impl Projection for AutomationProjection {
    const NAME: &'static str = "automation";
    const TABLES: &'static [&'static str] = &["rules"];
    const AGGREGATES: &'static [&'static str] = &[Rule::TYPE];

    type Rows = AutomationRows;
}

impl Rows for AutomationRows {
    async fn fold(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[&RecordedEvent],
    ) -> Result<Vec<Poison>, ApplyError> {
        let (decoded, poisons) = decode_all(events, decode);
        let changed = |aggregate| changed_ids(decoded.iter().map(|(recorded, _)| *recorded), aggregate);
        self.rules.load(connection, schema, changed(Rule::TYPE)).await?;
        for (recorded, event) in decoded {
            match event {
                Event::Rule(event) => rules::fold(&mut self.rules, recorded, event),
            }
        }
        Ok(poisons)
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        self.rules.write(connection, schema, keep).await.map(|_| ())
    }
}

fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
    event.decode::<Rule>().map(Event::Rule)
}
