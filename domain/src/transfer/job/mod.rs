mod events;

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{JobCommand, JobEvent, JobEventKind};
use super::{
    agent::{AGENT_CLAIM, jobs_of_agent, optional_text, unknown_agent},
    path::valid_path,
    schedule::{Schedule, validate_timezone},
};
use crate::kernel::{AgentId, Claim, ClaimOp, Decider, Rejection, UserId, required_text};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;
/// How often a transfer may be tried.
pub const ATTEMPTS: RangeInclusive<u32> = 1..=10;
/// Longest backoff before the next attempt, in seconds: a day.
pub const MAX_BACKOFF: u32 = 86_400;

/// An agent as other aggregates name it: its key and the integer that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRef {
    /// Key of the agent.
    pub id: AgentId,
    /// The integer that clients see.
    pub number: i64,
}

/// Which side a run is dispatched to first; the bytes flow the same way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobType {
    /// The source starts.
    #[default]
    Push,
    /// The destination initiates: a run waits until that agent is connected.
    Pull,
}

/// The reaction when a job is due while its last transfer still runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The firing is left out.
    #[default]
    Skip,
    /// Another transfer is made.
    Queue,
}

/// How often a transfer is tried, and how long it waits in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// 1–10 attempts.
    pub max_attempts: u32,
    /// Delay before the next attempt, in seconds, at most a day.
    pub backoff_seconds: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 3, backoff_seconds: 5 }
    }
}

impl Retry {
    /// Checks both ranges.
    ///
    /// # Errors
    /// A [`Rejection`] that names the field.
    pub fn validate(self) -> Result<Self, Rejection> {
        if !ATTEMPTS.contains(&self.max_attempts) {
            return Err(Rejection::field("retry.max_attempts", "must be between 1 and 10"));
        }
        if self.backoff_seconds > MAX_BACKOFF {
            return Err(Rejection::field("retry.backoff_seconds", "must be between 0 and 86400"));
        }
        Ok(self)
    }
}

/// The files that a job moves, and its schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Display name, 1–255 characters.
    pub name: String,
    /// The side that initiates.
    #[serde(rename = "job_type")]
    pub kind: JobType,
    /// Agent that holds the files.
    pub source_agent: AgentRef,
    /// Agent that receives them.
    pub destination_agent: AgentRef,
    /// Path on the source; a trailing `/` means the whole tree.
    pub source_path: String,
    /// Path on the destination.
    pub destination_path: String,
    /// Absent for a job that runs only on request.
    pub schedule: Option<Schedule>,
    /// IANA name of the zone of this job's schedules. Absent in events from before it was a field of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Whether the schedule is followed.
    pub enabled: bool,
    /// How its transfers are retried.
    pub retry: Retry,
    pub overlap: Overlap,
    /// Free text.
    pub description: Option<String>,
}

/// A new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// The integer that clients see; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    pub owner: UserId,
    #[serde(flatten)]
    pub spec: JobSpec,
}

/// A transfer definition with an optional schedule.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Job {
    spec: Option<JobSpec>,
    skipped_until: Option<DateTime<Utc>>,
}

/// Why a firing made no transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The last transfer was still running.
    Overlap,
    /// The firing was noticed too late, after the service had been down.
    TooLate,
}

impl Decider for Job {
    const TYPE: &'static str = "job";
    const CONTEXT: &'static str = "transfer";
    const STATE_VERSION: i32 = 1;
    type Command = JobCommand;
    type Event = JobEvent;

    fn decide(&self, command: JobCommand) -> Result<Vec<JobEvent>, Rejection> {
        if let JobCommand::Create(new) = command {
            return self.create(new);
        }
        let from = self.spec.as_ref().ok_or_else(|| Rejection::not_found("Job"))?;
        match command {
            JobCommand::Create(_) => Ok(Vec::new()),
            JobCommand::Update(to) => {
                let to = to.validate()?;
                Ok(if to == from.clone().with_timezone() {
                    Vec::new()
                } else {
                    vec![JobEvent::JobUpdated { from: from.clone(), to }]
                })
            }
            JobCommand::Delete => Ok(vec![JobEvent::JobDeleted { spec: from.clone() }]),
            JobCommand::SkipFiring { scheduled_for, .. } if self.skipped_until >= Some(scheduled_for) => {
                Ok(Vec::new())
            }
            JobCommand::SkipFiring { scheduled_for, reason } => {
                Ok(vec![JobEvent::JobFiringSkipped { scheduled_for, reason }])
            }
        }
    }

    fn evolve(&mut self, event: JobEvent) {
        match event {
            JobEvent::JobCreated(new) => self.spec = Some(new.spec),
            JobEvent::JobUpdated { to, .. } => self.spec = Some(to),
            JobEvent::JobDeleted { .. } => self.spec = None,
            JobEvent::JobFiringSkipped { scheduled_for, .. } => self.skipped_until = Some(scheduled_for),
        }
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        unknown_agent()
    }

    fn claims(id: Uuid, event: &JobEvent) -> Vec<Claim> {
        match event {
            JobEvent::JobCreated(new) => use_agents(id, &new.spec),
            JobEvent::JobUpdated { from, to } if agents(from) == agents(to) => Vec::new(),
            JobEvent::JobUpdated { from, to } => {
                let mut claims = leave_agents(id, from);
                claims.extend(use_agents(id, to));
                claims
            }
            JobEvent::JobDeleted { spec } => leave_agents(id, spec),
            JobEvent::JobFiringSkipped { .. } => Vec::new(),
        }
    }
}

impl Job {
    fn create(&self, new: NewJob) -> Result<Vec<JobEvent>, Rejection> {
        if self.spec.is_some() {
            return Err(Rejection::conflict("job_exists", "This job exists already."));
        }
        Ok(vec![JobEvent::JobCreated(NewJob { spec: new.spec.validate()?, ..new })])
    }
}

impl JobSpec {
    /// A job that runs on request and moves what is at a place of one agent to a place of another.
    pub fn new(name: impl Into<String>, source: (AgentRef, &str), destination: (AgentRef, &str)) -> Self {
        Self {
            name: name.into(),
            kind: JobType::default(),
            source_agent: source.0,
            destination_agent: destination.0,
            source_path: source.1.to_owned(),
            destination_path: destination.1.to_owned(),
            schedule: None,
            timezone: None,
            enabled: true,
            retry: Retry::default(),
            overlap: Overlap::default(),
            description: None,
        }
    }

    fn validate(self) -> Result<Self, Rejection> {
        let checked = self.with_timezone();
        if let Some(timezone) = &checked.timezone {
            validate_timezone(timezone)?;
        }
        if let Some(schedule) = &checked.schedule {
            schedule.validate()?;
        }
        valid_path("source_path", &checked.source_path)?;
        valid_path("destination_path", &checked.destination_path)?;
        Ok(Self {
            name: required_text("name", &checked.name, MAX_NAME)?,
            description: optional_text("description", checked.description)?,
            retry: checked.retry.validate()?,
            ..checked
        })
    }

    /// The zone, also where only the schedule names one.
    pub fn zone(&self) -> Option<String> {
        let of_schedule = || self.schedule.as_ref().map(|schedule| schedule.timezone.clone());
        self.timezone.clone().or_else(of_schedule)
    }

    fn with_timezone(self) -> Self {
        Self { timezone: self.zone(), ..self }
    }
}

fn agents(spec: &JobSpec) -> Vec<AgentId> {
    let mut agents = vec![spec.source_agent.id];
    if spec.destination_agent.id != spec.source_agent.id {
        agents.push(spec.destination_agent.id);
    }
    agents
}

fn use_agents(job: Uuid, spec: &JobSpec) -> Vec<Claim> {
    agents(spec)
        .into_iter()
        .flat_map(|agent| {
            [
                Claim::new(ClaimOp::Require, AGENT_CLAIM, agent.to_string()),
                Claim::new(ClaimOp::Take, jobs_of_agent(agent), job.to_string()),
            ]
        })
        .collect()
}

fn leave_agents(job: Uuid, spec: &JobSpec) -> Vec<Claim> {
    agents(spec)
        .into_iter()
        .map(|agent| Claim::new(ClaimOp::Release, jobs_of_agent(agent), job.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(source: u128, destination: u128) -> JobSpec {
        let agent = |id| AgentRef { id: AgentId(Uuid::from_u128(id)), number: 1 };
        JobSpec::new("nightly", (agent(source), "/data/"), (agent(destination), "/in/"))
    }

    #[test]
    fn a_job_within_one_agent_claims_it_once() {
        let takes =
            use_agents(Uuid::nil(), &spec(1, 1)).into_iter().filter(|claim| claim.op == ClaimOp::Take);
        assert_eq!(takes.count(), 1);
    }

    #[test]
    fn an_update_that_keeps_the_agents_touches_no_claim() {
        let event =
            JobEvent::JobUpdated { from: spec(1, 2), to: JobSpec { name: "other".into(), ..spec(1, 2) } };
        assert_eq!(Job::claims(Uuid::nil(), &event), vec![]);
    }

    #[test]
    fn paths_keep_their_spaces() {
        let spaced = JobSpec { source_path: " with space ".into(), ..spec(1, 2) };
        assert_eq!(spaced.validate().unwrap().source_path, " with space ");
    }

    #[test]
    fn an_update_to_the_same_writes_nothing_for_jobs_of_before_the_timezone_field() {
        let schedule = Schedule { cron: "0 0 2 * * *".into(), timezone: "Europe/Berlin".into() };
        let mut job = Job::default();
        let old = JobSpec { schedule: Some(schedule), ..spec(1, 2) };
        let owner = UserId(Uuid::nil());
        job.evolve(JobEvent::JobCreated(NewJob { number: 1, owner, spec: old.clone() }));
        assert_eq!(job.decide(JobCommand::Update(old)).unwrap(), []);
    }

    #[test]
    fn a_timezone_without_a_schedule_is_checked() {
        let unknown = JobSpec { timezone: Some("Mars/Olympus".into()), ..spec(1, 2) };
        assert_eq!(unknown.validate().unwrap_err().code, "invalid_timezone");
    }

    #[test]
    fn attempts_are_bounded() {
        for max_attempts in [0, 11] {
            let retry = Retry { max_attempts, backoff_seconds: 5 };
            assert!(JobSpec { retry, ..spec(1, 2) }.validate().is_err());
        }
    }
}
