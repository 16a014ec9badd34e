use signalbox_domain::{
    automation::{
        AlarmLine, AttemptResult, Begun, CallbackDelivery, ChatFormat, ContactEvent, ContactSpec,
        DeliveryBatchEvent, Destination, Ended, EventType, HealthEvent, HealthReport, HealthStatus, LineKind,
        MessageDelivery, NewContact, NewDelivery, NewWebhook, PreviousKeys, QuietHours, Replay, Requeued,
        RetryPolicy, SigningKey, Verdict, WebhookEvent, WebhookFilters, WebhookSpec,
    },
    kernel::{AlarmId, ChannelId, ContactId, DeliveryId, UserId, WebhookId},
};

use super::{id, time};

pub(super) fn after_contact(event: Option<&ContactEvent>) -> Option<ContactEvent> {
    let destination = Destination::Chat {
        format: ChatFormat::Mattermost,
        sealed: "v1.key.bm9uY2U".to_owned(),
        host: "chat.example.org".to_owned(),
    };
    let from = ContactSpec { name: "operators".to_owned(), destination, quiet_hours: None };
    let Some(event) = event else {
        return Some(ContactEvent::ContactCreated(NewContact { owner: UserId(id(7)), spec: from }));
    };
    match event {
        ContactEvent::ContactCreated(_) => {
            let quiet_hours = QuietHours {
                from: "22:00:00".parse().unwrap(),
                to: "06:00:00".parse().unwrap(),
                timezone: "Europe/Berlin".to_owned(),
            };
            let to = ContactSpec { quiet_hours: Some(quiet_hours), ..from.clone() };
            Some(ContactEvent::ContactUpdated { from, to })
        }
        ContactEvent::ContactUpdated { .. } => {
            Some(ContactEvent::ContactDeleted { name: "operators".to_owned() })
        }
        ContactEvent::ContactDeleted { .. } => None,
    }
}

pub(super) fn after_webhook(event: Option<&WebhookEvent>) -> Option<WebhookEvent> {
    let spec = WebhookSpec {
        url: "https://example.org/hook".to_owned(),
        sealed_secret: None,
        key: None,
        previous: None,
        events: vec![EventType::SensorReading, EventType::ExperimentStarted],
        enabled: true,
        retry: RetryPolicy::Default,
        filters: Box::default(),
    };
    let Some(event) = event else {
        return Some(WebhookEvent::WebhookCreated(NewWebhook { owner: UserId(id(7)), spec }));
    };
    match event {
        WebhookEvent::WebhookCreated(_) => {
            let sealed_secret = Some("v1.key.bm9uY2U".to_owned());
            let key = |public: &str| SigningKey {
                sealed: "v1.key.bm9uY2U".to_owned(),
                public: format!("whpk_{public}"),
            };
            let previous =
                PreviousKeys { sealed_secret: sealed_secret.clone(), key: Some(key("b2xk")), until: time() };
            let to = WebhookSpec {
                sealed_secret,
                key: Some(key("bmV3")),
                previous: Some(Box::new(previous)),
                enabled: false,
                retry: RetryPolicy::Standard,
                filters: Box::new(WebhookFilters {
                    channels: vec![ChannelId(id(9))],
                    jobs: vec![7],
                    ..WebhookFilters::default()
                }),
                ..spec.clone()
            };
            Some(WebhookEvent::WebhookUpdated { from: spec, to, gone: true })
        }
        WebhookEvent::WebhookUpdated { .. } => {
            Some(WebhookEvent::WebhookReplayRequested(Replay { id: id(5), after: 10, last: 2000 }))
        }
        WebhookEvent::WebhookReplayRequested(_) => {
            Some(WebhookEvent::WebhookReplayAdvanced { id: id(5), to: 1010, finished: false })
        }
        WebhookEvent::WebhookReplayAdvanced { .. } => {
            Some(WebhookEvent::WebhookDeleted { url: "https://example.org/hook".to_owned() })
        }
        WebhookEvent::WebhookDeleted { .. } => None,
    }
}

pub(super) fn after_delivery_batch(event: Option<&DeliveryBatchEvent>) -> Option<DeliveryBatchEvent> {
    let (delivery, claim, webhook) = (DeliveryId(id(1)), id(2), WebhookId(id(3)));
    let Some(event) = event else {
        let deliveries = vec![NewDelivery {
            id: delivery,
            event_id: id(4),
            event_type: "experiment.started".to_owned(),
            body: r#"{"type":"experiment.started"}"#.to_owned(),
        }];
        return Some(DeliveryBatchEvent::DeliveriesQueued { webhook, deliveries });
    };
    match event {
        DeliveryBatchEvent::DeliveriesQueued { .. } => {
            let body = r#"{"type":"extraction.completed"}"#.to_owned();
            let event_type = "extraction.completed".to_owned();
            Some(DeliveryBatchEvent::CallbackQueued(CallbackDelivery {
                receiver: WebhookId(id(5)),
                url: "https://example.org/hook".to_owned(),
                sealed_secret: "v1.key.bm9uY2U".to_owned(),
                no_loopback: false,
                delivery: NewDelivery { id: DeliveryId(id(6)), event_id: id(4), event_type, body },
            }))
        }
        DeliveryBatchEvent::CallbackQueued(_) => {
            let body = r#"{"type":"alarm.notification"}"#.to_owned();
            let event_type = "alarm.notification".to_owned();
            Some(DeliveryBatchEvent::MessageQueued(MessageDelivery {
                contact: ContactId(id(7)),
                delivery: NewDelivery { id: DeliveryId(id(10)), event_id: id(4), event_type, body },
                alarms: vec![AlarmLine { alarm: AlarmId(id(5)), kind: LineKind::FiredAndCleared }],
            }))
        }
        DeliveryBatchEvent::MessageQueued(_) => {
            let attempts = vec![Begun { id: delivery, round: 1, attempt: 3 }];
            Some(DeliveryBatchEvent::AttemptsBegun { claim, at: time(), attempts })
        }
        DeliveryBatchEvent::AttemptsBegun { .. } => {
            let result = AttemptResult {
                id: delivery,
                started_at: time(),
                duration_ms: 17,
                status: Some(500),
                error: Some("HTTP 500".to_owned()),
                retry_after_seconds: Some(30),
                is_final: false,
            };
            let attempts = vec![Ended { round: 1, attempt: 3, result, verdict: Verdict::DeadLetter }];
            let returned = vec![DeliveryId(id(8))];
            Some(DeliveryBatchEvent::AttemptsEnded { claim, webhook, attempts, returned })
        }
        DeliveryBatchEvent::AttemptsEnded { .. } => {
            let deliveries = vec![Requeued { id: delivery, round: 2 }];
            Some(DeliveryBatchEvent::DeliveriesRequeued { at: time(), deliveries })
        }
        DeliveryBatchEvent::DeliveriesRequeued { .. } => None,
    }
}

pub(super) fn after_health(event: Option<&HealthEvent>) -> Option<HealthEvent> {
    let words = [("broker", "error"), ("database", "ok")];
    let components = words.map(|(part, word)| (part.to_owned(), word.to_owned())).into();
    let report = HealthReport { since: time(), status: HealthStatus::Degraded, components };
    event.is_none().then_some(HealthEvent::HealthChanged { previous: HealthStatus::Ok, report })
}
