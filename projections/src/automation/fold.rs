use std::collections::HashSet;

use async_trait::async_trait;
use signalbox_domain::{
    automation::{
        Alarm, AlarmEvent, Contact, ContactEvent, DeliveryBatch, DeliveryBatchEvent, Health, HealthEvent,
        ReadingEvent, ReportedReading, Rule, RuleEvent, Webhook, WebhookEvent,
    },
    catalog::Context,
    kernel::{ContactId, Decider, WebhookId},
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;

use super::{
    alarms::{self, AlarmRow},
    contacts::{self, ContactRow},
    deliveries::{self, Changed, DeliveryBatchRow, DeliveryRow, changed_deliveries, changed_webhook},
    failure_streaks::FailureStreaks,
    readings::{self, ReadingRow},
    removed::remove_first,
    rules::{self, RuleRow},
    webhooks::{self, WebhookRow},
};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
};

/// Folds rules, alarms, contacts, webhooks and their deliveries.
pub struct AutomationProjection;

pub enum Event {
    Rule(RuleEvent),
    Alarm(AlarmEvent),
    Contact(ContactEvent),
    Reading(ReadingEvent),
    Webhook(WebhookEvent),
    DeliveryBatch(DeliveryBatchEvent),
    /// Published to webhooks and users; no list shows it.
    Health(HealthEvent),
}

/// Rules, webhooks and deliveries in memory.
#[derive(Default)]
pub struct AutomationRows {
    pub(super) rules: Table<RuleRow>,
    pub(super) alarms: Table<AlarmRow>,
    pub(super) contacts: Table<ContactRow>,
    readings: Table<ReadingRow>,
    pub(super) webhooks: Table<WebhookRow>,
    pub(super) deliveries: Table<DeliveryRow>,
    pub(super) batches: Table<DeliveryBatchRow>,
    failure_streaks: FailureStreaks,
    /// Webhooks and contacts whose deliveries go with them.
    deleted: HashSet<WebhookId>,
}

impl Projection for AutomationProjection {
    const CONTEXT: Context = Context::Automation;
    const TABLES: &'static [&'static str] = &[
        "rules",
        "alarms",
        "contacts",
        "readings",
        "webhooks",
        "deliveries",
        "consignments",
        "removed_webhooks",
        "webhook_spells",
    ];

    type Rows = AutomationRows;
}

#[async_trait]
impl Rows for AutomationRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            Rule::TYPE => event.decode::<Rule>().map(Event::Rule),
            Alarm::TYPE => event.decode::<Alarm>().map(Event::Alarm),
            Contact::TYPE => event.decode::<Contact>().map(Event::Contact),
            ReportedReading::TYPE => event.decode::<ReportedReading>().map(Event::Reading),
            Webhook::TYPE => event.decode::<Webhook>().map(Event::Webhook),
            DeliveryBatch::TYPE => event.decode::<DeliveryBatch>().map(Event::DeliveryBatch),
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
                Event::DeliveryBatch(event) => Some(event),
                _ => None,
            })
        };
        let webhooks = changed(Webhook::TYPE).into_iter().chain(consigned().filter_map(changed_webhook));
        let deliveries = consigned().flat_map(changed_deliveries).collect();
        self.rules.load(connection, schema, changed(Rule::TYPE)).await?;
        self.alarms.load(connection, schema, changed(Alarm::TYPE)).await?;
        self.contacts.load(connection, schema, changed(Contact::TYPE)).await?;
        self.readings.load(connection, schema, changed(ReportedReading::TYPE)).await?;
        self.webhooks.load(connection, schema, webhooks.collect()).await?;
        self.deliveries.load(connection, schema, deliveries).await?;
        self.batches.load(connection, schema, changed(DeliveryBatch::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::Rule(event) => rules::fold(&mut self.rules, recorded, event),
            Event::Alarm(event) => alarms::fold(&mut self.alarms, recorded, event),
            Event::Contact(event) => self.contact(recorded, event),
            Event::Reading(event) => readings::fold(&mut self.readings, recorded, event),
            Event::Webhook(event) => self.webhook(recorded, event),
            Event::DeliveryBatch(event) => self.batch(recorded, event),
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
            self.batches.remove_where(|row| deleted.contains(&row.webhook_id));
        }
        self.rules.write(connection, schema, keep).await?;
        self.alarms.write(connection, schema, keep).await?;
        self.contacts.write(connection, schema, keep).await?;
        self.readings.write(connection, schema, keep).await?;
        self.webhooks.write(connection, schema, keep).await?;
        self.deliveries.write(connection, schema, keep).await?;
        self.batches.write(connection, schema, keep).await?;
        self.failure_streaks.write(connection, schema).await?;
        for webhook in deleted {
            remove_first(connection, schema, webhook).await?;
        }
        Ok(())
    }
}

impl AutomationRows {
    fn webhook(&mut self, recorded: &RecordedEvent, event: WebhookEvent) {
        if let WebhookEvent::WebhookDeleted { .. } = event {
            self.deleted.insert(WebhookId(recorded.aggregate_id));
        }
        webhooks::fold(&mut self.webhooks, recorded, event);
    }

    fn contact(&mut self, recorded: &RecordedEvent, event: ContactEvent) {
        if let ContactEvent::ContactDeleted { .. } = event {
            self.deleted.insert(ContactId(recorded.aggregate_id).as_receiver());
        }
        contacts::fold(&mut self.contacts, recorded, event);
    }

    fn batch(&mut self, recorded: &RecordedEvent, event: DeliveryBatchEvent) {
        let Self { webhooks, deliveries, batches, failure_streaks, .. } = self;
        deliveries::fold(&mut Changed { webhooks, deliveries, batches, failure_streaks }, recorded, event);
    }
}
