//! Sends what is due.
//!
//! Reads due attempts and claims in force from the read model; claims a consignment's due attempts by `Begin`, sends them one
//! after the other, and says by `Record` what came of them. At most ten requests are under way in the whole installation and
//! three per subscription: a claim is a slot, and claims in force are in the read model, whoever made them, so the limits hold
//! also while one process takes over from another. If the worker dies, its claims lapse after [`CLAIM_SECONDS`] and the attempts
//! are made again under their numbers; a receiver may then get an event twice, by the same id. What waits for its
//! next attempt holds no slot. Nothing of it lies in JetStream.
//!
//! A subscription whose attempts all fail gets one slot instead of three, so that several dead receivers do not use up all.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use signalbox_config::Secret;
use signalbox_domain::{
    automation::{AttemptResult, CLAIM_SECONDS, Consignment, ConsignmentCommand, Webhook},
    kernel::{Decider, DeliveryId},
};
use signalbox_egress::Target;
use signalbox_messaging::Wakeup;
use signalbox_metrics::metrics;
use signalbox_projections::{
    Projection,
    automation::{
        AutomationProjection,
        deliveries::Bodies,
        due::{DueConsignment, DueDelivery, due_consignments, due_deliveries, live_claims},
    },
    checkpoint,
};
use signalbox_telemetry::{Kind, Span, current};
use tokio::{task::JoinSet, time::Instant};
use uuid::Uuid;

use super::request::{Outgoing, RequestError, headers};
use crate::{Context, Worker, WorkerError, worker::span};

/// Requests under way in the whole installation.
const SLOTS: usize = 10;
/// Requests under way for one subscription.
const SLOTS_EACH: usize = 3;
/// Requests under way for one that is failing.
const SLOTS_FAILING: usize = 1;
/// A request under a claim begins within this time, so that it has ended before the claim lapses: 3 s and the 10 s that a
/// request may take are less than [`CLAIM_SECONDS`].
const BEGIN_WITHIN: Duration = Duration::from_secs(3);
const _: () = assert!(BEGIN_WITHIN.as_secs() + 10 < CLAIM_SECONDS.unsigned_abs());

/// The delivery worker.
#[derive(Debug, Default)]
pub struct WebhookDelivery {
    lanes: Arc<Mutex<Lanes>>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

/// Consignments that this process works on or has just worked on. The read model shows the latter as before for a moment.
#[derive(Debug, Default)]
struct Lanes(HashMap<Uuid, Lane>);

#[derive(Debug, Clone, Copy)]
struct Lane {
    webhook: Uuid,
    /// Position of its outcome in the log; none while requests are under way.
    ended: Option<i64>,
}

impl Worker for WebhookDelivery {
    const NAME: &'static str = "webhook-delivery";

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Consignment::TYPE || word == Webhook::TYPE)
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut running = self.running.lock().await;
        while running.try_join_next().is_some() {}
        let shown = checkpoint(&context.pool, AutomationProjection::NAME).await?;
        self.with_lanes(|lanes| lanes.0.retain(|_, lane| lane.ended.is_none_or(|position| position > shown)));
        let now = context.clock.now();
        let live = live_claims(&context.pool, now).await?;
        let mut slots = Slots::default();
        let busy = self.with_lanes(|lanes| {
            let foreign = live.iter().filter(|claim| !lanes.0.contains_key(&claim.consignment_id));
            foreign.for_each(|claim| slots.take(claim.webhook_id));
            lanes.0.values().filter(|lane| lane.ended.is_none()).for_each(|lane| slots.take(lane.webhook));
            let claimed = live.iter().map(|claim| claim.consignment_id);
            lanes.0.keys().copied().chain(claimed).collect::<Vec<_>>()
        });
        if slots.free() == 0 {
            return Ok(false);
        }
        let due = due_consignments(&context.pool, now, &busy, &slots.full(), SLOTS as i64).await?;
        let due: Vec<_> = due.into_iter().filter(|due| slots.try_take(due)).collect();
        let ids: Vec<_> = due.iter().map(|due| due.id).collect();
        let mut deliveries: HashMap<Uuid, Vec<DueDelivery>> = HashMap::new();
        if !ids.is_empty() {
            for delivery in due_deliveries(&context.pool, now, &ids).await? {
                deliveries.entry(delivery.consignment_id).or_default().push(delivery);
            }
        }
        for consignment in due {
            let Some(deliveries) = deliveries.remove(&consignment.id) else { continue };
            let lane = Lane { webhook: consignment.webhook_id, ended: None };
            self.with_lanes(|lanes| lanes.0.insert(consignment.id, lane));
            running.spawn(run_lane(context.clone(), self.lanes.clone(), consignment, deliveries));
        }
        Ok(false)
    }
}

impl WebhookDelivery {
    fn with_lanes<T>(&self, act: impl FnOnce(&mut Lanes) -> T) -> T {
        act(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Who has how many slots.
#[derive(Debug, Default)]
struct Slots {
    taken: usize,
    of: HashMap<Uuid, usize>,
}

impl Slots {
    fn take(&mut self, webhook: Uuid) {
        self.taken += 1;
        *self.of.entry(webhook).or_default() += 1;
    }

    fn try_take(&mut self, due: &DueConsignment) -> bool {
        let most = if due.is_failing { SLOTS_FAILING } else { SLOTS_EACH };
        let has = self.of.get(&due.webhook_id).copied().unwrap_or_default();
        let may = self.free() > 0 && has < most;
        if may {
            self.take(due.webhook_id);
        }
        may
    }

    fn free(&self) -> usize {
        SLOTS.saturating_sub(self.taken)
    }

    /// Those that get no more.
    fn full(&self) -> Vec<Uuid> {
        self.of.iter().filter(|(_, taken)| **taken >= SLOTS_EACH).map(|(webhook, _)| *webhook).collect()
    }
}

/// Claims, sends and records the due attempts of one consignment.
async fn run_lane(
    context: Context,
    lanes: Arc<Mutex<Lanes>>,
    consignment: DueConsignment,
    deliveries: Vec<DueDelivery>,
) {
    let first = deliveries.first().map(|delivery| delivery.position).unwrap_or_default();
    let span = span(WebhookDelivery::NAME, context.trace_at(first).await);
    let delivered = span.around(deliver(&context, &consignment, deliveries, first)).await;
    drop(span);
    let ended = delivered.unwrap_or_else(|error| {
        tracing::warn!(%error, webhook = %consignment.webhook_id, "attempts were not recorded; they are made again");
        None
    });
    let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
    match (ended, lanes.0.get_mut(&consignment.id)) {
        (Some(position), Some(lane)) => lane.ended = Some(position),
        _ => {
            lanes.0.remove(&consignment.id);
        }
    }
}

/// Position in the log of what came of it; `None` when another worker had claimed the attempts, or makes them again.
async fn deliver(
    context: &Context,
    consignment: &DueConsignment,
    deliveries: Vec<DueDelivery>,
    first: i64,
) -> Result<Option<i64>, WorkerError> {
    let positions: BTreeSet<_> = deliveries.iter().map(|delivery| delivery.position).collect();
    let mut bodies = Bodies::at(&context.pool, &Vec::from_iter(positions)).await?;
    let ids = deliveries.iter().map(|delivery| DeliveryId(delivery.id)).collect();
    let with_body = |delivery: DueDelivery| bodies.take(delivery.id).map(|body| (delivery, body));
    let due = deliveries.into_iter().map(with_body).collect::<Result<Vec<_>, _>>()?;
    let (claim, begun) = (context.clock.new_id(), Instant::now());
    let begin = ConsignmentCommand::Begin { claim, at: context.clock.now(), ids };
    let send = async |key: &str, command| {
        let key = format!("{key} {claim}");
        context.send_if_still_due::<Consignment>(WebhookDelivery::NAME, consignment.id, &key, command).await
    };
    if send("begin", &begin).await?.is_none() {
        return Ok(None);
    }
    let receiver = Receiver::open(context, consignment).await;
    let mut results = Vec::with_capacity(due.len());
    for (delivery, body) in due {
        if begun.elapsed() >= BEGIN_WITHIN {
            break;
        }
        let span = request_span(context, &delivery, first).await;
        results.push(attempt(context, &receiver, &delivery, body, span).await);
    }
    let record = ConsignmentCommand::Record { claim, results };
    Ok(send("record", &record).await?.and_then(|outcome| outcome.position))
}

/// The span of the request to the receiver. The claim is in the trace of the event at position `first`; deliveries that others
/// led to are in those.
async fn request_span(context: &Context, delivery: &DueDelivery, first: i64) -> Span {
    let parent =
        if delivery.position == first { current() } else { context.trace_at(delivery.position).await };
    Span::begin(Kind::Client, parent.as_deref(), || "POST".to_owned())
}

/// Of the receiver's address nothing is told: it may hold a secret.
fn end(mut span: Span, delivery: &DueDelivery, status: Option<u16>, failed: bool) {
    span.set("http.request.method", "POST");
    span.set_with("signalbox.event.id", || delivery.event_id.to_string());
    span.set_with("signalbox.event.type", || delivery.event_type.clone());
    span.set("signalbox.attempt", i64::from(delivery.attempts) + 1);
    match status {
        Some(status) => {
            span.set("http.response.status_code", i64::from(status));
            if failed {
                span.fail(&status.to_string());
            }
        }
        None => span.fail("no_answer"),
    }
}

/// Where requests go to and what signs them.
struct Receiver {
    target: Target,
    secret: Option<Secret>,
}

impl Receiver {
    async fn open(context: &Context, consignment: &DueConsignment) -> Result<Self, RequestError> {
        let target = consignment.url.parse()?;
        let secret = match &consignment.sealed_secret {
            Some(sealed) => {
                let opened = context.sealer.unseal(consignment.webhook_id, sealed).await;
                Some(opened.map_err(|error| {
                    tracing::error!(%error, webhook = %consignment.webhook_id, "a webhook's secret cannot be read");
                    RequestError::Secret
                })?)
            }
            None => None,
        };
        Ok(Self { target, secret })
    }
}

async fn attempt(
    context: &Context,
    receiver: &Result<Receiver, RequestError>,
    delivery: &DueDelivery,
    body: String,
    span: Span,
) -> AttemptResult {
    let (started_at, begun) = (context.clock.now(), Instant::now());
    let (status, error) = match receiver {
        Err(error) => (None, Some(error.to_string())),
        Ok(receiver) => {
            let outgoing = Outgoing {
                event_id: delivery.event_id,
                event_type: &delivery.event_type,
                attempt: delivery.attempts + 1,
                timestamp: started_at.timestamp(),
                body: &body,
            };
            let headers = headers(&outgoing, receiver.secret.as_ref());
            match context.egress.post(&receiver.target, headers, body.into_bytes()).await {
                Ok(status) if status.is_success() => (Some(status.as_u16()), None),
                Ok(status) => (Some(status.as_u16()), Some(format!("HTTP {}", status.as_u16()))),
                Err(error) => (None, Some(error.to_string())),
            }
        }
    };
    end(span, delivery, status, error.is_some());
    metrics().attempt(error.is_none(), begun.elapsed());
    let duration_ms = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
    AttemptResult { id: DeliveryId(delivery.id), started_at, duration_ms, status, error }
}
