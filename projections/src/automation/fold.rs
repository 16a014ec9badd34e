use std::collections::HashSet;

use signalbox_domain::{
    automation::{
        Consignment, ConsignmentEvent, Health, HealthEvent, ReadingEvent, ReportedReading, Rule, RuleEvent,
        Webhook, WebhookEvent,
    },
    kernel::Decider,
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    deliveries::{self, Changed, ConsignmentRow, DeliveryRow, changed_deliveries, changed_webhook},
    readings::{self, ReadingRow},
    rules::{self, RuleRow},
    spells::Spells,
    webhooks::{self, WebhookRow},
};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
};

/// Folds rules, webhooks and their deliveries.
pub struct AutomationProjection;

pub enum Event {
    Rule(RuleEvent),
    Reading(ReadingEvent),
    Webhook(WebhookEvent),
    Consignment(ConsignmentEvent),
    /// Webhooks and people are told of it; no list shows it.
    Health(HealthEvent),
}

/// Rules, webhooks and deliveries in memory.
#[derive(Default)]
pub struct AutomationRows {
    pub(super) rules: Table<RuleRow>,
    readings: Table<ReadingRow>,
    pub(super) webhooks: Table<WebhookRow>,
    pub(super) deliveries: Table<DeliveryRow>,
    pub(super) consignments: Table<ConsignmentRow>,
    spells: Spells,
    /// Webhooks whose deliveries go with them.
    deleted: HashSet<Uuid>,
}

impl Projection for AutomationProjection {
    const NAME: &'static str = "automation";
    const TABLES: &'static [&'static str] =
        &["rules", "readings", "webhooks", "deliveries", "consignments", "webhook_spells"];
    const AGGREGATES: &'static [&'static str] =
        &[Rule::TYPE, ReportedReading::TYPE, Webhook::TYPE, Consignment::TYPE, Health::TYPE];

    type Rows = AutomationRows;
}

impl Rows for AutomationRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            Rule::TYPE => event.decode::<Rule>().map(Event::Rule),
            ReportedReading::TYPE => event.decode::<ReportedReading>().map(Event::Reading),
            Webhook::TYPE => event.decode::<Webhook>().map(Event::Webhook),
            Consignment::TYPE => event.decode::<Consignment>().map(Event::Consignment),
            _ => event.decode::<Health>().map(Event::Health),
        }
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Event)],
    ) -> Result<(), ApplyError> {
        let changed = |aggregate| changed_ids(events, aggregate);
        let consigned = || {
            events.iter().filter_map(|(_, event)| match event {
                Event::Consignment(event) => Some(event),
                _ => None,
            })
        };
        let webhooks = changed(Webhook::TYPE).into_iter().chain(consigned().filter_map(changed_webhook));
        let deliveries = consigned().flat_map(changed_deliveries).collect();
        self.rules.load(connection, schema, changed(Rule::TYPE)).await?;
        self.readings.load(connection, schema, changed(ReportedReading::TYPE)).await?;
        self.webhooks.load(connection, schema, webhooks.collect()).await?;
        self.deliveries.load(connection, schema, deliveries).await?;
        self.consignments.load(connection, schema, changed(Consignment::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::Rule(event) => rules::fold(&mut self.rules, recorded, event),
            Event::Reading(event) => readings::fold(&mut self.readings, recorded, event),
            Event::Webhook(event) => self.webhook(recorded, event),
            Event::Consignment(event) => self.consignment(recorded, event),
            Event::Health(HealthEvent::HealthChanged { .. }) => {}
        }
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        let deleted = std::mem::take(&mut self.deleted);
        if !deleted.is_empty() {
            self.deliveries.remove_where(|row| deleted.contains(&row.webhook_id));
            self.consignments.remove_where(|row| deleted.contains(&row.webhook_id));
        }
        self.rules.write(connection, schema, keep).await?;
        self.readings.write(connection, schema, keep).await?;
        self.webhooks.write(connection, schema, keep).await?;
        self.deliveries.write(connection, schema, keep).await?;
        self.consignments.write(connection, schema, keep).await?;
        self.spells.write(connection, schema).await?;
        if !deleted.is_empty() {
            let deleted: Vec<_> = deleted.into_iter().collect();
            for table in ["deliveries", "consignments"] {
                let sql = format!("DELETE FROM {schema}.{table} WHERE webhook_id = ANY($1)");
                sqlx::query(&sql).bind(&deleted).execute(&mut *connection).await?;
            }
        }
        Ok(())
    }
}

impl AutomationRows {
    fn webhook(&mut self, recorded: &RecordedEvent, event: WebhookEvent) {
        if let WebhookEvent::WebhookDeleted { .. } = event {
            self.deleted.insert(recorded.aggregate_id);
        }
        webhooks::fold(&mut self.webhooks, recorded, event);
    }

    fn consignment(&mut self, recorded: &RecordedEvent, event: ConsignmentEvent) {
        let Self { webhooks, deliveries, consignments, spells, .. } = self;
        deliveries::fold(&mut Changed { webhooks, deliveries, consignments, spells }, recorded, event);
    }
}
