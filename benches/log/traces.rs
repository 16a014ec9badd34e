//! A log as it grows in use: transfers, deliveries, documents, entries, sessions and agents, of which many are in progress at the
//! same time. Each event is what an aggregate decides on a command, and is appended by the store's own writer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use anyhow::{Context as _, ensure};
use chrono::TimeDelta;
use signalbox_clock::Clock;
use signalbox_domain::{
    automation::{AttemptResult, DeliveryBatch, DeliveryBatchCommand, NewDelivery, RetryPolicy},
    extraction::{
        ExtractionJob, ExtractionJobCommand, ExtractionOptions, ExtractionResult, NewExtractionJob,
    },
    identity::{Session, SessionCommand},
    kernel::{Actor, AgentId, Decider, DeliveryId, JobId, Metadata, Sha256Hex, UserId, WebhookId},
    monitoring::{LogEntry, LogEntryCommand, LogStatus, LogType, NewLogEntry},
    transfer::{
        Agent, AgentCommand, AgentRef, AgentSystem, Arrival, JobRef, JobType, Leg, NewTransfer, Retry,
        StagedFile, Transfer, TransferCommand, TransportMode,
    },
};
use signalbox_event_store::{Appender, Execution, execute, head_position};
use sqlx::PgPool;
use tokio::task::JoinSet;
use uuid::Uuid;

/// Traces that are written at the same time.
const WRITERS: usize = 128;
/// Deliveries of a batch.
const DELIVERIES: usize = 4;

/// Appends events until the log has `count`; returns how many in a second.
pub async fn write(pool: &PgPool, count: i64) -> anyhow::Result<f64> {
    let (first, start) = (head_position(pool).await?, Instant::now());
    let writer = Arc::new(Writer::new(pool.clone()).await?);
    let (next, mut writers) = (Arc::new(AtomicI64::new(0)), JoinSet::new());
    for _ in 0..WRITERS {
        let (writer, next) = (writer.clone(), next.clone());
        writers.spawn(async move {
            while writer.head.load(Ordering::Relaxed) < count {
                writer.write(next.fetch_add(1, Ordering::Relaxed)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let rate = (head_position(pool).await? - first) as f64 / start.elapsed().as_secs_f64();
    // Command handlers go on behind the numbers that were given out here.
    let last = writer.first_number + next.load(Ordering::Relaxed);
    sqlx::query("SELECT setval('ops.transfer_numbers', $1)").bind(last).execute(pool).await?;
    sqlx::query("ANALYZE events").execute(pool).await?;
    Ok(rate)
}

struct Writer {
    pool: PgPool,
    appender: Appender,
    clock: Clock,
    users: Vec<UserId>,
    agents: Vec<AgentRef>,
    jobs: Vec<JobRef>,
    webhooks: Vec<WebhookId>,
    first_number: i64,
    /// Newest position that is known.
    head: AtomicI64,
}

/// One causal trace: its user, and the correlation of its events.
struct Trace<'a> {
    writer: &'a Writer,
    nth: i64,
    user: UserId,
    correlation: String,
}

impl Writer {
    async fn new(pool: PgPool) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let ids = async |table: &str| {
            let sql = format!("SELECT id FROM read.{table} ORDER BY id");
            let ids: Vec<Uuid> = sqlx::query_scalar(&sql).fetch_all(&pool).await?;
            ensure!(!ids.is_empty(), "there are no {table}");
            anyhow::Ok(ids)
        };
        let numbered = async |table: &str| {
            let sql = format!("SELECT id, number FROM read.{table} ORDER BY id");
            let found: Vec<(Uuid, i64)> = sqlx::query_as(&sql).fetch_all(&pool).await?;
            ensure!(!found.is_empty(), "there are no {table}");
            anyhow::Ok(found)
        };
        let (agents, jobs) = (numbered("agents").await?, numbered("jobs").await?);
        let agents = agents.into_iter().map(|(id, number)| AgentRef { id: AgentId(id), number });
        let jobs = jobs.into_iter().map(|(id, number)| JobRef { id: JobId(id), number });
        Ok(Self {
            users: ids("users").await?.into_iter().map(UserId).collect(),
            webhooks: ids("webhooks").await?.into_iter().map(WebhookId).collect(),
            agents: agents.collect(),
            jobs: jobs.collect(),
            first_number: sqlx::query_scalar("SELECT nextval('ops.transfer_numbers')")
                .fetch_one(&pool)
                .await?,
            head: AtomicI64::new(head_position(&pool).await?),
            appender: Appender::start(pool.clone(), clock.clone()),
            clock,
            pool,
        })
    }

    /// Writes the trace `nth`.
    async fn write(&self, nth: i64) -> anyhow::Result<()> {
        let trace =
            Trace { writer: self, nth, user: of(&self.users, nth), correlation: format!("trace-{nth}") };
        match nth % 20 {
            0..=11 => trace.transfer().await,
            12 | 13 => trace.batch().await,
            14 | 15 => trace.document().await,
            16 | 17 => trace.entry().await,
            18 => trace.session().await,
            _ => trace.agent().await,
        }
        .with_context(|| format!("trace {nth}"))
    }
}

fn of<T: Copy>(things: &[T], nth: i64) -> T {
    things[nth as usize % things.len()]
}

impl Trace<'_> {
    fn new_id(&self) -> Uuid {
        self.writer.clock.new_id()
    }

    fn digest(&self) -> Sha256Hex {
        let mut bytes = [0x5a; 32];
        bytes[..8].copy_from_slice(&self.nth.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).to_be_bytes());
        Sha256Hex::from_bytes(&bytes)
    }

    async fn send<D: Decider>(&self, id: Uuid, actor: Actor, command: D::Command) -> anyhow::Result<()> {
        let metadata = Metadata {
            command_id: self.new_id(),
            actor,
            causation: None,
            correlation: self.correlation.clone(),
            traceparent: None,
            restored_version: None,
        };
        let execution = Execution { aggregate_id: id, expected_version: None, metadata, command };
        let outcome = execute::<D>(&self.writer.pool, &self.writer.appender, execution).await?;
        self.writer.head.fetch_max(outcome.position.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }

    /// A file moves; now and then somebody stops it, or the source does not have it.
    async fn transfer(&self) -> anyhow::Result<()> {
        let (id, user) = (self.new_id(), Actor::User(self.user));
        let [source, destination] = [self.nth, self.nth + 1].map(|nth| of(&self.writer.agents, nth));
        let size = 5000 + (self.nth as u64 * 7919) % 10_000_000;
        let new = NewTransfer {
            number: self.writer.first_number + self.nth,
            owner: self.user,
            job: (self.nth % 3 > 0).then(|| of(&self.writer.jobs, self.nth)),
            kind: JobType::Push,
            source_agent: Some(source),
            destination_agent: destination,
            source_path: format!("results/{}.csv", self.nth),
            destination_path: format!("incoming/{}.csv", self.nth),
            filename: format!("{}.csv", self.nth),
            size: None,
            retry: Retry::default(),
            scheduled_for: None,
        };
        let dispatcher = || Actor::system("dispatch");
        let [by_source, by_destination] = [source.id, destination.id].map(Actor::Agent);
        self.send::<Transfer>(id, user.clone(), TransferCommand::Request(new)).await?;
        self.send::<Transfer>(id, dispatcher(), TransferCommand::Dispatch).await?;
        let progress =
            |leg| TransferCommand::Progress { leg, bytes: size / 2, total: Some(size), attempt: None };
        self.send::<Transfer>(id, by_source.clone(), progress(Leg::Upload)).await?;
        match self.nth % 50 {
            0 => return self.send::<Transfer>(id, user, TransferCommand::Cancel).await,
            1 => {
                let error = format!("results/{}.csv: no such file", self.nth);
                let agent = source.id;
                let failed =
                    TransferCommand::ReportError { agent, attempt: Some(1), error, retryable: false };
                return self.send::<Transfer>(id, by_source, failed).await;
            }
            _ => {}
        }
        let file = StagedFile { name: format!("{}.csv", self.nth), size, sha256: self.digest() };
        self.send::<Transfer>(id, by_source.clone(), TransferCommand::Stage { files: vec![file] }).await?;
        let arrival = |leg| Arrival {
            attempt: Some(1),
            leg: Some(leg),
            sha256: Some(self.digest()),
            files: (leg == Leg::Upload).then_some(1),
        };
        let complete = |agent, leg| TransferCommand::ReportComplete { agent, arrival: arrival(leg) };
        self.send::<Transfer>(id, by_source, complete(source.id, Leg::Upload)).await?;
        self.send::<Transfer>(id, dispatcher(), TransferCommand::Dispatch).await?;
        self.send::<Transfer>(id, by_destination.clone(), progress(Leg::Download)).await?;
        self.send::<Transfer>(id, by_destination, complete(destination.id, Leg::Download)).await
    }

    /// Some events are delivered to a subscription.
    async fn batch(&self) -> anyhow::Result<()> {
        let (id, claim) = (self.new_id(), self.new_id());
        let webhook = of(&self.writer.webhooks, self.nth);
        let now = || self.writer.clock.now();
        let delivery = |place: usize| {
            let event = self.new_id();
            let body = format!(
                r#"{{"type":"experiment.started","time":"{}","id":"{event}","experiment_name":"run {} {place}","experiment_id":"{}"}}"#,
                now().to_rfc3339(),
                self.nth,
                self.new_id(),
            );
            NewDelivery {
                id: DeliveryId(self.new_id()),
                event_id: event,
                event_type: "experiment.started".to_owned(),
                body,
            }
        };
        let deliveries: Vec<_> = (0..DELIVERIES).map(delivery).collect();
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        let results = ids.iter().map(|id| AttemptResult {
            is_final: false,
            id: *id,
            started_at: now(),
            duration_ms: 12,
            status: Some(200),
            error: None,
            retry_after_seconds: None,
        });
        let results = results.collect();
        let queue = DeliveryBatchCommand::Queue { webhook, deliveries };
        self.send::<DeliveryBatch>(id, Actor::system("webhook-fan-out"), queue).await?;
        let worker = || Actor::system("webhook-delivery");
        let begin = DeliveryBatchCommand::Begin { claim, at: now(), ids };
        self.send::<DeliveryBatch>(id, worker(), begin).await?;
        let retry = RetryPolicy::Default;
        self.send::<DeliveryBatch>(id, worker(), DeliveryBatchCommand::Record { claim, results, retry }).await
    }

    /// A document becomes text, which has been removed since, like the document.
    async fn document(&self) -> anyhow::Result<()> {
        let (id, claim) = (self.new_id(), self.new_id());
        let now = || self.writer.clock.now();
        let options = ExtractionOptions {
            output_format: "markdown".to_owned(),
            engine: "auto".to_owned(),
            ocr_engine: "tesseract".to_owned(),
            language: "deu".to_owned(),
            processors: vec!["cleanup".to_owned(), "structure".to_owned()],
            front_matter: false,
            words: false,
            chunks: false,
            chunk_words: None,
            keep_input: false,
            keep: false,
        };
        let new = NewExtractionJob {
            owner: Some(self.user),
            filename: format!("Prüfbericht {}.pdf", self.nth),
            size: 48_000,
            sha256: self.digest(),
            input: self.new_id(),
            options,
            callback: None,
        };
        let result = ExtractionResult {
            mime_type: "application/pdf".to_owned(),
            size: 9000,
            sha256: self.digest(),
            extractor_used: "pdfium".to_owned(),
            ocr_engine_used: None,
            page_count: Some(8),
            confidence: 0.875,
            cached: false,
            milliseconds: 240,
            warnings: Vec::new(),
        };
        let advance = ExtractionJobCommand::Advance { claim, at: now(), pages_done: 4, page_count: Some(8) };
        self.send::<ExtractionJob>(id, Actor::User(self.user), ExtractionJobCommand::Submit(new)).await?;
        for command in [
            ExtractionJobCommand::Begin { claim, at: now() },
            advance,
            ExtractionJobCommand::Complete { claim, result },
            ExtractionJobCommand::RecordInputRemoved,
            ExtractionJobCommand::RecordResultExpired,
        ] {
            self.send::<ExtractionJob>(id, Actor::system("extraction"), command).await?;
        }
        Ok(())
    }

    /// Somebody writes what has happened, and somebody takes note.
    async fn entry(&self) -> anyhow::Result<()> {
        let (id, user) = (self.new_id(), Actor::User(self.user));
        let write = LogEntryCommand::Write(NewLogEntry {
            kind: LogType::Warning,
            content: format!("Druck in Leitung {} über dem Grenzwert", self.nth % 97),
            source: "rules".to_owned(),
            user: None,
        });
        self.send::<LogEntry>(id, Actor::system("rules"), write).await?;
        let read = LogEntryCommand::Change { status: Some(LogStatus::Read), content: None };
        self.send::<LogEntry>(id, user, read).await
    }

    /// Somebody logs in, stays, and logs out.
    async fn session(&self) -> anyhow::Result<()> {
        let (id, user) = (self.new_id(), Actor::User(self.user));
        let expires = |hours| self.writer.clock.now() + TimeDelta::hours(hours);
        let start = SessionCommand::Start { user: self.user, expires_at: expires(24) };
        self.send::<Session>(id, user.clone(), start).await?;
        self.send::<Session>(id, user.clone(), SessionCommand::Renew { expires_at: expires(48) }).await?;
        self.send::<Session>(id, user, SessionCommand::End).await
    }

    /// A machine connects and disconnects.
    async fn agent(&self) -> anyhow::Result<()> {
        let (agent, session) = (of(&self.writer.agents, self.nth / 20).id, self.new_id());
        let by = Actor::Agent(agent);
        let connect = AgentCommand::Connect { session, transport: TransportMode::Websocket };
        self.send::<Agent>(agent.0, by.clone(), connect).await?;
        let describe = AgentCommand::Describe(AgentSystem {
            version: Some("0.1.0".to_owned()),
            hostname: Some(format!("press{}", self.nth)),
            system: Some("linux".to_owned()),
            ip_address: Some("192.0.2.1".to_owned()),
            capabilities: ["checksum", "tree", "resume"].map(str::to_owned).into(),
        });
        self.send::<Agent>(agent.0, by.clone(), describe).await?;
        let disconnect = AgentCommand::Disconnect { session, reason: "the connection was closed".to_owned() };
        self.send::<Agent>(agent.0, by, disconnect).await
    }
}
