use std::{collections::HashMap, sync::OnceLock, time::SystemTime};

use cqrs_es::{
    AggregateContext, AggregateError, DomainEvent, EventEnvelope, EventStore,
    persist::{PersistedEventRepository, PersistenceError, SerializedEvent},
};
use postgres_es::PostgresEventRepository;
use serde_json::Value;
use signalbox_domain::kernel::{Decider, ErrorKind, Metadata, Rejection};
use signalbox_telemetry::{Kind, Span, is_tracing};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    append::Appender,
    cause::complete,
    recorded::{Unread, require_known_version},
    request::{Append, AppendError, AppendOutcome, NewEvent},
    root::Root,
    snapshot,
    upcast::upcast_builtin,
};

/// The event store as one command sees it: `postgres-es` loads the stream, the [`Appender`] appends to it.
pub(crate) struct CommandStore<'a> {
    pub(crate) pool: &'a PgPool,
    pub(crate) appender: &'a Appender,
    pub(crate) metadata: &'a Metadata,
    /// Version that the caller expects, if given.
    pub(crate) expected: Option<i64>,
    /// Whether the aggregate is assumed to be new, without a query.
    pub(crate) is_new: bool,
    /// Where the outcome of the append is left for the caller.
    pub(crate) outcome: &'a OnceLock<AppendOutcome>,
    /// When the decision began, for its span.
    pub(crate) loaded: OnceLock<SystemTime>,
}

/// The aggregate `id` as the log has it.
pub(crate) async fn load<D: Decider>(pool: &PgPool, id: Uuid) -> Result<Loaded<D>, PersistenceError> {
    let repository = PostgresEventRepository::new(pool.clone());
    let snapshot = match D::SNAPSHOT_EVERY {
        Some(_) => snapshot::load::<D>(pool, id).await.map_err(unavailable)?,
        None => None,
    };
    let (state, version, events) = match snapshot {
        Some((state, version)) => {
            let after = usize::try_from(version).unwrap_or_default();
            (state, version, repository.get_last_events::<Root<D>>(&id.to_string(), after).await?)
        }
        None => (D::default(), 0, repository.get_events::<Root<D>>(&id.to_string()).await?),
    };
    let mut loaded = Loaded { id, root: Root(state), version };
    for event in events {
        loaded.version = event.sequence as i64;
        let is_dispensable = D::DISPENSABLE.contains(&event.event_type.as_str());
        match decode::<D>(event) {
            Ok(event) => loaded.root.0.evolve(event),
            Err(error) if is_dispensable => {
                tracing::warn!(%error, aggregate.type = D::TYPE, aggregate.id = %id, sequence = loaded.version, "an event is left out of a state");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(loaded)
}

/// An aggregate as loaded: its key, state and version.
pub(crate) struct Loaded<D: Decider> {
    id: Uuid,
    pub(crate) root: Root<D>,
    pub(crate) version: i64,
}

impl<D: Decider> AggregateContext<Root<D>> for Loaded<D> {
    fn aggregate(&mut self) -> &mut Root<D> {
        &mut self.root
    }
}

impl CommandStore<'_> {
    /// The span of a part of the command.
    fn span<D: Decider>(&self, part: &str) -> Span {
        Span::begin(Kind::Internal, self.metadata.traceparent.as_deref(), || format!("{part} {}", D::TYPE))
    }

    /// The aggregate is there, and decides from now on.
    fn begin_decision(&self) {
        if is_tracing() {
            // The first load is the one of this store.
            let _ = self.loaded.set(SystemTime::now());
        }
    }

    fn end_decision<D: Decider>(&self) {
        if let Some(begun) = self.loaded.get() {
            let parent = self.metadata.traceparent.as_deref();
            drop(Span::begun_at(*begun, Kind::Internal, parent, || format!("decide {}", D::TYPE)));
        }
    }

    async fn load<D: Decider>(&self, id: Uuid) -> Result<Loaded<D>, PersistenceError> {
        if self.is_new {
            return Ok(Loaded { id, root: Root(D::default()), version: 0 });
        }
        let _span = self.span::<D>("load");
        load(self.pool, id).await
    }

    async fn append<D: Decider>(
        &self,
        loaded: &Loaded<D>,
        events: &[D::Event],
    ) -> Result<AppendOutcome, AggregateError<Rejection>> {
        let new_events = events.iter().map(new_event).collect::<Result<Vec<_>, _>>()?;
        let metadata = complete::<D>(self.pool, loaded.id, loaded.version, self.metadata).await;
        let metadata = serde_json::to_value(metadata.map_err(unavailable)?)?;
        if !is_storable(&metadata) || !new_events.iter().all(|event| is_storable(&event.payload)) {
            let message = "A text contains the NUL character, which cannot be stored.";
            return Err(AggregateError::UserError(Rejection::invalid("invalid_field", message)));
        }
        let claims = events.iter().flat_map(|event| D::claims(loaded.id, event)).collect();
        let appended = self.appender.append(|reply| Append {
            command_id: self.metadata.command_id,
            aggregate_type: D::TYPE,
            aggregate_id: loaded.id,
            expected: loaded.version,
            metadata,
            events: new_events,
            claims,
            reply,
        });
        appended.await.map_err(|error| match error {
            AppendError::Conflict => AggregateError::AggregateConflict,
            AppendError::Claim { op, kind } => AggregateError::UserError(D::claim_rejection(op, &kind)),
            AppendError::Refused(reason) => {
                tracing::error!(reason, aggregate.type = D::TYPE, "the database refuses events");
                let message = "The database cannot store one of the values: it may be too long.";
                AggregateError::UserError(Rejection::invalid("not_storable", message))
            }
            unavailable @ (AppendError::DiskFull | AppendError::Unavailable(_)) => {
                AggregateError::DatabaseConnectionError(Box::new(unavailable))
            }
        })
    }

    /// Stores a snapshot when the append has crossed a multiple of the aggregate's interval. In the background: the
    /// command does not wait for an economy.
    fn snapshot<D: Decider>(&self, loaded: &Loaded<D>, after: i64) {
        let Some(every) = D::SNAPSHOT_EVERY else { return };
        if after / every == loaded.version / every {
            return;
        }
        let Ok(state) = serde_json::to_value(&loaded.root.0) else { return };
        let (pool, id) = (self.pool.clone(), loaded.id);
        tokio::spawn(async move {
            if let Err(error) = snapshot::save::<D>(&pool, id, after, state).await {
                tracing::warn!(%error, aggregate.type = D::TYPE, aggregate.id = %id, "no snapshot was kept");
            }
        });
    }
}

impl<D: Decider> EventStore<Root<D>> for CommandStore<'_> {
    type AC = Loaded<D>;

    async fn load_events(
        &self,
        aggregate_id: &str,
    ) -> Result<Vec<EventEnvelope<Root<D>>>, AggregateError<Rejection>> {
        let repository = PostgresEventRepository::new(self.pool.clone());
        let events = repository.get_events::<Root<D>>(aggregate_id).await?;
        let envelopes = events.into_iter().map(|event| {
            let (sequence, metadata) = (event.sequence, serde_json::from_value(event.metadata.clone())?);
            Ok(EventEnvelope {
                aggregate_id: aggregate_id.to_owned(),
                sequence,
                payload: decode::<D>(event)?,
                metadata,
            })
        });
        envelopes.collect::<Result<Vec<_>, PersistenceError>>().map_err(Into::into)
    }

    async fn load_aggregate(&self, aggregate_id: &str) -> Result<Loaded<D>, AggregateError<Rejection>> {
        let id =
            Uuid::parse_str(aggregate_id).map_err(|error| AggregateError::UnexpectedError(error.into()))?;
        let loaded = self.load::<D>(id).await?;
        self.begin_decision();
        match self.expected {
            Some(expected) if expected != loaded.version => Err(AggregateError::UserError(Rejection::new(
                ErrorKind::PreconditionFailed,
                "version_mismatch",
                "The resource has changed since it was read: read it again and repeat the change.",
            ))),
            _ => Ok(loaded),
        }
    }

    async fn commit(
        &self,
        events: Vec<D::Event>,
        loaded: Loaded<D>,
        metadata: HashMap<String, String>,
    ) -> Result<Vec<EventEnvelope<Root<D>>>, AggregateError<Rejection>> {
        self.end_decision::<D>();
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut span = self.span::<D>("append");
        let outcome = self.append(&loaded, &events).await?;
        span.set("signalbox.log.position", outcome.position);
        span.set("signalbox.log.events", events.len() as i64);
        drop(span);
        // Set once per store, as one command appends once.
        let _ = self.outcome.set(outcome);
        if outcome.duplicate {
            return Ok(Vec::new());
        }
        self.snapshot(&loaded, outcome.version);
        let first = usize::try_from(loaded.version + 1).unwrap_or_default();
        Ok(events
            .into_iter()
            .zip(first..)
            .map(|(payload, sequence)| EventEnvelope {
                aggregate_id: loaded.id.to_string(),
                sequence,
                payload,
                metadata: metadata.clone(),
            })
            .collect())
    }
}

fn new_event<E: DomainEvent>(event: &E) -> Result<NewEvent, serde_json::Error> {
    Ok(NewEvent {
        event_type: event.event_type(),
        event_version: event.event_version(),
        payload: serde_json::to_value(event)?,
    })
}

/// PostgreSQL stores no U+0000, and a single one would fail all commands of its transaction.
fn is_storable(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => items.iter().all(is_storable),
        Value::Object(fields) => fields.iter().all(|(key, value)| !key.contains('\0') && is_storable(value)),
        _ => true,
    }
}

fn decode<D: Decider>(event: SerializedEvent) -> Result<D::Event, PersistenceError> {
    let unread = |error: Unread| PersistenceError::DeserializationError(Box::new(error));
    require_known_version::<D>(&event.event_type, &event.event_version).map_err(unread)?;
    let mut payload: Value = event.payload;
    upcast_builtin(&event.aggregate_type, &event.event_type, &event.event_version, &mut payload);
    serde_json::from_value(payload).map_err(|error| unread(Unread::of::<D>(&event.event_type, error)))
}

fn unavailable(error: sqlx::Error) -> PersistenceError {
    PersistenceError::ConnectionError(Box::new(error))
}
