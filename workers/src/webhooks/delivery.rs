//! Sends due deliveries.
//!
//! Reads due attempts and claims in force from the read model; claims a batch's due attempts by `Begin`, sends them
//! one after the other, and records their results by `Record`. At most ten requests are in flight in the whole
//! installation and three per subscription: a claim is a slot, and claims in force are in the read model, whichever
//! process made them, so the limits hold also while one process takes over from another. If the worker crashes, its
//! claims expire after [`CLAIM_SECONDS`] of PostgreSQL's clock and the attempts are repeated under their numbers; a
//! receiver may then get an event twice, by the same id. A delivery waiting for its next attempt holds no slot.
//! Nothing is kept in JetStream.
//!
//! A delivery whose event cannot be read is reported as a failing item of this worker and retried with growing
//! backoff; so is a batch that cannot be claimed because its history cannot be read. Neither delays any other.
//!
//! A subscription whose attempts all fail gets one slot instead of three, so that several failing receivers do not
//! use up all.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use signalbox_config::Secret;
use signalbox_database::ServerClock;
use signalbox_domain::{
    automation::{AttemptResult, CLAIM_SECONDS, DeliveryBatch, DeliveryBatchCommand, Webhook},
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
        due::{DueBatch, DueDelivery, due_batches, due_deliveries, live_claims},
    },
    checkpoint,
};
use signalbox_telemetry::{Kind, Span, current};
use tokio::{task::JoinSet, time::Instant};
use uuid::Uuid;

use super::request::{Outgoing, RequestError, headers};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::span};

/// Requests in progress in the whole installation.
const SLOTS: usize = 10;
/// Requests in progress for one subscription.
const SLOTS_EACH: usize = 3;
/// Requests in progress for one that is failing.
const SLOTS_FAILING: usize = 1;
/// Time limit of the attempts of one batch; beyond it a fault is reported.
const LIMIT: Duration = Duration::from_secs(120);
/// A request under a claim starts within this time, so that it ends before the claim expires: 3 s and the 10 s that a
/// request may take are less than [`CLAIM_SECONDS`].
const BEGIN_WITHIN: Duration = Duration::from_secs(3);
const _: () = assert!(BEGIN_WITHIN.as_secs() + 10 < CLAIM_SECONDS.unsigned_abs());

/// The delivery worker.
#[derive(Debug, Default)]
pub struct WebhookDelivery {
    lanes: Arc<Mutex<Lanes>>,
    /// Batches and deliveries.
    failures: Arc<Failures>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

/// Batches that this process works on or has just worked on. The read model shows the latter as before for a moment.
#[derive(Debug, Default)]
struct Lanes(HashMap<Uuid, Lane>);

#[derive(Debug, Clone, Copy)]
struct Lane {
    webhook: Uuid,
    /// Position of its outcome in the log; none while requests are in progress.
    ended: Option<i64>,
}

impl Worker for WebhookDelivery {
    const NAME: &'static str = "webhook-delivery";

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == DeliveryBatch::TYPE || word == Webhook::TYPE)
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        self.failures.report(context, Self::NAME).await?;
        let mut running = self.running.lock().await;
        while running.try_join_next().is_some() {}
        let shown = checkpoint(&context.pool, AutomationProjection::NAME).await?;
        self.with_lanes(|lanes| lanes.0.retain(|_, lane| lane.ended.is_none_or(|position| position > shown)));
        let time = context.server_clock().await?;
        let now = time.now();
        let live = live_claims(&context.pool, now).await?;
        let mut slots = Slots::default();
        let busy = self.with_lanes(|lanes| {
            let foreign = live.iter().filter(|claim| !lanes.0.contains_key(&claim.consignment_id));
            foreign.for_each(|claim| slots.take(claim.webhook_id));
            lanes.0.values().filter(|lane| lane.ended.is_none()).for_each(|lane| slots.take(lane.webhook));
            let claimed = live.iter().map(|claim| claim.consignment_id);
            lanes.0.keys().copied().chain(claimed).chain(self.failures.paused()).collect::<Vec<_>>()
        });
        if slots.free() == 0 {
            return Ok(false);
        }
        let due = due_batches(&context.pool, now, &busy, &slots.full(), SLOTS as i64).await?;
        let due: Vec<_> = due.into_iter().filter(|due| slots.try_take(due)).collect();
        let ids: Vec<_> = due.iter().map(|due| due.id).collect();
        let mut deliveries: HashMap<Uuid, Vec<DueDelivery>> = HashMap::new();
        if !ids.is_empty() {
            for delivery in due_deliveries(&context.pool, now, &ids, &busy).await? {
                deliveries.entry(delivery.consignment_id).or_default().push(delivery);
            }
        }
        for batch in due {
            let Some(deliveries) = deliveries.remove(&batch.id) else { continue };
            let lane = Lane { webhook: batch.webhook_id, ended: None };
            self.with_lanes(|lanes| lanes.0.insert(batch.id, lane));
            let (context, lanes, failures) = (context.clone(), self.lanes.clone(), self.failures.clone());
            running.spawn(run_lane(context, lanes, failures, time.clone(), batch, deliveries));
        }
        Ok(false)
    }
}

impl WebhookDelivery {
    fn with_lanes<T>(&self, act: impl FnOnce(&mut Lanes) -> T) -> T {
        act(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The slots of each subscription.
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

    fn try_take(&mut self, due: &DueBatch) -> bool {
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

/// Claims, sends and records the due attempts of one batch.
async fn run_lane(
    context: Context,
    lanes: Arc<Mutex<Lanes>>,
    failures: Arc<Failures>,
    time: ServerClock,
    batch: DueBatch,
    deliveries: Vec<DueDelivery>,
) {
    let _running = context.steps.begin("worker.webhook-delivery.requests", LIMIT);
    let first = deliveries.first().map(|delivery| delivery.position).unwrap_or_default();
    let span = span(WebhookDelivery::NAME, context.trace_at(first).await);
    let delivered = span.around(deliver(&context, &failures, &time, &batch, deliveries, first)).await;
    drop(span);
    let (ended, result) = match delivered {
        Ok(ended) => (ended, Ok(())),
        Err(error) => {
            tracing::warn!(%error, webhook = %batch.webhook_id, "attempts were not recorded; they are made again");
            (None, Err(error))
        }
    };
    // An error that concerns everything passes, and the attempts are due as before.
    drop(failures.settle(batch.id, result));
    let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
    match (ended, lanes.0.get_mut(&batch.id)) {
        (Some(position), Some(lane)) => lane.ended = Some(position),
        _ => {
            lanes.0.remove(&batch.id);
        }
    }
}

/// Log position of the results; `None` if another worker had claimed the attempts, or repeats them.
async fn deliver(
    context: &Context,
    failures: &Failures,
    time: &ServerClock,
    batch: &DueBatch,
    deliveries: Vec<DueDelivery>,
    first: i64,
) -> Result<Option<i64>, WorkerError> {
    let due = with_bodies(context, failures, deliveries).await?;
    if due.is_empty() {
        return Ok(None);
    }
    let ids = due.iter().map(|(delivery, _)| DeliveryId(delivery.id)).collect();
    let (claim, begun) = (context.clock.new_id(), Instant::now());
    let begin = DeliveryBatchCommand::Begin { claim, at: time.now(), ids };
    let send = async |key: &str, command| {
        let key = format!("{key} {claim}");
        context.send_for_item::<DeliveryBatch>(WebhookDelivery::NAME, batch.id, &key, command).await
    };
    if send("begin", &begin).await?.is_none() {
        return Ok(None);
    }
    let receiver = Receiver::open(context, batch).await;
    let mut results = Vec::with_capacity(due.len());
    for (delivery, body) in due {
        if begun.elapsed() >= BEGIN_WITHIN {
            break;
        }
        let span = request_span(context, &delivery, first).await;
        results.push(attempt(context, time, &receiver, &delivery, body, span).await);
    }
    let record = DeliveryBatchCommand::Record { claim, results };
    Ok(send("record", &record).await?.and_then(|outcome| outcome.position))
}

/// Those of `deliveries` whose bodies can be read, with these; the others have failed.
async fn with_bodies(
    context: &Context,
    failures: &Failures,
    deliveries: Vec<DueDelivery>,
) -> Result<Vec<(DueDelivery, String)>, WorkerError> {
    let positions: BTreeSet<_> = deliveries.iter().map(|delivery| delivery.position).collect();
    let mut bodies = Bodies::at(&context.pool, &Vec::from_iter(positions)).await?;
    let mut readable = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let body = bodies.take(delivery.id, delivery.position);
        let (body, result) = match body {
            Ok(body) => (Some(body), Ok(())),
            Err(error) => (None, Err(error.into())),
        };
        failures.settle(delivery.id, result)?;
        readable.extend(body.map(|body| (delivery, body)));
    }
    Ok(readable)
}

/// The span of the request to the receiver. The claim is in the trace of the event at position `first`; deliveries that others
/// led to are in those.
async fn request_span(context: &Context, delivery: &DueDelivery, first: i64) -> Span {
    let parent =
        if delivery.position == first { current() } else { context.trace_at(delivery.position).await };
    Span::begin(Kind::Client, parent.as_deref(), || "POST".to_owned())
}

/// The span must not contain the receiver's address: it may hold a secret.
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

/// Address of the requests, and the secret that signs them.
struct Receiver {
    target: Target,
    secret: Option<Secret>,
    no_loopback: bool,
}

impl Receiver {
    async fn open(context: &Context, batch: &DueBatch) -> Result<Self, RequestError> {
        let target = batch.url.parse()?;
        let secret = match &batch.sealed_secret {
            Some(sealed) => {
                let opened = context.sealer.unseal(batch.webhook_id, sealed).await;
                Some(opened.map_err(|error| {
                    tracing::error!(%error, webhook = %batch.webhook_id, "a webhook's secret cannot be read");
                    RequestError::Secret
                })?)
            }
            None => None,
        };
        Ok(Self { target, secret, no_loopback: batch.no_loopback })
    }
}

async fn attempt(
    context: &Context,
    time: &ServerClock,
    receiver: &Result<Receiver, RequestError>,
    delivery: &DueDelivery,
    body: String,
    span: Span,
) -> AttemptResult {
    let (started_at, begun) = (time.now(), Instant::now());
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
            let egress =
                if receiver.no_loopback { &context.egress_without_loopback } else { &context.egress };
            match egress.post(&receiver.target, headers, body.into_bytes()).await {
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
