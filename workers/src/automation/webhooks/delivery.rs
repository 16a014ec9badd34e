//! Sends due deliveries.
//!
//! Reads due attempts and claims in force from the read model; claims a batch's due attempts by `Begin`, sends them
//! one after the other, and records their results by `Record`. The requests in flight in the whole installation and per
//! subscription are limited by `[webhooks]` in the configuration: a claim is a slot, and claims in force are in the read
//! model, whichever process made them, so the limits hold also while one process takes over from another. Above ten
//! requests, all processes with workers send, by [`super::slots`]. If the worker crashes, its claims expire after [`CLAIM_SECONDS`] of PostgreSQL's clock and the attempts are repeated under their numbers; a
//! receiver may then get an event twice, by the same id. A delivery waiting for its next attempt holds no slot.
//! Nothing is kept in JetStream.
//!
//! A delivery whose event cannot be read is reported as a failing item of this worker and retried with growing
//! backoff; so is a batch that cannot be claimed because its history cannot be read. Neither delays any other.
//!
//! A subscription whose attempts all fail gets one slot instead of three, and all of these together do not get all, nor do
//! contacts. Messages for contacts are first, then the subscription that was served the longest ago.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use signalbox_config::Webhooks;
use signalbox_database::{ServerClock, ops::webhook_slots};
use signalbox_domain::{
    automation::{
        AttemptResult, CLAIM_SECONDS, DeliveryBatch, DeliveryBatchCommand, RetryPolicy, Webhook,
        WebhookCommand,
    },
    kernel::{Decider, WebhookId},
};
use signalbox_messaging::Wakeup;
use signalbox_metrics::metrics;
use signalbox_projections::{
    Projection,
    automation::{
        AutomationProjection,
        deliveries::Bodies,
        due::{
            DueBatch, DueDelivery, DueFilter, LiveClaim, due_batches, due_deliveries, live_claims,
            sharing_receivers,
        },
    },
    checkpoint,
};
use signalbox_telemetry::{Kind, Span, current};
use tokio::{task::JoinSet, time::Instant};
use uuid::Uuid;

use super::{
    receiver::{Answer, Receiver, ReceiverError, Senders},
    request::retry_after,
    slots::{Limits, Slots, reserve, slots_of},
};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::span};

/// The status by which a receiver says that it wants no more events.
const GONE: u16 = 410;
/// Subscriptions and contacts whose turn is remembered.
const SERVED: usize = 256;
/// Time limit of the attempts of one batch; beyond it a fault is reported.
const LIMIT: Duration = Duration::from_secs(120);
/// A request under a claim starts within this time, so that it ends before the claim expires: 3 s and the 10 s that a
/// request may take are less than [`CLAIM_SECONDS`].
const BEGIN_WITHIN: Duration = Duration::from_secs(3);
const _: () = assert!(BEGIN_WITHIN.as_secs() + 10 < CLAIM_SECONDS.unsigned_abs());

/// The delivery worker.
pub struct WebhookDelivery {
    senders: Senders,
    limits: Limits,
    lanes: Arc<Mutex<Lanes>>,
    /// Batches and deliveries.
    failures: Arc<Failures>,
    running: tokio::sync::Mutex<JoinSet<()>>,
    /// Subscriptions and contacts that were served lately, the last one at the end.
    served: Mutex<VecDeque<WebhookId>>,
    /// Names this worker in its reservations.
    holder: OnceLock<Uuid>,
}

/// Batches that this process works on or has just worked on. The read model shows the latter as before for a moment.
#[derive(Debug, Default)]
struct Lanes(HashMap<Uuid, Lane>);

#[derive(Debug, Clone, Copy)]
struct Lane {
    webhook: WebhookId,
    /// Position of its outcome in the log; none while requests are in progress.
    ended: Option<i64>,
}

impl Worker for WebhookDelivery {
    const NAME: &'static str = "webhook-delivery";

    fn period(&self) -> Duration {
        Duration::from_millis(250)
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
        let limits = self.limits;
        let holder = limits.is_shared().then(|| *self.holder.get_or_init(|| context.clock.new_id()));
        let time = context.server_clock().await?;
        let (now, begun) = (time.now(), Instant::now());
        // Nearly always there is nothing to do: that takes one question.
        if self.with_lanes(|lanes| lanes.0.is_empty())
            && due_batches(&context.pool, now, DueFilter { limit: 1, examined: 1, ..DueFilter::default() })
                .await?
                .is_empty()
        {
            return Ok(false);
        }
        self.forget_shown(context, holder).await?;
        let (live, sharing) =
            tokio::try_join!(live_claims(&context.pool, now), sharing_receivers(&context.pool))?;
        let free = Slots::new(limits, sharing);
        let (mut slots, mut busy) = match holder {
            Some(_) => {
                let reservations = webhook_slots::reservations(&context.pool, now).await?;
                let busy = reservations.iter().map(|reservation| reservation.batch_id).collect();
                (slots_of(free.clone(), &reservations, &live), busy)
            }
            None => (self.own_slots(free.clone(), &live), Vec::new()),
        };
        if slots.free() == 0 {
            return Ok(false);
        }
        busy.extend(self.with_lanes(|lanes| lanes.0.keys().copied().collect::<Vec<_>>()));
        busy.extend(live.iter().map(|claim| claim.batch_id));
        busy.extend(self.failures.paused());
        let (most, examined) = (limits.most_at_a_time(), limits.examined(slots.free()));
        let (full, in_progress, served) = (slots.full(), slots.in_progress(), self.served());
        let filter = DueFilter {
            busy: &busy,
            full: &full,
            in_progress: &in_progress,
            no_failing: slots.is_failing_full(),
            served: &served,
            limit: most as i64,
            examined,
        };
        let due = due_batches(&context.pool, now, filter).await?;
        let mut due: Vec<_> = due.into_iter().filter(|due| slots.try_take(due)).collect();
        if let Some(holder) = holder.filter(|_| !due.is_empty()) {
            due = reserve(&context.pool, holder, free, now, &live, due).await?;
        }
        let has_taken_all = due.len() == most;
        self.note_served(&due);
        let ids: Vec<_> = due.iter().map(|due| due.id).collect();
        let mut deliveries: HashMap<Uuid, Vec<DueDelivery>> = HashMap::new();
        if !ids.is_empty() {
            for delivery in due_deliveries(&context.pool, now, &ids, &busy).await? {
                deliveries.entry(delivery.consignment_id).or_default().push(delivery);
            }
        }
        let mut unused = Vec::new();
        for batch in due {
            let Some(deliveries) = deliveries.remove(&batch.id) else {
                unused.push(batch.id);
                continue;
            };
            let lane = Lane { webhook: batch.webhook_id, ended: None };
            self.with_lanes(|lanes| lanes.0.insert(batch.id, lane));
            let run = Run {
                context: context.clone(),
                senders: self.senders.clone(),
                lanes: self.lanes.clone(),
                failures: self.failures.clone(),
                time: time.clone(),
                reserved: holder.map(|holder| (holder, begun)),
            };
            running.spawn(run.lane(batch, deliveries));
        }
        if let Some(holder) = holder {
            webhook_slots::release(&context.pool, holder, &unused).await?;
        }
        Ok(holder.is_some() && has_taken_all && unused.is_empty())
    }
}

impl WebhookDelivery {
    /// One that sends with `senders`, as much at once as `config` allows.
    pub fn new(senders: Senders, config: &Webhooks) -> Self {
        Self {
            senders,
            limits: Limits::of(config),
            lanes: Arc::default(),
            failures: Arc::default(),
            running: tokio::sync::Mutex::default(),
            served: Mutex::default(),
            holder: OnceLock::new(),
        }
    }

    /// Whether every process sends, instead of one at a time.
    pub fn is_shared(&self) -> bool {
        self.limits.is_shared()
    }

    /// Forgets batches whose results the read model shows.
    async fn forget_shown(&self, context: &Context, holder: Option<Uuid>) -> Result<(), WorkerError> {
        let shown = checkpoint(&context.pool, AutomationProjection::NAME).await?;
        let forgotten: Vec<_> = self.with_lanes(|lanes| {
            let is_shown = |lane: &Lane| lane.ended.is_some_and(|position| position <= shown);
            lanes.0.extract_if(|_, lane| is_shown(lane)).map(|(batch, _)| batch).collect()
        });
        if let Some(holder) = holder {
            webhook_slots::release(&context.pool, holder, &forgotten).await?;
        }
        Ok(())
    }

    fn served(&self) -> Vec<WebhookId> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Notes whose batches are sent, so that the others have their turn first.
    fn note_served(&self, due: &[DueBatch]) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        for batch in due {
            served.retain(|webhook| *webhook != batch.webhook_id);
            served.push_back(batch.webhook_id);
        }
        let forgotten = served.len().saturating_sub(SERVED);
        served.drain(..forgotten);
    }

    /// The slots that this process and claims of others take.
    fn own_slots(&self, mut slots: Slots, live: &[LiveClaim]) -> Slots {
        self.with_lanes(|lanes| {
            let foreign = live.iter().filter(|claim| !lanes.0.contains_key(&claim.batch_id));
            foreign.for_each(|claim| slots.take(claim.webhook_id));
            lanes.0.values().filter(|lane| lane.ended.is_none()).for_each(|lane| slots.take(lane.webhook));
        });
        slots
    }

    fn with_lanes<T>(&self, act: impl FnOnce(&mut Lanes) -> T) -> T {
        act(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The work on one batch.
struct Run {
    context: Context,
    senders: Senders,
    lanes: Arc<Mutex<Lanes>>,
    failures: Arc<Failures>,
    time: ServerClock,
    /// The holder of its reservation, and when that was made.
    reserved: Option<(Uuid, Instant)>,
}

impl Run {
    /// Claims, sends and records the due attempts of `batch`.
    async fn lane(self, batch: DueBatch, deliveries: Vec<DueDelivery>) {
        let context = &self.context;
        let _running = context.steps.begin("worker.webhook-delivery.requests", LIMIT);
        let first = deliveries.first().map(|delivery| delivery.position).unwrap_or_default();
        let span = span(WebhookDelivery::NAME, context.trace_at(first).await);
        let delivered = span.around(self.deliver(&batch, deliveries, first)).await;
        drop(span);
        let (ended, result) = match delivered {
            Ok(ended) => (ended, Ok(())),
            Err(error) => {
                tracing::warn!(%error, webhook = %batch.webhook_id, "attempts were not recorded; they are made again");
                (None, Err(error))
            }
        };
        // An error that concerns everything passes, and the attempts are due as before.
        drop(self.failures.settle(batch.id, result));
        if let Some((holder, _)) = self.reserved {
            let ended = match ended {
                Some(_) => webhook_slots::note_end(&context.pool, holder, batch.id).await,
                None => webhook_slots::release(&context.pool, holder, &[batch.id]).await,
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a slot for webhooks expires instead of being released");
            }
        }
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        match (ended, lanes.0.get_mut(&batch.id)) {
            (Some(position), Some(lane)) => lane.ended = Some(position),
            _ => {
                lanes.0.remove(&batch.id);
            }
        }
    }

    /// Log position of the results; `None` if another worker had claimed the attempts, or repeats them.
    async fn deliver(
        &self,
        batch: &DueBatch,
        deliveries: Vec<DueDelivery>,
        first: i64,
    ) -> Result<Option<i64>, WorkerError> {
        let (context, time) = (&self.context, &self.time);
        let due = with_bodies(context, &self.failures, deliveries).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let ids = due.iter().map(|(delivery, _)| delivery.id).collect();
        // A reservation expires as early as a claim that is made at the same moment.
        let (claim, begun) =
            (context.clock.new_id(), self.reserved.map_or_else(Instant::now, |(_, reserved)| reserved));
        if begun.elapsed() >= BEGIN_WITHIN {
            return Ok(None);
        }
        let begin = DeliveryBatchCommand::Begin { claim, at: time.now(), ids };
        let send = async |key: &str, command| {
            let key = format!("{key} {claim}");
            context.send_for_item::<DeliveryBatch>(WebhookDelivery::NAME, batch.id, &key, command).await
        };
        if send("begin", &begin).await?.is_none() {
            return Ok(None);
        }
        let receiver = Receiver::open(&self.senders, batch, time.now()).await;
        let mut results = Vec::with_capacity(due.len());
        for (delivery, body) in due {
            if begun.elapsed() >= BEGIN_WITHIN {
                break;
            }
            let span = request_span(context, &delivery, first).await;
            let result = attempt(&self.senders, time, &receiver, &delivery, body, span).await;
            let is_webhook = batch.destination.is_none();
            let is_gone = is_webhook && batch.retry() == RetryPolicy::Standard && result.status == Some(GONE);
            results.push(result);
            if is_gone {
                // Before the result: if the worker crashes between the two, the attempt waits with the disabled subscription.
                disable(context, batch, claim).await?;
                break;
            }
        }
        let record = DeliveryBatchCommand::Record { claim, results, retry: batch.retry() };
        Ok(send("record", &record).await?.and_then(|outcome| outcome.position))
    }
}

/// The receiver wants no more events.
async fn disable(context: &Context, batch: &DueBatch, claim: Uuid) -> Result<(), WorkerError> {
    let (id, key) = (batch.webhook_id.0, format!("gone {claim}"));
    let command = WebhookCommand::DisableGone { url: batch.url.clone() };
    context.send_for_item::<Webhook>(WebhookDelivery::NAME, id, &key, &command).await.map(|_| ())
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
        failures.settle(delivery.id.0, result)?;
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

async fn attempt(
    senders: &Senders,
    time: &ServerClock,
    receiver: &Result<Receiver, ReceiverError>,
    delivery: &DueDelivery,
    body: String,
    span: Span,
) -> AttemptResult {
    let (started_at, begun) = (time.now(), Instant::now());
    let Answer { status, error, wait, is_final } = match receiver {
        Err(error) => Answer::failed(error),
        Ok(receiver) => receiver.send(senders, delivery, body, started_at).await,
    };
    end(span, delivery, status, error.is_some());
    metrics().attempt(error.is_none(), begun.elapsed());
    let duration_ms = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
    let retry_after_seconds = wait.and_then(|wait| retry_after(&wait, time.now()));
    let id = delivery.id;
    AttemptResult { id, started_at, duration_ms, status, error, retry_after_seconds, is_final }
}
