//! Numbers about the service, in the OpenMetrics text format that Prometheus reads.
//!
//! A process counts its own work. Gauges about the whole installation are read from the database when a gateway is
//! scraped, so they are equal on every gateway.

use std::{
    fmt,
    sync::{LazyLock, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// The numbers of this process.
pub fn metrics() -> &'static Metrics {
    &METRICS
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of one process.
pub struct Metrics {
    registry: Registry,
    /// Held while gauges are set and written, so that concurrent scrapes each get consistent values.
    picture: Mutex<()>,
    requests: Durations<RequestLabels>,
    commands: Durations<CommandLabels>,
    appends: Histogram,
    events: Counter,
    datapoints: Counter,
    left_out: Family<LeftOutLabels, Counter>,
    attempts: Durations<AttemptLabels>,
    deliveries: Family<AttemptLabels, Counter>,
    queues: Family<QueueLabels, Gauge>,
    log: Gauge,
    lag: Family<ProjectionLabels, Gauge>,
    followers: Family<FollowerLabels, Gauge>,
    datapoint_lag: Family<ReaderLabels, Gauge>,
    outstanding: Family<WorkLabels, Gauge>,
    oldest: Family<WorkLabels, Gauge<f64, AtomicU64>>,
    mailboxes: Gauge<f64, AtomicU64>,
    oldest_snapshot: Gauge<f64, AtomicU64>,
    faults: Family<PartLabels, Gauge<f64, AtomicU64>>,
    replica: Gauge,
    replica_queries: Family<ReplicaLabels, Counter>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabels {
    context: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabels {
    server: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeftOutLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FollowerLabels {
    follower: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReaderLabels {
    reader: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProjectionLabels {
    projection: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabels {
    work: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: String,
}

/// How the whole installation stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Standing {
    /// Position of the newest event.
    pub log: i64,
    /// Positions that each projection's read model has reached.
    pub projections: Vec<(String, i64)>,
    /// Positions of workers that follow the log.
    pub followers: Vec<(String, i64)>,
    /// Lag of each reader of datapoints.
    pub datapoints_behind: Vec<(&'static str, i64)>,
    /// Pending work, by kind.
    pub work: Vec<Work>,
    /// Messages in the agents' mailboxes; `None` if the bus does not answer.
    pub mailboxes: Option<u64>,
    /// Age of the oldest snapshot in the database; 0 without any.
    pub oldest_snapshot_seconds: f64,
    /// Parts that do not work, and for how many seconds.
    pub faults: Vec<(String, f64)>,
}

/// Work of one kind that waits or is being done.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Which kind.
    pub kind: &'static str,
    /// How much.
    pub count: i64,
    /// Seconds for which the oldest of it has waited; 0 if there is no work.
    pub oldest_seconds: f64,
}

impl Metrics {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("signalbox");
        let metrics = Self {
            requests: Family::new_with_constructor(durations),
            commands: Family::new_with_constructor(durations),
            appends: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            events: Counter::default(),
            datapoints: Counter::default(),
            left_out: Family::default(),
            attempts: Family::new_with_constructor(durations),
            deliveries: Family::default(),
            queues: Family::default(),
            followers: Family::default(),
            datapoint_lag: Family::default(),
            log: Gauge::default(),
            lag: Family::default(),
            outstanding: Family::default(),
            oldest: Family::default(),
            mailboxes: Gauge::default(),
            oldest_snapshot: Gauge::default(),
            faults: Family::default(),
            replica: Gauge::default(),
            replica_queries: Family::default(),
            picture: Mutex::default(),
            registry: Registry::default(),
        };
        registry.register_with_unit(
            "http_request_duration",
            "Time until a request was answered, by route; long polls and sockets last long by design",
            Unit::Seconds,
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "command_duration",
            "Time that a command took from its arrival at a handler to its answer, by context and outcome: done, rejected or unavailable",
            Unit::Seconds,
            metrics.commands.clone(),
        );
        registry.register(
            "append_commands",
            "Commands that shared one commit of the event log",
            metrics.appends.clone(),
        );
        registry.register(
            "events_appended",
            "Events that this process appended to the log",
            metrics.events.clone(),
        );
        registry.register(
            "datapoints_appended",
            "Datapoints that this process appended to their log",
            metrics.datapoints.clone(),
        );
        registry.register(
            "values_left_out",
            "Values that a way in took and did not record, because no channel can hold them, by reason: text for fields of line protocol, not_a_number for stale markers, NaN and infinities of remote write, histogram for its native histograms",
            metrics.left_out.clone(),
        );
        registry.register_with_unit(
            "webhook_attempt_duration",
            "Time that a request to a webhook's receiver took, by outcome: delivered or failed",
            Unit::Seconds,
            metrics.attempts.clone(),
        );
        registry.register(
            "webhook_deliveries",
            "Deliveries of webhooks by outcome: delivered, or dead_letter when they were given up; each is counted once, by the process that fans out at that time",
            metrics.deliveries.clone(),
        );
        registry.register(
            "queue_depth",
            "What still waited in a queue of this process when it was last served, by queue: append for commands, append_datapoints for batches",
            metrics.queues.clone(),
        );
        registry.register("log_position", "Position of the newest event of the log", metrics.log.clone());
        registry.register(
            "projection_lag_events",
            "Events by which a read model is behind the log",
            metrics.lag.clone(),
        );
        registry.register(
            "follower_lag_events",
            "Events by which a worker is behind the log that it follows: events for the relay to JetStream, webhooks for their fan-out, rule_log for entries about rules, chain for the hash chain",
            metrics.followers.clone(),
        );
        registry.register(
            "datapoint_lag",
            "Datapoints by which a reader is behind their log: series for the read model, rules and alarms for their evaluation",
            metrics.datapoint_lag.clone(),
        );
        registry.register(
            "outstanding_work",
            "Work that waits or is being done, by kind",
            metrics.outstanding.clone(),
        );
        registry.register_with_unit(
            "oldest_outstanding_work",
            "Age of the oldest work that waits or is being done, by kind; 0 without work",
            Unit::Seconds,
            metrics.oldest.clone(),
        );
        registry.register(
            "mailbox_messages",
            "Messages that wait in the agents' mailboxes; NaN while the bus does not say",
            metrics.mailboxes.clone(),
        );
        registry.register_with_unit(
            "oldest_snapshot",
            "Age of the oldest snapshot in the database, which keeps replaced rows from being removed; 0 without any",
            Unit::Seconds,
            metrics.oldest_snapshot.clone(),
        );
        registry.register_with_unit(
            "fault",
            "Time for which a part has not worked, by part; parts that work are absent",
            Unit::Seconds,
            metrics.faults.clone(),
        );
        registry.register(
            "replica_serves",
            "Whether this gateway reads the replica of the database: 1, or 0 while that lags or none is configured",
            metrics.replica.clone(),
        );
        registry.register(
            "replica_queries",
            "Queries for which a replica is configured, by the server that answered them: replica or primary",
            metrics.replica_queries.clone(),
        );
        let metrics = Self { registry, ..metrics };
        metrics.begin_at_zero();
        metrics
    }

    /// Prometheus sees the first increase of a counter only if that was there before.
    fn begin_at_zero(&self) {
        for outcome in ["delivered", "dead_letter"] {
            self.deliveries(outcome, 0);
        }
        for outcome in ["delivered", "failed"] {
            drop(self.attempts.get_or_create(&AttemptLabels { outcome }));
        }
        for reason in ["text", "not_a_number", "histogram"] {
            self.left_out(reason, 0);
        }
        for server in ["replica", "primary"] {
            drop(self.replica_queries.get_or_create(&ReplicaLabels { server }));
        }
    }

    /// A request was answered.
    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = RequestLabels { method: method.to_owned(), route: route.to_owned(), status };
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A command of `context` was answered; `outcome` is `done`, `rejected` or `unavailable`.
    pub fn command(&self, context: &str, outcome: &'static str, took: Duration) {
        let labels = CommandLabels { context: context.to_owned(), outcome };
        self.commands.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// `commands` shared a commit, which brought the log `events`.
    pub fn append(&self, commands: usize, events: usize) {
        self.appends.observe(commands as f64);
        self.events.inc_by(events as u64);
    }

    /// Counts appended datapoints.
    pub fn datapoints(&self, count: u64) {
        self.datapoints.inc_by(count);
    }

    /// Counts values that were taken and not recorded.
    pub fn left_out(&self, reason: &'static str, count: u64) {
        self.left_out.get_or_create(&LeftOutLabels { reason }).inc_by(count);
    }

    /// A query that the replica may answer was answered, there or by the primary.
    pub fn replica_query(&self, at_replica: bool) {
        let labels = ReplicaLabels { server: if at_replica { "replica" } else { "primary" } };
        self.replica_queries.get_or_create(&labels).inc();
    }

    /// Whether this process reads the replica now.
    pub fn replica_serves(&self, serves: bool) {
        self.replica.set(i64::from(serves));
    }

    /// A request to a webhook's receiver has ended.
    pub fn attempt(&self, delivered: bool, took: Duration) {
        let labels = AttemptLabels { outcome: if delivered { "delivered" } else { "failed" } };
        self.attempts.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts finished deliveries of webhooks; `outcome` is `delivered` or `dead_letter`.
    pub fn deliveries(&self, outcome: &'static str, count: u64) {
        self.deliveries.get_or_create(&AttemptLabels { outcome }).inc_by(count);
    }

    /// `waiting` entries are left in `queue`.
    pub fn queue(&self, queue: &'static str, waiting: usize) {
        self.queues.get_or_create(&QueueLabels { queue }).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// All numbers as text of [`MEDIA_TYPE`]; those about the whole installation only with its `standing`.
    ///
    /// # Errors
    /// When a number cannot be written.
    pub fn text(&self, standing: Option<&Standing>) -> Result<String, fmt::Error> {
        let _whole = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = standing {
            self.show(standing);
        }
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn show(&self, standing: &Standing) {
        self.log.set(standing.log);
        for (projection, position) in &standing.projections {
            let labels = ProjectionLabels { projection: projection.clone() };
            self.lag.get_or_create(&labels).set((standing.log - position).max(0));
        }
        for (follower, position) in &standing.followers {
            let labels = FollowerLabels { follower: follower.clone() };
            self.followers.get_or_create(&labels).set((standing.log - position).max(0));
        }
        for (reader, behind) in &standing.datapoints_behind {
            self.datapoint_lag.get_or_create(&ReaderLabels { reader }).set((*behind).max(0));
        }
        for work in &standing.work {
            let labels = WorkLabels { work: work.kind };
            self.outstanding.get_or_create(&labels).set(work.count);
            self.oldest.get_or_create(&labels).set(work.oldest_seconds);
        }
        self.mailboxes.set(standing.mailboxes.map_or(f64::NAN, |messages| messages as f64));
        self.oldest_snapshot.set(standing.oldest_snapshot_seconds);
        self.faults.clear();
        for (part, seconds) in &standing.faults {
            self.faults.get_or_create(&PartLabels { part: part.clone() }).set(*seconds);
        }
    }
}

/// From a millisecond to a minute.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_help_and_unit() {
        let metrics = Metrics::new();
        metrics.request("GET", "/api/v1/rules/{id}", 200, Duration::from_millis(3));
        metrics.append(4, 6);
        let work = vec![Work { kind: "transfer", count: 2, oldest_seconds: 1.5 }];
        let projections = vec![("transfer".to_owned(), 90)];
        metrics.deliveries("dead_letter", 2);
        metrics.queue("append", 5);
        let followers = vec![("webhooks".to_owned(), 97)];
        let datapoints_behind = vec![("rules", 12)];
        let mailboxes = Some(3);
        let (oldest_snapshot_seconds, faults) = (2.5, vec![("worker.cleanup".to_owned(), 30.0)]);
        let standing = Standing {
            log: 100,
            projections,
            followers,
            datapoints_behind,
            work,
            mailboxes,
            oldest_snapshot_seconds,
            faults,
        };
        let text = metrics.text(Some(&standing)).unwrap();
        for line in [
            "# HELP signalbox_http_request_duration_seconds Time until a request was answered, by route; long polls and sockets last long by design.",
            "# UNIT signalbox_http_request_duration_seconds seconds",
            "signalbox_http_request_duration_seconds_count{method=\"GET\",route=\"/api/v1/rules/{id}\",status=\"200\"} 1",
            "signalbox_events_appended_total 6",
            "signalbox_log_position 100",
            "signalbox_projection_lag_events{projection=\"transfer\"} 10",
            "signalbox_follower_lag_events{follower=\"webhooks\"} 3",
            "signalbox_datapoint_lag{reader=\"rules\"} 12",
            "signalbox_webhook_deliveries_total{outcome=\"dead_letter\"} 2",
            "signalbox_queue_depth{queue=\"append\"} 5",
            "signalbox_outstanding_work{work=\"transfer\"} 2",
            "signalbox_oldest_outstanding_work_seconds{work=\"transfer\"} 1.5",
            "signalbox_mailbox_messages 3.0",
            "signalbox_oldest_snapshot_seconds 2.5",
            "signalbox_fault_seconds{part=\"worker.cleanup\"} 30.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        let document = include_str!("../../../docs/metrics.md");
        for name in text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()) {
            assert!(document.contains(&format!("`{name}")), "{name} is not in docs/metrics.md");
        }
    }
}
