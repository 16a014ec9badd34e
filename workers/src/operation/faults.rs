//! Looks for parts that do not work, and writes an entry for people about each fault and each recovery.
//!
//! Reads the positions of all log readers, the mailboxes and the holders of snapshots in PostgreSQL; writes
//! `ops.faults`. Other processes report their own faults there. One process does this, by a lease. If it stops, the
//! next one starts to observe from scratch: faults stay in the table until it has seen the part move, or until they
//! expire. Entries are commands whose ids are derived from the fault, so a repetition writes nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use signalbox_database::{
    Fault, fault_entries, faults, forget_fault_entry, note_check, note_fault_entry, report_fault,
};
use signalbox_domain::monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry};
use signalbox_messaging::Mailbox;
use signalbox_projections::{LogLag, OldestSnapshot, log_lags, note_snapshot_holders, oldest_snapshot};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

const PERIOD: Duration = Duration::from_secs(5);
/// A part with pending work that has not moved for this long is stuck.
const STUCK: Duration = Duration::from_secs(15);
const MAILBOX: Duration = Duration::from_secs(3);
/// A snapshot that is older slows appends down.
const SNAPSHOT_SECONDS: f64 = 900.0;
/// The fault of such a snapshot.
const SNAPSHOT: &str = "oldest_snapshot";
/// Ids of entries are made of this and the fault.
const ENTRIES: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0002);
/// Longest part of a reason that fits into an entry.
const REASON: usize = 300;

/// Reports faults.
#[derive(Debug)]
pub struct FaultReporter {
    mailbox: Mailbox,
    movements: Mutex<Movements>,
}

/// Since when each part has stood at its position, and whether it was seen to work.
#[derive(Debug, Default)]
struct Movements(HashMap<String, Movement>);

#[derive(Debug)]
struct Movement {
    position: i64,
    since: Instant,
    works: bool,
}

/// The observed state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has moved, or has no work.
    Works,
    /// It has had work and has not moved for [`STUCK`].
    Stuck,
    /// It has work and has not been observed for long enough: an earlier process's report stays valid.
    Unknown,
}

impl Movements {
    /// Notes `progress` at `now`.
    fn note(&mut self, progress: &LogLag, now: Instant) -> State {
        let first = || Movement { position: progress.position, since: now, works: false };
        let known = self.0.entry(progress.part.clone()).or_insert_with(first);
        if known.position != progress.position || progress.behind <= 0 {
            *known = Movement { position: progress.position, since: now, works: true };
        }
        if now.duration_since(known.since) >= STUCK {
            known.works = false;
            return State::Stuck;
        }
        if known.works { State::Works } else { State::Unknown }
    }
}

impl Worker for FaultReporter {
    const NAME: &'static str = "fault-reporter";

    fn period(&self) -> Duration {
        PERIOD
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        self.check(context).await?;
        write_entries(context).await?;
        Ok(false)
    }
}

impl FaultReporter {
    /// One that also reports a `mailbox` that does not answer.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, movements: Mutex::default() }
    }

    async fn check(&self, context: &Context) -> Result<(), WorkerError> {
        let mut parts = log_lags(&context.pool).await?;
        let mailbox = timeout(MAILBOX, self.mailbox.size()).await;
        let behind = i64::from(!matches!(mailbox, Ok(Ok(_))));
        parts.push(LogLag { part: "mailbox".to_owned(), position: 0, behind });
        let states: Vec<_> = {
            let mut movements = self.movements.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            parts.into_iter().map(|progress| (movements.note(&progress, now), progress)).collect()
        };
        let mut working = Vec::new();
        for (state, progress) in states {
            match state {
                State::Stuck => report_fault(&context.pool, &progress.part, &reason_of(&progress)).await?,
                State::Works => working.push(progress.part),
                State::Unknown => {}
            }
        }
        note_snapshot_holders(&context.pool).await?;
        match oldest_snapshot(&context.pool).await? {
            Some(oldest) if oldest.seconds > SNAPSHOT_SECONDS => {
                report_fault(&context.pool, SNAPSHOT, &reason_of_snapshot(&oldest)).await?;
            }
            _ => working.push(SNAPSHOT.to_owned()),
        }
        Ok(note_check(&context.pool, &working).await?)
    }
}

fn reason_of_snapshot(OldestSnapshot { seconds, holder }: &OldestSnapshot) -> String {
    format!(
        "{holder} has kept PostgreSQL from removing old rows for {seconds:.0} s, and appends become slower"
    )
}

fn reason_of(progress: &LogLag) -> String {
    match progress.part.as_str() {
        "mailbox" => "JetStream does not answer for the agents' mailboxes: see `signalbox doctor`".to_owned(),
        _ => format!(
            "it stands at {} and has {} left, without progress: see what the processes log",
            progress.position, progress.behind
        ),
    }
}

async fn write_entries(context: &Context) -> Result<(), WorkerError> {
    let (faults, written) = (faults(&context.pool).await?, fault_entries(&context.pool).await?);
    let known: HashSet<_> = written.iter().map(|(part, since)| (part.as_str(), *since)).collect();
    for fault in faults.iter().filter(|fault| !known.contains(&(fault.part.as_str(), fault.since))) {
        let key = format!("{} {}", fault.part, fault.since.to_rfc3339());
        write(context, &key, entry_about(fault)).await?;
        note_fault_entry(&context.pool, &fault.part, fault.since).await?;
    }
    for (part, since) in written.iter().filter(|(part, _)| !faults.iter().any(|fault| fault.part == *part)) {
        let since_text = since.format("%Y-%m-%d %H:%M:%S UTC");
        let content = format!("{part} works again. It did not since {since_text}.");
        write(context, &format!("{part} {} recovered", since.to_rfc3339()), entry(LogType::Info, content))
            .await?;
        forget_fault_entry(&context.pool, part).await?;
    }
    Ok(())
}

async fn write(context: &Context, key: &str, entry: NewLogEntry) -> Result<(), WorkerError> {
    let id = Uuid::new_v5(&ENTRIES, key.as_bytes());
    let command = LogEntryCommand::Write(entry);
    context.send_if_still_due::<LogEntry>(FaultReporter::NAME, id, "write", &command).await.map(|_| ())
}

fn entry_about(Fault { part, since, reason, .. }: &Fault) -> NewLogEntry {
    let (part, reason): (String, String) =
        (part.chars().take(100).collect(), reason.chars().take(REASON).collect());
    let since = since.format("%Y-%m-%d %H:%M:%S UTC");
    entry(LogType::Error, format!("{part} does not work since {since}: {reason}"))
}

fn entry(kind: LogType, content: String) -> NewLogEntry {
    NewLogEntry { kind, content, source: "health".to_owned(), user: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_stuck_when_it_has_work_and_stands() {
        let (start, mut movements) = (Instant::now(), Movements::default());
        let mut stuck_at = |seconds, position, behind| {
            let progress = LogLag { part: "chain".to_owned(), position, behind };
            movements.note(&progress, start + Duration::from_secs(seconds)) == State::Stuck
        };
        assert!(!stuck_at(0, 5, 0));
        assert!(!stuck_at(100, 5, 0), "it has no work");
        assert!(!stuck_at(101, 5, 3));
        assert!(!stuck_at(114, 5, 9));
        assert!(stuck_at(115, 5, 9));
        assert!(!stuck_at(116, 6, 9), "it moved");
        assert!(!stuck_at(130, 6, 9));
        assert!(stuck_at(131, 6, 9));
        assert!(!stuck_at(132, 6, 0));
    }

    #[test]
    fn a_part_that_was_not_seen_to_move_does_not_count_as_working() {
        let (start, mut movements) = (Instant::now(), Movements::default());
        let mut at = |seconds, position, behind| {
            let progress = LogLag { part: "chain".to_owned(), position, behind };
            movements.note(&progress, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, 5, 3), State::Unknown);
        assert_eq!(at(14, 5, 3), State::Unknown);
        assert_eq!(at(15, 5, 3), State::Stuck);
        assert_eq!(at(16, 6, 2), State::Works);
        assert_eq!(at(20, 6, 2), State::Works);
        assert_eq!(at(31, 6, 2), State::Stuck);
        assert_eq!(at(32, 6, 0), State::Works);
    }
}
