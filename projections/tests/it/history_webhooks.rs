//! Webhooks and deliveries in a history.

use chrono::TimeDelta;
use signalbox_domain::{
    automation::{
        AlarmLine, AttemptResult, ChatFormat, Contact, ContactChanges, ContactCommand, ContactSpec,
        DeliveryBatch, DeliveryBatchCommand, Destination, DestinationChanges, EventType, KeyChange, LineKind,
        MessageDelivery, NewContact, NewDelivery, NewWebhook, Replay, RetryPolicy, SigningKey, Webhook,
        WebhookChanges, WebhookCommand, WebhookFilters, WebhookSpec,
    },
    kernel::{AlarmId, ContactId, DeliveryId, WebhookId},
};
use uuid::Uuid;

use crate::world::{OWNER, Writer};

/// Contacts with a message that was sent, each changed, one of two deleted.
pub(crate) async fn contacts(writer: &Writer, number: i64) {
    let contact = writer.clock.new_id();
    let destination = Destination::Chat {
        format: ChatFormat::Slack,
        sealed: "sealed".to_owned(),
        host: "example.org".to_owned(),
    };
    let spec = ContactSpec { name: format!("contact {number}"), destination, quiet_hours: None };
    writer.run::<Contact>(contact, ContactCommand::Create(NewContact { owner: OWNER, spec })).await;
    let (batch, id) = (writer.clock.new_id(), DeliveryId(writer.clock.new_id()));
    let alarms = vec![AlarmLine { alarm: AlarmId(batch), kind: LineKind::Reminder }];
    let message = MessageDelivery { contact: ContactId(contact), delivery: new(id), alarms };
    writer.run::<DeliveryBatch>(batch, DeliveryBatchCommand::QueueMessage(message)).await;
    attempt(writer, batch, &[id], 0, 200).await;
    let format = Some(ChatFormat::Teams);
    let destination = Some(DestinationChanges::Chat { format, address: None });
    let changes = ContactChanges { destination, ..ContactChanges::default() };
    writer.run::<Contact>(contact, ContactCommand::Change(changes)).await;
    if number % 2 == 0 {
        writer.run::<Contact>(contact, ContactCommand::Delete).await;
    }
}

/// A subscription with four events: delivered, redelivered, given up, and in progress. It may be deleted at the end.
pub(crate) async fn webhooks(writer: &Writer, number: i64) {
    let (webhook, batch) = (writer.clock.new_id(), writer.clock.new_id());
    let spec = WebhookSpec {
        url: format!("https://example.org/{number}"),
        sealed_secret: None,
        key: None,
        previous: None,
        events: vec![EventType::ExperimentStarted],
        enabled: true,
        retry: RetryPolicy::Default,
        filters: Box::default(),
    };
    writer.run::<Webhook>(webhook, WebhookCommand::Create(NewWebhook { owner: OWNER, spec })).await;
    let ids: Vec<_> = (0..4).map(|_| DeliveryId(writer.clock.new_id())).collect();
    let deliveries = ids.iter().map(|id| new(*id)).collect();
    let queue = DeliveryBatchCommand::Queue { webhook: WebhookId(webhook), deliveries };
    writer.run::<DeliveryBatch>(batch, queue).await;
    attempt(writer, batch, &ids[..2], 0, 200).await;
    for round in 0..3 {
        attempt(writer, batch, &ids[2..3], round * 10, 500).await;
    }
    let at = writer.clock.now();
    writer.run::<DeliveryBatch>(batch, DeliveryBatchCommand::Redeliver { at, ids: ids[1..2].to_vec() }).await;
    // A claim that is never ended.
    let claim = writer.clock.new_id();
    writer
        .run::<DeliveryBatch>(batch, DeliveryBatchCommand::Begin { claim, at, ids: ids[3..].to_vec() })
        .await;
    let key = |name: &str| SigningKey { sealed: format!("sealed {name}"), public: format!("whpk_{name}") };
    let changes = WebhookChanges {
        enabled: Some(false),
        key: KeyChange::Provide(key("one")),
        retry: Some(RetryPolicy::Standard),
        filters: Some(WebhookFilters { jobs: vec![number], ..WebhookFilters::default() }),
        ..Default::default()
    };
    writer.run::<Webhook>(webhook, WebhookCommand::Change(changes)).await;
    let rotate = WebhookCommand::RotateSecret {
        sealed_secret: "sealed".to_owned(),
        key: key("two"),
        keep_until: Some(at),
        at: None,
    };
    writer.run::<Webhook>(webhook, rotate).await;
    let id = Uuid::from_u128(5);
    writer.run::<Webhook>(webhook, WebhookCommand::Replay(Replay { id, after: 1, last: 9 })).await;
    writer.run::<Webhook>(webhook, WebhookCommand::AdvanceReplay { id, to: 7 }).await;
    if number % 2 == 0 {
        writer.run::<Webhook>(webhook, WebhookCommand::Delete).await;
        // The late report of a worker.
        let (results, retry) = (Vec::new(), RetryPolicy::Default);
        writer.run::<DeliveryBatch>(batch, DeliveryBatchCommand::Record { claim, results, retry }).await;
    }
}

fn new(id: DeliveryId) -> NewDelivery {
    let event_type = "experiment.started".to_owned();
    NewDelivery { id, event_id: id.0, event_type, body: "{\"a\":\"\\\\ä\\n\"}".to_owned() }
}

async fn attempt(writer: &Writer, batch: Uuid, ids: &[DeliveryId], seconds: i64, status: u16) {
    let (claim, at) = (writer.clock.new_id(), writer.clock.now() + TimeDelta::seconds(seconds));
    writer.run::<DeliveryBatch>(batch, DeliveryBatchCommand::Begin { claim, at, ids: ids.to_vec() }).await;
    let result = |id: &DeliveryId| AttemptResult {
        is_final: false,
        id: *id,
        started_at: at,
        duration_ms: 5,
        status: Some(status),
        error: (status != 200).then(|| format!("HTTP {status}")),
        retry_after_seconds: None,
    };
    let results = ids.iter().map(result).collect();
    writer
        .run::<DeliveryBatch>(
            batch,
            DeliveryBatchCommand::Record { claim, results, retry: RetryPolicy::Default },
        )
        .await;
}
