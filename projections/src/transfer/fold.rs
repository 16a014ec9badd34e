use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    catalog::Context,
    kernel::{AgentId, AgentTokenId, Decider, JobId, TransferId},
    transfer::{
        Agent, AgentEvent, AgentProfile, AgentStatus, AgentToken, AgentTokenEvent, Job, JobEvent, Leg,
        NewAgent, NewJob, NewTransfer, Phase, Transfer, TransferEvent, TransferStatus,
    },
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{AgentRow, AgentTokenRow, JobRow, TransferFileRow, TransferRow, rows::RemovedNumberRow};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
    write::{insert, upsert},
};

/// Folds agents, tokens, jobs and transfers.
pub struct TransferProjection;

#[expect(
    clippy::large_enum_variant,
    reason = "an event is decoded, folded and dropped; it is not kept in numbers"
)]
pub enum Event {
    Agent(AgentEvent),
    Token(AgentTokenEvent),
    Job(JobEvent),
    Transfer(TransferEvent),
}

/// Agents, tokens, jobs and transfers in memory.
#[derive(Default)]
pub struct TransferRows {
    pub(super) agents: Table<AgentRow>,
    pub(super) tokens: Table<AgentTokenRow>,
    pub(super) jobs: Table<JobRow>,
    pub(super) transfers: Table<TransferRow>,
    /// They stay as long as their transfer, because they show whether the database may hold some of them.
    pub(super) files: HashMap<Uuid, HashMap<String, TransferFileRow>>,
    /// Transfers whose staged entries of earlier batches are worth nothing any more.
    discarded: Vec<Uuid>,
    removed: Table<RemovedNumberRow>,
    deleted_agents: HashSet<Uuid>,
}

impl Projection for TransferProjection {
    const CONTEXT: Context = Context::Transfer;
    const TABLES: &'static [&'static str] =
        &["agents", "agent_tokens", "jobs", "transfers", "transfer_files", "removed_numbers"];

    type Rows = TransferRows;
}

#[async_trait]
impl Rows for TransferRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            Agent::TYPE => event.decode::<Agent>().map(Event::Agent),
            AgentToken::TYPE => event.decode::<AgentToken>().map(Event::Token),
            Job::TYPE => event.decode::<Job>().map(Event::Job),
            _ => event.decode::<Transfer>().map(Event::Transfer),
        }
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Event)],
    ) -> Result<(), ApplyError> {
        let changed = |aggregate| changed_ids(events, aggregate);
        let run = events.iter().filter_map(|(_, event)| match event {
            Event::Transfer(TransferEvent::TransferRequested(new)) => new.job.map(|job| job.id.0),
            _ => None,
        });
        let jobs = changed(Job::TYPE).into_iter().chain(run).collect();
        self.agents.load(connection, schema, changed(Agent::TYPE)).await?;
        self.tokens.load(connection, schema, changed(AgentToken::TYPE)).await?;
        self.jobs.load(connection, schema, jobs).await?;
        self.transfers.load(connection, schema, changed(Transfer::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::Agent(event) => self.agent(recorded, event),
            Event::Token(event) => self.token(recorded, event),
            Event::Job(event) => self.job(recorded, event),
            Event::Transfer(event) => self.transfer(recorded, event),
        }
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        let deleted = std::mem::take(&mut self.deleted_agents);
        if !deleted.is_empty() {
            self.tokens.remove_where(|token| deleted.contains(&token.agent_id.0));
        }
        self.agents.write(connection, schema, keep).await?;
        self.tokens.write(connection, schema, keep).await?;
        self.jobs.write(connection, schema, keep).await?;
        self.removed.write(connection, schema, keep).await?;
        self.write_transfers(connection, schema, keep).await?;
        if !deleted.is_empty() {
            let sql = format!("DELETE FROM {schema}.agent_tokens WHERE agent_id = ANY($1)");
            sqlx::query(&sql).bind(deleted.into_iter().collect::<Vec<_>>()).execute(connection).await?;
        }
        Ok(())
    }
}

impl TransferRows {
    fn agent(&mut self, recorded: &RecordedEvent, event: AgentEvent) {
        let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
        if let AgentEvent::AgentCreated(new) = event {
            return self.agents.put(new_agent(recorded, new));
        }
        let Some(row) = self.agents.change(id) else { return };
        row.version = recorded.sequence;
        row.updated_at = at;
        match event {
            AgentEvent::AgentCreated(_) => {}
            AgentEvent::AgentUpdated(profile) => describe(row, profile),
            AgentEvent::AgentDeleted { .. } => {
                let (kind, number) = ("agent".to_owned(), row.number);
                self.removed.put(RemovedNumberRow { id, kind, number, owner_id: None });
                self.agents.remove(id);
                self.deleted_agents.insert(id);
            }
            AgentEvent::AgentConnected { session, transport, .. } => {
                row.away_since = None;
                row.status = AgentStatus::Online.into();
                row.transport_mode = Some(transport.into());
                row.session = Some(session);
                row.connected_at = Some(at);
                row.last_seen = Some(at);
            }
            AgentEvent::AgentDescribed(system) => {
                row.version_text = system.version;
                row.hostname = system.hostname;
                row.system = system.system;
                row.ip_address = system.ip_address;
                row.capabilities = system.capabilities;
                row.last_seen = Some(at);
            }
            AgentEvent::AgentWarningChanged { warning } => row.warning = warning,
            AgentEvent::AgentDisconnected { .. } => {
                row.status = AgentStatus::Offline.into();
                row.session = None;
                row.last_seen = Some(at);
                row.away_since = Some(at);
            }
            AgentEvent::AgentWentOffline { .. } => row.away_since = None,
        }
    }

    fn token(&mut self, recorded: &RecordedEvent, event: AgentTokenEvent) {
        match event {
            AgentTokenEvent::AgentTokenCreated(new) => self.tokens.put(AgentTokenRow {
                id: AgentTokenId(recorded.aggregate_id),
                number: new.number,
                name: new.name,
                agent_id: new.agent.id,
                agent_number: new.agent.number,
                description: new.description,
                secret_sha256: new.secret_sha256.into(),
                expires_at: new.expires_at,
                created_at: recorded.recorded_at,
                version: recorded.sequence,
            }),
            AgentTokenEvent::AgentTokenRevoked => self.tokens.remove(recorded.aggregate_id),
        }
    }

    fn job(&mut self, recorded: &RecordedEvent, event: JobEvent) {
        let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
        if let JobEvent::JobCreated(new) = event {
            return self.jobs.put(new_job(recorded, new));
        }
        let Some(row) = self.jobs.change(id) else { return };
        row.version = recorded.sequence;
        row.updated_at = at;
        match event {
            JobEvent::JobCreated(_) => {}
            JobEvent::JobUpdated { from, to } => {
                // A withdrawal may have disabled it without this event.
                let rescheduled =
                    from.schedule != to.schedule || [from.enabled, row.settings.enabled] != [to.enabled; 2];
                row.settings = to.into();
                if rescheduled {
                    row.next_run = next_run(row, at);
                }
            }
            JobEvent::JobDeleted { .. } => {
                let (kind, number, owner_id) = ("job".to_owned(), row.number, Some(row.owner_id));
                self.removed.put(RemovedNumberRow { id, kind, number, owner_id });
                self.jobs.remove(id);
            }
            JobEvent::JobFiringSkipped { scheduled_for, .. } => row.next_run = next_run(row, scheduled_for),
        }
    }

    fn transfer(&mut self, recorded: &RecordedEvent, event: TransferEvent) {
        let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
        if let TransferEvent::TransferRequested(new) = event {
            self.note_run(&new, at);
            return self.transfers.put(new_transfer(recorded, new));
        }
        if let TransferEvent::FilesStaged { files } = &event {
            let staged = self.files.entry(id).or_default();
            for file in files {
                let row = TransferFileRow {
                    transfer_id: TransferId(id),
                    name: file.name.clone(),
                    size: file.size as i64,
                    sha256: file.sha256.to_string(),
                };
                staged.insert(file.name.clone(), row);
            }
        }
        if let TransferEvent::TransferRequeued { discard: true, .. } | TransferEvent::TransferDeleted = &event
        {
            self.files.remove(&id);
            self.discarded.push(id);
        }
        if let Some(row) = self.transfers.change(id) {
            row.version = recorded.sequence;
            row.updated_at = at;
            row.active_at = at;
            change_transfer(row, at, event);
        }
    }

    fn note_run(&mut self, new: &NewTransfer, at: DateTime<Utc>) {
        let Some(job) = new.job.and_then(|job| self.jobs.change(job.id.0)) else { return };
        job.last_run = Some(at);
        job.last_transfer_number = Some(new.number);
        if let Some(firing) = new.scheduled_for {
            job.next_run = next_run(job, firing);
        }
    }

    async fn write_transfers(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        if !self.discarded.is_empty() {
            let sql = format!("DELETE FROM {schema}.transfer_files WHERE transfer_id = ANY($1)");
            sqlx::query(&sql).bind(std::mem::take(&mut self.discarded)).execute(&mut *connection).await?;
        }
        let files: usize = self.files.values().map(HashMap::len).sum();
        let keep = if files > keep { 0 } else { keep };
        let new = self.transfers.write(connection, schema, keep).await?;
        let rested = self.files.extract_if(|transfer, _| !self.transfers.contains(*transfer));
        let (first, others): (Vec<_>, Vec<_>) = rested
            .flat_map(|(_, files)| files.into_values())
            .partition(|file| new.contains(&file.transfer_id.0));
        insert(connection, schema, "transfer_files", &first).await?;
        upsert(connection, schema, "transfer_files", "transfer_id, read.text_key(name)", &others).await
    }
}

fn new_agent(recorded: &RecordedEvent, new: NewAgent) -> AgentRow {
    AgentRow {
        id: AgentId(recorded.aggregate_id),
        number: new.number,
        name: new.profile.name,
        agent_type: new.profile.kind.into(),
        description: new.profile.description,
        status: AgentStatus::Offline.into(),
        version_text: None,
        hostname: None,
        system: None,
        ip_address: None,
        capabilities: Vec::new(),
        transport_mode: None,
        session: None,
        connected_at: None,
        last_seen: None,
        away_since: None,
        warning: None,
        version: recorded.sequence,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    }
}

fn describe(row: &mut AgentRow, profile: AgentProfile) {
    row.name = profile.name;
    row.agent_type = profile.kind.into();
    row.description = profile.description;
}

fn new_job(recorded: &RecordedEvent, new: NewJob) -> JobRow {
    let NewJob { number, owner, spec } = new;
    let mut row = JobRow {
        id: JobId(recorded.aggregate_id),
        number,
        owner_id: owner,
        settings: spec.into(),
        last_run: None,
        next_run: None,
        last_transfer_number: None,
        version: recorded.sequence,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    };
    row.next_run = next_run(&row, recorded.recorded_at);
    row
}

/// First firing after `after`; pure, so that a rebuild computes the same time.
fn next_run(row: &JobRow, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    row.settings.schedule().filter(|_| row.settings.enabled)?.next_after(after)
}

fn new_transfer(recorded: &RecordedEvent, new: NewTransfer) -> TransferRow {
    TransferRow {
        id: TransferId(recorded.aggregate_id),
        number: new.number,
        owner_id: new.owner,
        job_id: new.job.map(|job| job.id),
        job_number: new.job.map(|job| job.number),
        job_type: new.kind.into(),
        source_agent_id: new.source_agent.map(|agent| agent.id),
        source_agent_number: new.source_agent.map(|agent| agent.number),
        destination_agent_id: new.destination_agent.id,
        destination_agent_number: new.destination_agent.number,
        source_path: new.source_path,
        destination_path: new.destination_path,
        filename: new.filename,
        size: new.size.map(|size| size as i64),
        status: TransferStatus::Pending.into(),
        phase: Phase::Queued.into(),
        attempts: 0,
        asked: false,
        max_attempts: new.retry.max_attempts as i32,
        file_count: 0,
        uploaded: 0,
        downloaded: 0,
        sha256: None,
        proven: false,
        cleaned: false,
        deleted: false,
        error: None,
        not_before: None,
        active_at: recorded.recorded_at,
        started_at: None,
        finished_at: None,
        version: recorded.sequence,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    }
}

fn change_transfer(row: &mut TransferRow, at: DateTime<Utc>, event: TransferEvent) {
    let mut moved = |phase: Phase| {
        row.phase = phase.into();
        row.status = TransferStatus::Running.into();
        row.started_at.get_or_insert(at);
    };
    match event {
        TransferEvent::TransferRequested(_) | TransferEvent::LateReportReceived { .. } => {}
        TransferEvent::TransferDispatched { attempt, leg } => {
            row.attempts = attempt as i32;
            row.asked = true;
            row.downloaded = 0;
            row.phase = if leg == Leg::Upload { Phase::Dispatched } else { Phase::Staged }.into();
        }
        TransferEvent::TransferProgressed { leg: Leg::Upload, bytes, total } => {
            moved(Phase::Uploading);
            row.uploaded = bytes as i64;
            if !row.is_tree() {
                row.size = total.map(|total| total as i64).or(row.size);
            }
        }
        TransferEvent::TransferProgressed { leg: Leg::Download, bytes, .. } => {
            moved(Phase::Downloading);
            row.downloaded = bytes as i64;
        }
        TransferEvent::FilesStaged { files } => {
            moved(Phase::Uploading);
            let bytes: i64 = files.iter().map(|file| file.size as i64).sum();
            if row.is_tree() {
                row.file_count += files.len() as i64;
                row.uploaded += bytes;
            } else {
                row.file_count = 1;
                row.uploaded = bytes;
            }
        }
        TransferEvent::TransferStaged { files, size, sha256, .. } => {
            moved(Phase::Staged);
            row.asked = false;
            row.file_count = files as i64;
            row.size = Some(size as i64);
            row.uploaded = size as i64;
            row.sha256 = Some(sha256.into());
        }
        TransferEvent::TransferRequeued { error, backoff_seconds, discard, .. } => {
            if discard {
                row.file_count = 0;
                row.uploaded = 0;
            }
            row.phase = Phase::Queued.into();
            row.error = Some(error);
            row.not_before = Some(at + TimeDelta::seconds(i64::from(backoff_seconds)));
        }
        TransferEvent::TransferCompleted { proven } => {
            row.proven = proven;
            row.downloaded = row.uploaded;
            row.error = None;
            finish(row, at, TransferStatus::Completed);
        }
        TransferEvent::TransferFailed { error } => {
            row.error = Some(error);
            finish(row, at, TransferStatus::Failed);
        }
        TransferEvent::TransferCancelled => finish(row, at, TransferStatus::Cancelled),
        TransferEvent::StagedBytesDeleted => row.cleaned = true,
        TransferEvent::TransferDeleted => row.deleted = true,
    }
}

fn finish(row: &mut TransferRow, at: DateTime<Utc>, status: TransferStatus) {
    row.status = status.into();
    row.phase = Phase::Done.into();
    row.not_before = None;
    row.finished_at = Some(at);
}
